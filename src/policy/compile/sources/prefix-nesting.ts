import { addressAfter, lastAddress, mask, ofFamily } from '#addresses/ip-address.js';
import { f64At, itemAt, u32At } from '#arrays/read.js';
import { addressKey } from '#contracts/policy/address-words.js';
import type { Family, Prefix } from '#contracts/policy/policy-model.js';
import { classStarts } from './class-numbers.js';

/**
 * Distinct prefixes of one family, sorted so that each prefix precedes the prefixes that it contains. The
 * number of a prefix is its index in this order.
 *
 * A point stands for the addresses that the same prefixes contain. For IPv4, each address is a point. For
 * IPv6, a point is the number of an address class: an interval between two neighbouring bounds of the
 * prefixes.
 */
export type PrefixOrder = {
  /** The first and last point of each prefix. */
  readonly first: Uint32Array;
  readonly last: Uint32Array;
  /** The number after the last point. */
  readonly end: number;
  /** The first address of each class; null for IPv4. */
  readonly classStarts: readonly bigint[] | null;
  readonly numberOf: (prefix: Prefix) => number;
};

export function prefixOrder(prefixes: readonly Prefix[], family: Family): PrefixOrder {
  return family === 'ipv4' ? ipv4Order(ofFamily(prefixes, 'ipv4')) : ipv6Order(ofFamily(prefixes, 'ipv6'));
}

/**
 * With fewer prefixes, `ipv4Order` does not store the number of prefixes before each block of addresses.
 */
const FEW = 4_096;

function ipv4Order(prefixes: readonly Prefix<number>[]): PrefixOrder {
  const sorted = new Float64Array(prefixes.length);
  for (let index = 0; index < prefixes.length; index++) sorted[index] = sortKey(itemAt(prefixes, index));
  sorted.sort();
  let count = 0;
  for (let index = 0; index < sorted.length; index++) {
    const key = f64At(sorted, index);
    if (count === 0 || sorted[count - 1] !== key) sorted[count++] = key;
  }
  const keys = sorted.subarray(0, count);
  const first = new Uint32Array(count);
  const last = new Uint32Array(count);
  for (let number = 0; number < count; number++) {
    const key = f64At(keys, number);
    const prefix = { address: Math.floor(key / 64), length: key % 64 };
    first[number] = prefix.address;
    last[number] = lastAddress(prefix);
  }
  const blocks = count < FEW ? undefined : blocksOf(first);
  const numberOf = (prefix: Prefix): number => ipv4Number(keys, blocks, prefix as Prefix<number>);
  return { first, last, end: 2 ** 32, classStarts: null, numberOf };
}

/**
 * `blocks`: for each block of 65,536 addresses, the number of prefixes that begin before the block; undefined
 * if there are fewer than `FEW` prefixes.
 */
function ipv4Number(keys: Float64Array, blocks: Uint32Array | undefined, prefix: Prefix<number>): number {
  const key = sortKey(prefix);
  let low = 0;
  let high = keys.length;
  if (blocks !== undefined) {
    const block = mask(prefix.address, prefix.length) >>> 16;
    low = u32At(blocks, block);
    high = u32At(blocks, block + 1);
  }
  while (high - low > 1) {
    const middle = (low + high) >>> 1;
    if (f64At(keys, middle) <= key) low = middle;
    else high = middle;
  }
  return low;
}

function blocksOf(first: Uint32Array): Uint32Array {
  const blocks = new Uint32Array(0x1_0001);
  for (let number = 0; number < first.length; number++) {
    const block = (u32At(first, number) >>> 16) + 1;
    blocks[block] = u32At(blocks, block) + 1;
  }
  for (let block = 0; block < 0x1_0000; block++) {
    blocks[block + 1] = u32At(blocks, block + 1) + u32At(blocks, block);
  }
  return blocks;
}

function sortKey(prefix: Prefix<number>): number {
  return mask(prefix.address, prefix.length) * 64 + prefix.length;
}

function ipv6Order(prefixes: readonly Prefix<bigint>[]): PrefixOrder {
  const keyOf = ({ address, length }: Prefix<bigint>): string => `${addressKey(address)}/${length}`;
  const distinct = [...new Map(prefixes.map((prefix) => [keyOf(prefix), prefix])).values()];
  const sorted = distinct.sort((one, other) =>
    one.address === other.address ? one.length - other.length : one.address < other.address ? -1 : 1,
  );
  const starts = classStarts(sorted);
  const classes = new Map(starts.map((start, at) => [addressKey(start), at]));
  const end = starts.length;
  const first = new Uint32Array(sorted.length);
  const last = new Uint32Array(sorted.length);
  const numbers = new Map<string, number>();
  for (const [number, prefix] of sorted.entries()) {
    const after = addressAfter(prefix);
    first[number] = classes.get(addressKey(prefix.address)) as number;
    last[number] = (after === undefined ? end : (classes.get(addressKey(after)) as number)) - 1;
    numbers.set(keyOf(prefix), number);
  }
  const numberOf = (prefix: Prefix): number => numbers.get(keyOf(prefix as Prefix<bigint>)) ?? 0;
  return { first, last, end, classStarts: starts, numberOf };
}

/**
 * Encodes the number of a prefix and the number of one of its members, such as a rule, as one number. An
 * ascending sort of such numbers sorts by prefix, then by member.
 */
export function membership(prefix: number, member: number): number {
  return prefix * MEMBERS + member;
}

export const MEMBERS = 2 ** 26;

/** The callbacks of `walkNesting`. The walk visits points in ascending order. */
export type NestingVisitor = {
  /**
   * Called at the first point of a prefix that lies inside all open prefixes. `members` are the members of
   * this prefix, ascending. `walkNesting` reuses the array for the next call, so copy the members to keep
   * them.
   */
  open(members: readonly number[]): void;
  /** Called after the last point of the prefix that was opened last. */
  close(): void;
  /**
   * Called at the first point of an interval. All points up to the next call are in exactly the open
   * prefixes.
   */
  interval(start: number): void;
};

/**
 * Calls the visitor for each interval of points between the bounds of nested prefixes. `memberships`
 * contains results of `membership`, ascending.
 */
export function walkNesting(order: PrefixOrder, memberships: Float64Array, visitor: NestingVisitor): void {
  const ends: number[] = [];
  const members: number[] = [];
  let from = 0;
  for (let at = 0; at < memberships.length; ) {
    const prefix = Math.floor(f64At(memberships, at) / MEMBERS);
    members.length = 0;
    for (; at < memberships.length; at++) {
      const member = f64At(memberships, at) - prefix * MEMBERS;
      if (member >= MEMBERS) break;
      if (members.length === 0 || members[members.length - 1] !== member) members.push(member);
    }
    const first = u32At(order.first, prefix);
    from = closeBefore(first, ends, from, visitor);
    if (from < first) visitor.interval(from);
    from = first;
    visitor.open(members);
    ends.push(u32At(order.last, prefix));
  }
  from = closeBefore(order.end, ends, from, visitor);
  if (from < order.end) visitor.interval(from);
}

function closeBefore(point: number, ends: number[], from: number, visitor: NestingVisitor): number {
  let reached = from;
  while (ends.length > 0) {
    const end = itemAt(ends, ends.length - 1);
    if (end >= point) break;
    if (reached <= end) visitor.interval(reached);
    reached = end + 1;
    visitor.close();
    ends.pop();
  }
  return reached;
}
