import type { HelloFacts, HelloFault } from '#policy/tls-facts.js';
import { readClientHello } from './client-hello.js';
import { MessageReader } from './message-reader.js';
import { CONTENT, HANDSHAKE } from './numbers.js';
import { RecordReader } from './record-reader.js';

/** Of the stream, headers of records included. */
const LIMIT = 65_536;
const LONGEST_RECORD = 16_384;

/**
 * Reads a client's first message out of a TCP stream, however it was split over segments and records. What it says depends only on the
 * bytes: each verdict falls at one certain byte.
 */
export class HelloReader {
  readonly #records = new RecordReader({ limit: LIMIT, longest: LONGEST_RECORD });
  readonly #messages = new MessageReader(LIMIT);
  #hasBegun = false;
  #facts: HelloFacts | null = null;

  /** All that was pushed, also what came behind the hello. A view, valid until the next push. */
  get bytes(): Uint8Array {
    return this.#records.bytes;
  }

  /** Null: more is needed. Once there are facts they stay. */
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
      if (piece.type !== CONTENT.handshake) return unreadable('malformed');
      if (!this.#hasBegun && piece.data[0] !== HANDSHAKE.clientHello) return unreadable('malformed');
      this.#hasBegun = true;
      this.#messages.push(piece.data);
      const message = this.#messages.next();
      if (message === null) continue;
      if (message === 'too_long') return unreadable('too_long');
      // RFC 8446, 4.1.2: a client waits for the answer to its hello.
      if (!piece.isLast || !this.#messages.isBetween) return unreadable('malformed');
      return readClientHello(message.body) ?? unreadable('malformed');
    }
  }
}

function unreadable(fault: HelloFault): HelloFacts {
  return { kind: 'unreadable', fault };
}
