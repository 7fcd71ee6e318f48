import type { Socket } from 'node:net';

/** Carries the bytes of two sockets to each other, each side's end by itself; what breaks one breaks the other. */
export function splice(one: Socket, other: Socket, done: () => void): void {
  let open = 2;
  const closed = (): void => {
    open--;
    if (open === 0) done();
  };
  carry(one, other);
  carry(other, one);
  for (const [socket, peer] of [
    [one, other],
    [other, one],
  ] as const) {
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    socket.on('error', () => peer.resetAndDestroy());
    socket.once('close', () => {
      // Both have said their ends, or somebody tore it down.
      if (!socket.readableEnded || !socket.writableFinished) peer.resetAndDestroy();
      closed();
    });
    socket.resume();
  }
}
const KEEP_ALIVE_MS = 60_000;

function carry(from: Socket, to: Socket): void {
  from.on('data', (chunk: Buffer) => {
    if (!to.write(chunk)) from.pause();
  });
  to.on('drain', () => from.resume());
  from.on('end', () => to.end());
}
