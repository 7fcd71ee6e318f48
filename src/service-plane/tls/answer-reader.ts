import { MessageReader } from './message-reader.js';
import { MAX_SERVER_RECORD, RecordReader } from './record-reader.js';
import { isRetry } from './server-hello.js';
import { CONTENT, HANDSHAKE } from './tls-numbers.js';

/**
 * The maximum number of stream bytes up to the end of the ServerHello, record headers included. After more
 * bytes, the answer is `not_tls`.
 */
const LIMIT = 65_536;

/** The response of a server to a ClientHello. `hello`: the server accepts the ClientHello. */
export type Answer =
  | { readonly kind: 'hello' }
  /** The server sent a HelloRetryRequest; `body` is the message body. */
  | { readonly kind: 'retry'; readonly body: Uint8Array }
  | { readonly kind: 'not_tls' };

/**
 * Reads a server's stream up to the response to a ClientHello: the server accepts the ClientHello, or
 * requests a second ClientHello. The result does not depend on the division of the stream into chunks.
 */
export class AnswerReader {
  readonly #records = new RecordReader({ limit: LIMIT, longest: MAX_SERVER_RECORD });
  readonly #messages = new MessageReader(LIMIT);

  push(chunk: Uint8Array): void {
    this.#records.push(chunk);
  }

  /**
   * Returns the next response of the server; null if more bytes are needed. After `hello` or `not_tls`, no
   * other response follows.
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
      // Alerts and ChangeCipherSpec records are skipped. After an alert, the server closes the connection or
      // continues the handshake.
      const isPassed = piece.type === CONTENT.alert || piece.type === CONTENT.changeCipherSpec;
      if (!isPassed || !this.#messages.isBetween) return { kind: 'not_tls' };
    }
  }
}
