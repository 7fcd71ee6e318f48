import type { Socket } from 'node:net';

/** Parts beyond this are written one by one, without a copy. */
const JOINED = 16_384;

/** What is to be written to a socket, in one piece where it is small: each write costs a record of TLS, and a system call. */
export class WriteBatch {
  #parts: (string | Buffer)[] = [];
  #length = 0;

  /** Texts are latin1. */
  add(part: string | Buffer): void {
    if (part.length === 0) return;
    this.#parts.push(part);
    this.#length += part.length;
  }

  /** Whether the socket takes more at once. */
  flush(socket: Socket): boolean {
    const parts = this.#parts;
    const [first] = parts;
    if (first === undefined) return true;
    const length = this.#length;
    this.#parts = [];
    this.#length = 0;
    if (!socket.writable) return true;
    if (parts.length === 1) return write(socket, first);
    if (length <= JOINED) {
      const joined = Buffer.allocUnsafe(length);
      let at = 0;
      for (const part of parts) {
        at += typeof part === 'string' ? joined.write(part, at, 'latin1') : part.copy(joined, at);
      }
      return socket.write(joined);
    }
    let takes = true;
    socket.cork();
    for (const part of parts) takes = write(socket, part);
    socket.uncork();
    return takes;
  }
}

function write(socket: Socket, part: string | Buffer): boolean {
  return typeof part === 'string' ? socket.write(part, 'latin1') : socket.write(part);
}
