import { itemAt, u8At } from '#arrays/read.js';

const OCTETS: readonly Uint8Array[] = Array.from({ length: 256 }, (_, octet) => bytesOf(String(octet)));
const DOT = 0x2e;
const ZERO = 0x30;
const FIRST_BYTES = 64 * 1024;
/**
 * `put` reserves this many free bytes after the bytes that it appends. `byte`, `number` and `address` do not
 * check the buffer size and rely on these bytes.
 */
const ROOM = 64;

/**
 * Encodes a text in UTF-8. Each call allocates an array, so constant parts of messages are encoded once and
 * then reused.
 */
export function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text);
}

/**
 * Writes UTF-8 text into a reused buffer. With up to 100,000 messages per second, strings would create too
 * much work for the garbage collector.
 */
export class ByteWriter {
  bytes = new Uint8Array(FIRST_BYTES);
  length = 0;

  /** Appends bytes, and reserves `ROOM` bytes for the numbers and addresses that follow. */
  put(part: Uint8Array): void {
    this.#reserve(part.length + ROOM);
    this.bytes.set(part, this.length);
    this.length += part.length;
  }

  /** Appends a text that may contain non-ASCII characters, and reserves `ROOM` bytes after the text. */
  text(text: string): void {
    this.put(bytesOf(text));
  }

  byte(byte: number): void {
    this.bytes[this.length++] = byte;
  }

  /** Appends an integer from 0 to 2^53 in decimal. Requires a previous `put`, which reserves the bytes. */
  number(value: number): void {
    if (value < 10) {
      this.byte(ZERO + value);
      return;
    }
    let digits = 1;
    for (let rest = value; rest >= 10; rest = Math.floor(rest / 10)) digits++;
    let left = value;
    for (let at = this.length + digits - 1; at >= this.length; at--) {
      const next = Math.floor(left / 10);
      this.bytes[at] = ZERO + (left - next * 10);
      left = next;
    }
    this.length += digits;
  }

  /**
   * Appends an IPv4 address, given in host byte order, in dotted form. Requires a previous `put`, which
   * reserves the bytes.
   */
  address(address: number): void {
    for (let shift = 24; shift >= 0; shift -= 8) {
      const octet = itemAt(OCTETS, (address >>> shift) & 255);
      for (let digit = 0; digit < octet.length; digit++) this.bytes[this.length++] = u8At(octet, digit);
      if (shift > 0) this.bytes[this.length++] = DOT;
    }
  }

  #reserve(more: number): void {
    if (this.length + more <= this.bytes.length) return;
    const bytes = new Uint8Array(Math.max(2 * this.bytes.length, this.length + more));
    bytes.set(this.bytes.subarray(0, this.length));
    this.bytes = bytes;
  }
}
