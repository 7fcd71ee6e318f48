import type { RequestOptions } from 'node:https';
import { Agent } from 'node:https';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/** The maximum size in bytes of the plaintext of a TLS record. */
const RECORD_BYTES = 16 * 1024;

/**
 * An agent whose connections read nothing from the kernel while they are paused. By default, a socket of
 * Node.js reads on after `pause()` until its buffer is full, which wakes the thread for each TLS record. A
 * socket with `onread` stops at once.
 */
export class StoppingAgent extends Agent {
  override createConnection(
    options: RequestOptions,
    callback?: (failure: Error | null, stream: Duplex) => void,
  ): Duplex | null | undefined {
    const onread = {
      buffer: Buffer.allocUnsafeSlow(RECORD_BYTES),
      // Copy the bytes, because the next record overwrites the buffer.
      callback: (count: number, bytes: Uint8Array): boolean =>
        socket instanceof Socket && socket.push(Buffer.from(bytes.subarray(0, count))),
    };
    const stopping = { ...options, onread };
    const socket = super.createConnection(stopping, callback);
    return socket;
  }
}
