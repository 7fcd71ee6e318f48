import { GrowingBytes } from '#arrays/growing-bytes.js';
import { u8At } from '#arrays/read.js';

const HEADER_BYTES = 4;

export type HandshakeMessage = { readonly type: number; readonly body: Uint8Array };

/**
 * Assembles TLS handshake messages from pieces of records. A returned message is a view that is valid until
 * the next push.
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
    const length = (u8At(bytes, at + 1) << 16) | (u8At(bytes, at + 2) << 8) | u8At(bytes, at + 3);
    if (length > this.#longest) return 'too_long';
    if (start + length > bytes.length) return null;
    this.#at = start + length;
    return { type: u8At(bytes, at), body: bytes.subarray(start, this.#at) };
  }
}
