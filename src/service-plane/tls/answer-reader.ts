import { MessageReader } from './message-reader.js';
import { RecordReader } from './record-reader.js';
import { isRetry } from './server-hello.js';
import { CONTENT, HANDSHAKE } from './tls-numbers.js';

/** The limit of the stream up to the ServerHello, record headers included. */
const LIMIT = 65_536;
/** OpenSSL and other servers have sent records of this size even before encryption. */
const LONGEST_RECORD = 16_384 + 256;

/** How a server answered a hello. */
export type Answer =
  | { readonly kind: 'hello' }
  /** A HelloRetryRequest, with the body of its message. */
  | { readonly kind: 'retry'; readonly body: Uint8Array }
  | { readonly kind: 'not_tls' };

/**
 * Reads from a server's stream whether it accepts a hello or requests another one. The result depends only on
 * the bytes, not on their division.
 */
export class AnswerReader {
  readonly #records = new RecordReader({ limit: LIMIT, longest: LONGEST_RECORD });
  readonly #messages = new MessageReader(LIMIT);

  push(chunk: Uint8Array): void {
    this.#records.push(chunk);
  }

  /**
   * Returns the next answer; null: more bytes are needed. After anything but `retry` no other answer follows.
   */
  next(): Answer | null {
    for (;;) {
      const message = this.#messages.next();
      if (message === 'too_long') return { kind: 'not_tls' };
      if (message !== null) {
        if (message.type !== HANDSHAKE.serverHello) return { kind: 'not_tls' };
        return isRetry(message.body) ? { kind: 'retry', body: message.body.slice() } : { kind: 'hello' };
      }
      const piece = this.#records.next();
      if (piece === null) return null;
      if (typeof piece === 'string') return { kind: 'not_tls' };
      if (piece.type === CONTENT.handshake) {
        this.#messages.push(piece.data);
        continue;
      }
      // Alerts are ignored: the server closes the connection itself, or continues.
      const isPassed = piece.type === CONTENT.alert || piece.type === CONTENT.changeCipherSpec;
      if (!isPassed || !this.#messages.isBetween) return { kind: 'not_tls' };
    }
  }
}
