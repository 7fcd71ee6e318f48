import { formatAddress, ofFamily } from '#addresses/ip-address.js';
import { itemAt } from '#arrays/read.js';
import type { Family, Prefix } from '#contracts/policy/policy-model.js';

/** An address, or the number after the last address. */
export type Point = number | bigint;

/** The addresses from `start` up to `end`, which is excluded. */
export type Span = { readonly start: Point; readonly end: Point };

/** Addresses of one family, as ascending spans. */
export type FamilySpans = { readonly space: AddressSpace; readonly spans: readonly Span[] };

/**
 * The addresses of one family. The engine compares points with `<` only, and leaves all arithmetic to this
 * type, so it works for any width.
 */
export type AddressSpace = {
  readonly family: Family;
  /** The name of the family in texts. */
  readonly name: string;
  /** The width of an address in bits. */
  readonly bits: number;
  /** The number after the last address. */
  readonly end: Point;
  spanOf(prefix: Prefix): Span;
  /** Returns the number of addresses in a span. */
  sizeOf(span: Span): bigint;
  /** Returns the address `offset` places after `point`. */
  plus(point: Point, offset: number): Point;
  /**
   * Returns an approximation of an address as a number of at most 53 bits. A higher address never gets a
   * lower number.
   */
  approximate(point: Point): number;
  /** Returns the shortest list of networks in CIDR notation that contain exactly the addresses of a span. */
  networksOf(span: Span): string[];
  /** Addresses that documents use as examples (RFC 5737, RFC 3849). */
  readonly examples: readonly Point[];
  /** Returns the smallest network that contains a span. */
  networkAround(span: Span): Span;
  format(point: Point): string;
};

export const IPV4: AddressSpace = {
  family: 'ipv4',
  name: 'IPv4',
  bits: 32,
  end: 2 ** 32,
  spanOf: ({ address, length }) => ({ start: address, end: Number(address) + 2 ** (32 - length) }),
  sizeOf: ({ start, end }) => BigInt(end) - BigInt(start),
  plus: (point, offset) => Number(point) + offset,
  approximate: Number,
  networksOf: ({ start, end }) => networksOf(BigInt(start), BigInt(end), 32, (point) => formatAddress(Number(point))),
  networkAround({ start, end }) {
    let length = 32;
    const sizeOf = () => 2 ** (32 - length);
    const first = () => Math.floor(Number(start) / sizeOf()) * sizeOf();
    while (first() + sizeOf() < end) length--;
    return { start: first(), end: first() + sizeOf() };
  },
  format: (point) => formatAddress(Number(point)),
  examples: [0xc000_0201, 0xc633_6401, 0xcb00_7101],
};

/** The bits of an address that `approximate` of IPv6 leaves out: 53 of 129 bits fit into an exact number. */
const LEFT_OUT = 76n;

export const IPV6: AddressSpace = {
  family: 'ipv6',
  name: 'IPv6',
  bits: 128,
  end: 1n << 128n,
  spanOf: ({ address, length }) => ({ start: BigInt(address), end: BigInt(address) + (1n << BigInt(128 - length)) }),
  sizeOf: ({ start, end }) => BigInt(end) - BigInt(start),
  plus: (point, offset) => BigInt(point) + BigInt(offset),
  approximate: (point) => Number(BigInt(point) >> LEFT_OUT),
  networksOf: ({ start, end }) => networksOf(BigInt(start), BigInt(end), 128, formatAddress),
  networkAround({ start, end }) {
    let length = 128n;
    const first = () => (BigInt(start) >> (128n - length)) << (128n - length);
    while (first() + (1n << (128n - length)) < end) length--;
    return { start: first(), end: first() + (1n << (128n - length)) };
  },
  format: (point) => formatAddress(BigInt(point)),
  examples: [0x2001_0db8_0000_0000_0000_0000_0000_0001n, 0x2001_0db8_0000_0001_0000_0000_0000_0001n],
};

const IPV4_ALONE: readonly AddressSpace[] = [IPV4];
const BOTH: readonly AddressSpace[] = [IPV4, IPV6];

