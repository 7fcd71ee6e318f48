import { Socket } from 'node:net';
import type { Packet } from '#contracts/policy-model.js';
import { formatAddress } from '#policy/model/ipv4.js';
import { openConnector } from '#sockets/socket-options.js';

const CONNECT_MS = 10_000;

/** Connects to the server that a client meant, by the client's own address. Calls back once; the socket is paused. */
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
    // Never at once.
    if (socket === null) {
      setImmediate(finish, null);
      return;
    }
    const following = socket;
    following.once('connect', () => finish(following));
    following.on('error', (failure: NodeJS.ErrnoException) => {
      if (isDone) return;
      // The port was the client's in a connection to this server that waits out its time.
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
    // No descriptor is left, or no port.
    return null;
  }
  // Not in the types: a socket by a descriptor is not read before it is connected.
  const options = { fd, allowHalfOpen: true, pauseOnCreate: true };
  const socket = new Socket(options);
  socket.connect({ host: formatAddress(flow.destination), port: flow.destinationPort });
  return socket;
}
