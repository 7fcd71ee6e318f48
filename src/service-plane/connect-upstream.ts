import { Socket } from 'node:net';
import type { Packet } from '#contracts/policy-model.js';
import { formatAddress } from '#policy/model/ipv4.js';
import { openConnector } from '#sockets/socket-options.js';

const CONNECT_MS = 10_000;

/**
 * Connects to the client's original destination, from the client's own address. Calls back once, never before
 * the return; the socket is paused.
 */
export function connectUpstream(flow: Packet, mark: number, done: (socket: Socket | null) => void): () => void {
  let socket = openTo(flow, { address: flow.source, port: flow.sourcePort }, mark);
  const late = setTimeout(() => finish(null), CONNECT_MS);
  let isDone = false;
  const finish = (connected: Socket | null): void => {
    if (isDone) return;
    isDone = true;
    clearTimeout(late);
    if (connected === null) socket?.destroy();
    done(connected);
  };
  const follow = (mayTryAgain: boolean): void => {
    // Call back only after the return.
    if (socket === null) {
      setImmediate(finish, null);
      return;
    }
    const following = socket;
    following.once('connect', () => finish(following));
    following.on('error', (failure: NodeJS.ErrnoException) => {
      if (isDone) return;
      // The client's port is still in TIME_WAIT for a connection to this server: use another port.
      if (!mayTryAgain || failure.code !== 'EADDRNOTAVAIL') return finish(null);
      socket = openTo(flow, { address: flow.source, port: 0 }, mark);
      follow(false);
    });
  };
  follow(true);
  return () => finish(null);
}

function openTo(flow: Packet, from: { readonly address: number; readonly port: number }, mark: number): Socket | null {
  let fd: number;
  try {
    fd = openConnector(from, mark);
  } catch {
    // No descriptor or no port is left.
    return null;
  }
  // `pauseOnCreate` is missing from Node's types. It keeps Node from reading the descriptor before it is
  // connected.
  const options = { fd, allowHalfOpen: true, pauseOnCreate: true };
  const socket = new Socket(options);
  socket.connect({ host: formatAddress(flow.destination), port: flow.destinationPort });
  return socket;
}
