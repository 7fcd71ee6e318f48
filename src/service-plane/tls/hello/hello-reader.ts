import type { HelloFacts, HelloFault } from '#contracts/service-plane/tls-facts.js';
import { FactsReader } from '#service-plane/tls/facts-reader.js';
import { CONTENT, HANDSHAKE } from '#service-plane/tls/tls-numbers.js';
import { readClientHello } from './client-hello.js';

/**
 * The maximum number of stream bytes up to the end of the ClientHello, record headers included. After more
 * bytes, the ClientHello is unreadable (`too_long`).
 */
const LIMIT = 65_536;
const MAX_RECORD_LENGTH = 16_384;

/**
 * Types of records that may precede the second ClientHello: early data after the first ClientHello, a
 * ChangeCipherSpec for compatibility with middleboxes, and an alert.
 */
const BEFORE_SECOND: ReadonlySet<number> = new Set([CONTENT.changeCipherSpec, CONTENT.alert, CONTENT.applicationData]);

/**
 * Reads a ClientHello from a client's TCP stream. The division of the stream into segments and records
 * changes neither the result nor the byte after which the reader returns the result.
 */
export class HelloReader extends FactsReader<HelloFacts> {
  readonly #isSecond: boolean;
  #hasBegun = false;
  #body: Uint8Array = new Uint8Array(0);
  #skipped = 0;

  /**
   * With `second`, the stream begins after the first ClientHello, and contains the second ClientHello, sent
   * after a HelloRetryRequest.
   */
  constructor(which: 'first' | 'second' = 'first') {
    super({ limit: LIMIT, longest: MAX_RECORD_LENGTH });
    this.#isSecond = which === 'second';
  }

  /** The body of the ClientHello message; empty if no ClientHello could be read. */
  get body(): Uint8Array {
    return this.#body;
  }

  /**
   * The number of bytes from the start of the stream to the end of the ClientHello. If the ClientHello is
   * incomplete or unreadable: the number of bytes before the first record of the ClientHello.
   */
  get end(): number {
    return this.#body.length > 0 ? this.records.position : this.#skipped;
  }

  protected override read(): HelloFacts | null {
    for (;;) {
      const piece = this.records.next();
      if (piece === null) return null;
      if (typeof piece === 'string') return unreadable(piece);
      if (piece.type !== CONTENT.handshake) {
        if (!this.#isSecond || this.#hasBegun || !BEFORE_SECOND.has(piece.type)) return unreadable('malformed');
        if (piece.isLast) this.#skipped = this.records.position;
        continue;
      }
      if (!this.#hasBegun && piece.data[0] !== HANDSHAKE.clientHello) return unreadable('malformed');
      this.#hasBegun = true;
      this.messages.push(piece.data);
      const message = this.messages.next();
      if (message === null) continue;
      if (message === 'too_long') return unreadable('too_long');
      // RFC 8446, 4.1.2: a client must wait for the response to its ClientHello, so the record must end with
      // the ClientHello.
      if (!piece.isLast || !this.messages.isBetween) return unreadable('malformed');
      const facts = readClientHello(message.body);
      if (facts === null) return unreadable('malformed');
      this.#body = message.body;
      return facts;
    }
  }
}

function unreadable(fault: HelloFault): HelloFacts {
  return { kind: 'unreadable', fault };
}