/** Returns the families that answers are about. `ipv6`: whether IPv6 policies are enforced. */
export const spacesOf = (ipv6: boolean): readonly AddressSpace[] => (ipv6 ? BOTH : IPV4_ALONE);

/** Returns all addresses of a family. */
export const everythingIn = (space: AddressSpace): Span => space.spanOf({ address: 0, length: 0 });

/** Divides the addresses from `start` up to `end` into the fewest networks of a family with `bits` bits. */
function networksOf(start: bigint, end: bigint, bits: number, format: (point: bigint) => string): string[] {
  const found: string[] = [];
  for (let from = start; from < end; ) {
    let length = bits;
    while (length > 0) {
      const size = 1n << BigInt(bits - length + 1);
      if (from % size !== 0n || from + size > end) break;
      length--;
    }
    found.push(`${format(from)}/${length}`);
    from += 1n << BigInt(bits - length);
  }
  return found;
}

/** Merges overlapping and adjacent spans. The result is ascending, and has gaps between neighbours. */
export function mergedSpans(spans: readonly Span[]): readonly Span[] {
  if (spans.length < 2) return spans;
  const merged: { start: Point; end: Point }[] = [];
  for (const { start, end } of [...spans].sort((left, right) => (left.start < right.start ? -1 : 1))) {
    const last = merged.at(-1);
    if (last === undefined || last.end < start) merged.push({ start, end });
    else if (last.end < end) last.end = end;
  }
  return merged;
}

/** Keeps results of `make` for lists of one address family. */
export class KeptByList<List extends object, Result> {
  readonly #kept = new WeakMap<AddressSpace, WeakMap<List, Result>>();

  constructor(private readonly make: (list: List, space: AddressSpace) => Result) {}

  of(list: List, space: AddressSpace): Result {
    let ofSpace = this.#kept.get(space);
    if (ofSpace === undefined) {
      ofSpace = new WeakMap();
      this.#kept.set(space, ofSpace);
    }
    let result = ofSpace.get(list);
    if (result === undefined) {
      result = this.make(list, space);
      ofSpace.set(list, result);
    }
    return result;
  }
}

/** Returns the merged spans of the prefixes of one family. */
export const spansIn = (prefixes: readonly Prefix[], space: AddressSpace): readonly Span[] =>
  mergedSpans(ofFamily(prefixes, space.family).map((prefix) => space.spanOf(prefix)));

const merged = new KeptByList(spansIn);

/** Returns the same as `spansIn`. Keeps the result for the next call with the same list. */
export const spansOf = (prefixes: readonly Prefix[], space: AddressSpace): readonly Span[] =>
  merged.of(prefixes, space);

/** Joins sets of addresses to one for each family that has some, in the order of `spaces`. */
export function joinedFamilies(sets: readonly FamilySpans[], spaces: readonly AddressSpace[]): readonly FamilySpans[] {
  return spaces
    .map((space) => ({
      space,
      spans: mergedSpans(sets.filter((set) => set.space === space).flatMap(({ spans }) => spans)),
    }))
    .filter(({ spans }) => spans.length > 0);
}

/** Whether two ascending lists of spans have an address in common. */
export function overlap(left: readonly Span[], right: readonly Span[]): boolean {
  let at = 0;
  for (const { start, end } of left) {
    while (at < right.length && (right[at] as Span).end <= start) at++;
    const other = right[at];
    if (other === undefined) return false;
    if (other.start < end) return true;
  }
  return false;
}

/** Returns the addresses that are in both ascending lists of spans. */
export function intersection(one: readonly Span[], other: readonly Span[]): Span[] {
  const found: Span[] = [];
  let at = 0;
  for (const { start, end } of one) {
    while (at < other.length && itemAt(other, at).end <= start) at++;
    for (let next = at; next < other.length && itemAt(other, next).start < end; next++) {
      const span = itemAt(other, next);
      found.push({ start: start < span.start ? span.start : start, end: end < span.end ? end : span.end });
    }
  }
  return found;
}
