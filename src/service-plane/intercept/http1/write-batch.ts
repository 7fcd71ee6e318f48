import type { Socket } from 'node:net';

/**
 * The maximum number of bytes that `flush` copies into one buffer. If more bytes are queued, `flush` writes
 * each queued text or buffer separately.
 */
const JOINED = 16_384;

/**
 * Collects texts and buffers for a socket, and combines small texts and buffers to one write. Fewer writes
 * save TLS records and system calls, because each write costs one of both.
 */
export class WriteBatch {
  #parts: (string | Buffer)[] = [];
  #length = 0;

  /** Queues a text or buffer. A text is sent in latin1. */
  add(part: string | Buffer): void {
    if (part.length === 0) return;
    this.#parts.push(part);
    this.#length += part.length;
  }

  /** Writes the queued data to the socket. Returns false if the socket's write buffer is full. */
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
      const combined = Buffer.allocUnsafe(length);
      let at = 0;
      for (const part of parts) {
        at += typeof part === 'string' ? combined.write(part, at, 'latin1') : part.copy(combined, at);
      }
      return socket.write(combined);
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
