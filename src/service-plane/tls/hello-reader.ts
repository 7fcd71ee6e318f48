import type { HelloFacts, HelloFault } from '#contracts/tls-facts.js';
import { readClientHello } from './client-hello.js';
import { MessageReader } from './message-reader.js';
import { RecordReader } from './record-reader.js';
import { CONTENT, HANDSHAKE } from './tls-numbers.js';

/** The limit of the stream, record headers included. */
const LIMIT = 65_536;
const LONGEST_RECORD = 16_384;

/**
 * Records that may precede a second hello: the first hello's early data, a change of cipher for middleboxes,
 * an alert.
 */
const BEFORE_SECOND: ReadonlySet<number> = new Set([CONTENT.changeCipherSpec, CONTENT.alert, CONTENT.applicationData]);

/**
 * Reads a hello from a client's TCP stream, for any division into segments and records. The result depends
 * only on the bytes: the facts are always known at the same byte.
 */
export class HelloReader {
  readonly #records = new RecordReader({ limit: LIMIT, longest: LONGEST_RECORD });
  readonly #messages = new MessageReader(LIMIT);
  readonly #isSecond: boolean;
  #hasBegun = false;
  #facts: HelloFacts | null = null;
  #body: Uint8Array = new Uint8Array(0);
  #skipped = 0;

  /**
   * `second`: the stream begins after the first hello, and contains the hello that answers a
   * HelloRetryRequest.
   */
  constructor(which: 'first' | 'second' = 'first') {
    this.#isSecond = which === 'second';
  }

  /** The body of the hello's message; empty if no hello could be read. */
  get body(): Uint8Array {
    return this.#body;
  }

  /**
   * The number of bytes up to the end of the hello. If it is incomplete or unreadable: up to its first
   * record.
   */
  get end(): number {
    return this.#body.length > 0 ? this.#records.position : this.#skipped;
  }

  /** All pushed bytes, including those after the hello. A view, valid until the next push. */
  get bytes(): Uint8Array {
    return this.#records.bytes;
  }

  /** Returns null if more bytes are needed. The first facts are final. */
  push(chunk: Uint8Array): HelloFacts | null {
    this.#records.push(chunk);
    this.#facts ??= this.#read();
    return this.#facts;
  }

  #read(): HelloFacts | null {
    for (;;) {
      const piece = this.#records.next();
      if (piece === null) return null;
      if (typeof piece === 'string') return unreadable(piece);
      if (piece.type !== CONTENT.handshake) {
        if (!this.#isSecond || this.#hasBegun || !BEFORE_SECOND.has(piece.type)) return unreadable('malformed');
        if (piece.isLast) this.#skipped = this.#records.position;
        continue;
      }
      if (!this.#hasBegun && piece.data[0] !== HANDSHAKE.clientHello) return unreadable('malformed');
      this.#hasBegun = true;
      this.#messages.push(piece.data);
      const message = this.#messages.next();
      if (message === null) continue;
      if (message === 'too_long') return unreadable('too_long');
      // RFC 8446, 4.1.2: a client must wait for the answer to its hello, so nothing may follow it.
      if (!piece.isLast || !this.#messages.isBetween) return unreadable('malformed');
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
