import { u8At } from '#arrays/read.js';

/**
 * A read position in a byte array. A read beyond the end returns 0 or no bytes, and sets `hasOverrun`, which
 * then stays true.
 */
export class Cursor {
  #hasOverrun = false;

  constructor(
    readonly bytes: Uint8Array,
    private at = 0,
    private readonly end = bytes.length,
  ) {}

  get left(): number {
    return this.end - this.at;
  }

  get hasOverrun(): boolean {
    return this.#hasOverrun;
  }

  /** True if all bytes were read, and no read went beyond the end. */
  get isSpent(): boolean {
    return this.at === this.end && !this.#hasOverrun;
  }

  number(width: 1 | 2 | 3): number {
    const from = this.#advance(width);
    if (from < 0) return 0;
    let value = 0;
    for (let at = from; at < this.at; at++) value = (value << 8) | u8At(this.bytes, at);
    return value;
  }

  /** Reads a length prefix of `width` bytes, and returns a cursor for that many following bytes. */
  vector(width: 1 | 2 | 3): Cursor {
    const length = this.number(width);
    const from = this.#advance(length);
    return from < 0 ? new Cursor(this.bytes, this.at, this.at) : new Cursor(this.bytes, from, this.at);
  }

  skip(count: number): void {
    this.#advance(count);
  }

  /** Returns a view of the remaining bytes, and moves the read position to the end. */
  rest(): Uint8Array {
    const from = this.at;
    this.at = this.end;
    return this.bytes.subarray(from, this.end);
  }

  /**
   * Moves the read position by `count` bytes, and returns the former position; -1 if there are fewer bytes.
   */
  #advance(count: number): number {
    const from = this.at;
    if (count > this.end - from) {
      this.#hasOverrun = true;
      this.at = this.end;
      return -1;
    }
    this.at = from + count;
    return from;
  }
}

/**
 * Reads the extensions at the end of a ClientHello or ServerHello. The keys of the result are extension
 * types. Returns null if a type is repeated (RFC 8446, 4.2), or if the extensions do not end exactly at the
 * end of the message.
 */
export function readExtensions(hello: Cursor): ReadonlyMap<number, Cursor> | null {
  const extensions = new Map<number, Cursor>();
  if (hello.left === 0) return hello.isSpent ? extensions : null;
  const block = hello.vector(2);
  if (!hello.isSpent) return null;
  while (block.left > 0) {
    const type = block.number(2);
    const data = block.vector(2);
    if (block.hasOverrun || extensions.has(type)) return null;
    extensions.set(type, data);
  }
  return extensions;
}
