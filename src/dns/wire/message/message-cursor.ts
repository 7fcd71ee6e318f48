import { itemAt, u8At } from '#arrays/read.js';
import { copyOf, u16 } from '#dns/wire/bytes.js';
import { HEADER_BYTES, LABEL_BYTES, NAME_BYTES } from '#dns/wire/dns-numbers.js';
import type { WireName } from '#dns/wire/name.js';

const HOPS = 127;
/**
 * The limit of the sum of name bytes and pointer hops that the cursor reads in one message; more is the fault
 * `name_work`. Without this limit, a message with many pointers could cost quadratic time.
 */
const NAME_WORK = 131_072;
const REMEMBERED = 8;

const scratch = new Uint8Array(NAME_BYTES);

/**
 * A read position in a DNS message. `fault` contains the first fault that a read found; empty if there is
 * none.
 */
export class MessageCursor {
  at = HEADER_BYTES;
  fault = '';
  readonly bytes: Uint8Array;
  #work = NAME_WORK;
  #count = 0;
  readonly #starts: number[] = [];
  readonly #hops: number[] = [];
  readonly #names: WireName[] = [];

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  fail(fault: string): null {
    if (this.fault === '') this.fault = fault;
    return null;
  }

  /**
   * Reads and decompresses the name at the cursor; the name must end before `end`. Returns null for a fault.
   * If the name is one pointer to a recently read name, returns the `Uint8Array` object of that name. A
   * compression pointer must point before the start of the name segment that contains the pointer, so
   * pointers cannot loop (RFC 9267, 2).
   */
  name(end: number, pointers: boolean): WireName | null {
    const { bytes } = this;
    const start = this.at;
    if (pointers && start + 1 < end && u8At(bytes, start) >= 0xc0) {
      const known = this.#known(u16(bytes, start) & 0x3fff);
      if (known !== null) return known;
    }
    let from = start;
    let segment = start;
    let limit = end;
    let next = -1;
    let first = start;
    let length = 0;
    let hops = 0;
    for (;;) {
      if (from >= limit) return this.fail('truncated');
      const byte = u8At(bytes, from);
      if (byte === 0) break;
      if (byte <= LABEL_BYTES) {
        const stop = from + 1 + byte;
        if (stop > limit) return this.fail('truncated');
        if (length + byte + 2 > NAME_BYTES) return this.fail('name_too_long');
        while (from < stop) scratch[length++] = u8At(bytes, from++);
        continue;
      }
      if (byte < 0xc0) return this.fail('label_type');
      if (!pointers) return this.fail('pointer_refused');
      if (from + 2 > limit) return this.fail('truncated');
      const target = u16(bytes, from) & 0x3fff;
      if (target < HEADER_BYTES) return this.fail('pointer_to_header');
      if (target >= segment) return this.fail('pointer_not_backwards');
      if (++hops > HOPS) return this.fail('pointer_hops');
      if (next < 0) next = from + 2;
      if (from === start) first = target;
      segment = from = target;
      limit = bytes.length;
    }
    scratch[length++] = 0;
    this.#work -= length + hops;
    if (this.#work < 0) return this.fail('name_work');
    this.at = next < 0 ? from + 1 : next;
    const name = copyOf(scratch, 0, length);
    this.#remember(first, first === start ? hops : hops - 1, name);
    return name;
  }

  #known(target: number): WireName | null {
    for (let index = this.#names.length - 1; index >= 0; index--) {
      if (this.#starts[index] !== target || itemAt(this.#hops, index) >= HOPS) continue;
      this.at += 2;
      return itemAt(this.#names, index);
    }
    return null;
  }

  #remember(start: number, hops: number, name: WireName): void {
    const index = this.#count++ % REMEMBERED;
    this.#starts[index] = start;
    this.#hops[index] = hops;
    this.#names[index] = name;
  }
}
