import { Socket } from 'node:net';
import { formatAddress } from '#addresses/ip-address.js';
import type { Packet } from '#contracts/policy/policy-model.js';
import { openConnector, type SocketAddress } from '#sockets/socket-options.js';

const CONNECT_MS = 10_000;

/**
 * Opens a TCP connection from the client's own address to the client's original destination. Calls `done`
 * once: with the paused socket, or with null on failure. Does not call `done` before `connectUpstream` has
 * returned. The returned function cancels the attempt, and `done` then gets null.
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
    // Call `finish` in a later event-loop phase, so that `done` runs only after `connectUpstream` has
    // returned.
    if (socket === null) {
      setImmediate(finish, null);
      return;
    }
    const following = socket;
    following.once('connect', () => finish(following));
    following.on('error', (failure: NodeJS.ErrnoException) => {
      if (isDone) return;
      // EADDRNOTAVAIL: a connection from the client's port to this server is still in TIME_WAIT. Retry once
      // from a free port.
      if (!mayTryAgain || failure.code !== 'EADDRNOTAVAIL') return finish(null);
      socket = openTo(flow, { address: flow.source, port: 0 }, mark);
      follow(false);
    });
  };
  follow(true);
  return () => finish(null);
}

function openTo(flow: Packet, from: SocketAddress, mark: number): Socket | null {
  let fd: number;
  try {
    fd = openConnector(from, mark);
  } catch {
    // The process has reached its limit of descriptors, or the kernel has no free port.
    return null;
  }
  // Without `pauseOnCreate`, Node would read from the descriptor before the socket is connected. Node's type
  // definitions lack this option.
  const options = { fd, allowHalfOpen: true, pauseOnCreate: true };
  const socket = new Socket(options);
  socket.connect({ host: formatAddress(flow.destination), port: flow.destinationPort });
  return socket;
}
