import type { AddressSpace, Point } from '#analysis/engine/address-space.js';
import type { Region } from '#analysis/engine/comparison.js';
import type { PlaceOf } from '#analysis/engine/region-index.js';
import { u32At } from '#arrays/read.js';
import { ADDRESS_WORDS, type AddressKey, addressKey, compareWords, wordsOf } from '#contracts/policy/address-words.js';

/** The addresses of seen flows as places for a `RegionIndex`. A column has the words of addresses. */
export type SeenPlaces = {
  readonly placeOf: PlaceOf;
  /** Returns the place of the address of each row. */
  firstOf(column: Uint32Array, count: number): Uint32Array;
  /** Returns the place of the last address of a network that begins with the address of a row. */
  lastOf(column: Uint32Array, row: number, length: number): number;
};

export const seenPlaces = (regions: readonly Region[], { family }: AddressSpace): SeenPlaces =>
  family === 'ipv4' ? IPV4_PLACES : new BoundPlaces(regions);

/** An IPv4 address is its own place. */
const IPV4_PLACES: SeenPlaces = {
  placeOf: Number,
  firstOf: (column) => column,
  lastOf: (column, row, length) => u32At(column, row) + 2 ** (32 - length) - 1,
};

const WORDS = ADDRESS_WORDS.ipv6;

/**
 * An IPv6 address does not fit into an exact number. Its place is the number of the bounds that are not above
 * it.
 */
class BoundPlaces implements SeenPlaces {
  readonly #numbers: ReadonlyMap<AddressKey, number>;
  /** The words of the bounds, ascending. */
  readonly #bounds: Uint32Array;
  readonly #last = new Uint32Array(WORDS);

  constructor(regions: readonly Region[]) {
    const found = new Map<AddressKey, Point>();
    for (const { sources, destinations } of regions)
      for (const spans of [sources, destinations])
        for (const { start, end } of spans) found.set(addressKey(start), start).set(addressKey(end), end);
    const bounds = [...found.values()].sort((one, other) => (one < other ? -1 : 1));
    this.#numbers = new Map(bounds.map((bound, number) => [addressKey(bound), number + 1]));
    // The end of the last address is no address.
    const addresses = bounds.filter((bound) => bound < 1n << 128n);
    this.#bounds = new Uint32Array(addresses.length * WORDS);
    for (const [number, bound] of addresses.entries()) this.#bounds.set(wordsOf(bound), number * WORDS);
  }

  readonly placeOf: PlaceOf = (point) => {
    const place = this.#numbers.get(addressKey(point));
    if (place === undefined) throw new RangeError(`find the place of an address: ${point} is no bound of a region`);
    return place;
  };

  firstOf(column: Uint32Array, count: number): Uint32Array {
    const places = new Uint32Array(count);
    for (let row = 0; row < count; row++) places[row] = this.#placeAt(column, row * WORDS);
    return places;
  }

  lastOf(column: Uint32Array, row: number, length: number): number {
    for (let word = 0; word < WORDS; word++) {
      const hostBits = Math.min(32, Math.max(0, 32 * (word + 1) - length));
      this.#last[word] = u32At(column, row * WORDS + word) + 2 ** hostBits - 1;
    }
    return this.#placeAt(this.#last, 0);
  }

  #placeAt(words: Uint32Array, at: number): number {
    let low = 0;
    let high = this.#bounds.length / WORDS;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (compareWords(this.#bounds, middle * WORDS, words, at, WORDS) <= 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
