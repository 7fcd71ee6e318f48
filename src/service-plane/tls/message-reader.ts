import { GrowingBytes } from './growing-bytes.js';

const HEADER_BYTES = 4;

export type HandshakeMessage = { readonly type: number; readonly body: Uint8Array };

/**
 * Assembles TLS handshake messages from pieces of records. A returned message is a view, valid until the next
 * push.
 */
export class MessageReader {
  readonly #longest: number;
  readonly #held = new GrowingBytes();
  #source: Uint8Array = new Uint8Array(0);
  #at = 0;

  /** `longest`: the maximum length of a message body, in bytes. */
  constructor(longest: number) {
    this.#longest = longest;
  }

  /** True if all pushed bytes belong to messages that `next` has returned. */
  get isBetween(): boolean {
    return this.#at === this.#source.length;
  }

  push(piece: Uint8Array): void {
    if (this.isBetween) {
      this.#held.clear();
      this.#source = piece;
      this.#at = 0;
      return;
    }
    if (this.#held.length === 0) this.#held.append(this.#source);
    this.#held.append(piece);
    this.#source = this.#held.bytes;
  }

  /** Returns the next handshake message; null if more bytes are needed. */
  next(): HandshakeMessage | 'too_long' | null {
    const bytes = this.#source;
    const at = this.#at;
    const start = at + HEADER_BYTES;
    if (start > bytes.length) return null;
    const length = ((bytes[at + 1] as number) << 16) | ((bytes[at + 2] as number) << 8) | (bytes[at + 3] as number);
    if (length > this.#longest) return 'too_long';
    if (start + length > bytes.length) return null;
    this.#at = start + length;
    return { type: bytes[at] as number, body: bytes.subarray(start, this.#at) };
  }
}
