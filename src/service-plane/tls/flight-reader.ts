import { FactsReader } from './facts-reader.js';
import type { HandshakeMessage } from './message-reader.js';
import { MAX_SERVER_RECORD, type RecordFault, type RecordPiece } from './record-reader.js';
import { readServerHello } from './server-hello.js';
import { Cursor } from './tls-cursor.js';
import { CONTENT, HANDSHAKE } from './tls-numbers.js';

/**
 * Returns copies of the certificates in a Certificate message of TLS 1.2 or earlier (RFC 5246, 7.4.2), leaf
 * first. Returns null if the message is malformed.
 */
function readCertificateMessage(body: Uint8Array): readonly Uint8Array[] | null {
  const message = new Cursor(body);
  const list = message.vector(3);
  if (!message.isSpent) return null;
  const ders: Uint8Array[] = [];
  while (list.left > 0) {
    const der = list.vector(3).rest();
    if (der.length === 0) return null;
    ders.push(der.slice());
  }
  return list.isSpent ? ders : null;
}

const LIMIT = 262_144;
const WARNING = 1;
const UNRECOGNIZED_NAME = 112;

/** The information about the server's certificates in the first flight of messages of a server. */
export type FlightFacts =
  /** The certificates in DER, leaf first; at least one certificate. */
  | { readonly kind: 'chain'; readonly ders: readonly Uint8Array[] }
  | { readonly kind: 'hidden'; readonly by: 'tls13' | 'resumption' }
  | { readonly kind: 'unreadable'; readonly fault: FlightFault };

export type FlightFault =
  | RecordFault
  /** The server sent a fatal alert, or a warning other than unrecognized_name. */
  | 'alert'
  /** The server selected a cipher suite that uses no certificate. */
  | 'anonymous';

/**
 * Reads the information about the server's certificates in the response to a ClientHello, without taking part
 * in the handshake.
 */
export class FlightReader extends FactsReader<FlightFacts> {
  #hasHello = false;
  #alertLevel = 0;

  constructor() {
    super({ limit: LIMIT, longest: MAX_SERVER_RECORD });
  }

  protected override read(): FlightFacts | null {
    for (;;) {
      const piece = this.records.next();
      if (piece === null) return null;
      const facts = typeof piece === 'string' ? unreadable(piece) : this.#piece(piece);
      if (facts !== null) return facts;
    }
  }

  #piece(piece: RecordPiece): FlightFacts | null {
    if (piece.type === CONTENT.handshake) return this.#handshake(piece.data);
    if (!this.messages.isBetween) return unreadable('malformed');
    if (piece.type === CONTENT.alert) return this.#alert(piece);
    if (piece.type !== CONTENT.changeCipherSpec || !this.#hasHello) return unreadable('malformed');
    const { data, isLast } = piece;
    return data.length === 1 && data[0] === 1 && isLast
      ? { kind: 'hidden', by: 'resumption' }
      : unreadable('malformed');
  }

  /**
   * Accepts the warning unrecognized_name only: a server that does not have the requested name may send this
   * warning and continue the handshake (RFC 6066, 3).
   */
  #alert({ data, isLast }: RecordPiece): FlightFacts | null {
    for (const byte of data) {
      if (this.#alertLevel === 0) {
        if (byte !== WARNING) return unreadable('alert');
        this.#alertLevel = byte;
      } else {
        if (byte !== UNRECOGNIZED_NAME) return unreadable('alert');
        this.#alertLevel = 0;
      }
    }
    return isLast && this.#alertLevel !== 0 ? unreadable('malformed') : null;
  }

  #handshake(data: Uint8Array): FlightFacts | null {
    this.messages.push(data);
    for (;;) {
      const message = this.messages.next();
      if (message === null) return null;
      const facts = message === 'too_long' ? unreadable('too_long') : this.#message(message);
      if (facts !== null) return facts;
    }
  }

  #message({ type, body }: HandshakeMessage): FlightFacts | null {
    if (!this.#hasHello) {
      const version = type === HANDSHAKE.serverHello ? readServerHello(body) : null;
      if (version === null) return unreadable('malformed');
      this.#hasHello = true;
      return version === 'tls13' ? { kind: 'hidden', by: 'tls13' } : null;
    }
    switch (type) {
      case HANDSHAKE.certificate: {
        const ders = readCertificateMessage(body);
        if (ders === null) return unreadable('malformed');
        return ders.length === 0 ? unreadable('anonymous') : { kind: 'chain', ders };
      }
      case HANDSHAKE.newSessionTicket:
        return { kind: 'hidden', by: 'resumption' };
      case HANDSHAKE.supplementalData:
        return null;
      case HANDSHAKE.serverKeyExchange:
      case HANDSHAKE.certificateRequest:
      case HANDSHAKE.serverHelloDone:
        return unreadable('anonymous');
      default:
        return unreadable('malformed');
    }
  }
}

function unreadable(fault: FlightFault): FlightFacts {
  return { kind: 'unreadable', fault };
}
