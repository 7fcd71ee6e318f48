import type { Prefix } from './model.js';
import { firstAddress, lastAddress } from './prefix.js';

/** Distinct prefixes, each before those inside it; the number of a prefix is its place in that order. */
export type PrefixOrder = { readonly first: Uint32Array; readonly last: Uint32Array; readonly keys: Float64Array };

export function prefixOrder(prefixes: readonly Prefix[]): PrefixOrder {
  const sorted = new Float64Array(prefixes.length);
  for (let index = 0; index < prefixes.length; index++) sorted[index] = sortKey(prefixes[index] as Prefix);
  sorted.sort();
  let count = 0;
  for (let index = 0; index < sorted.length; index++) {
    const key = sorted[index] as number;
    if (count === 0 || sorted[count - 1] !== key) sorted[count++] = key;
  }
  const keys = sorted.slice(0, count);
  const first = new Uint32Array(count);
  const last = new Uint32Array(count);
  for (const [number, key] of keys.entries()) {
    const prefix = { address: Math.floor(key / 64), length: key % 64 };
    first[number] = prefix.address;
    last[number] = lastAddress(prefix);
  }
  return { first, last, keys };
}

export function prefixNumber({ keys }: PrefixOrder, prefix: Prefix): number {
  const key = sortKey(prefix);
  let low = 0;
  let high = keys.length;
  while (high - low > 1) {
    const middle = (low + high) >>> 1;
    if ((keys[middle] as number) <= key) low = middle;
    else high = middle;
  }
  return low;
}

function sortKey(prefix: Prefix): number {
  return firstAddress(prefix) * 64 + prefix.length;
}

/** A prefix together with one of its members, as a number: sorted, they are in order of prefix, then of member. */
export function membership(prefix: number, member: number): number {
  return prefix * MEMBERS + member;
}

export const MEMBERS = 2 ** 26;

/** What `walkNesting` calls, in ascending order of addresses. */
export type NestingVisitor = {
  /** A prefix begins inside the one that is open. Its members ascend; the array is used again afterwards. */
  open(members: readonly number[]): void;
  /** The innermost open prefix ends. */
  close(): void;
  /** From `start` on, and to the next call, the open prefixes are those that hold the addresses. */
  interval(start: number): void;
};

/** Walks the intervals into which prefixes that nest cut the addresses. `memberships` is sorted. */
export function walkNesting(order: PrefixOrder, memberships: Float64Array, visitor: NestingVisitor): void {
  const ends: number[] = [];
  const members: number[] = [];
  let from = 0;
  for (let at = 0; at < memberships.length; ) {
    const prefix = Math.floor((memberships[at] as number) / MEMBERS);
    members.length = 0;
    for (; at < memberships.length; at++) {
      const member = (memberships[at] as number) - prefix * MEMBERS;
      if (member >= MEMBERS) break;
      if (members.length === 0 || members[members.length - 1] !== member) members.push(member);
    }
    const first = order.first[prefix] as number;
    from = closeBefore(first, ends, from, visitor);
    if (from < first) visitor.interval(from);
    from = first;
    visitor.open(members);
    ends.push(order.last[prefix] as number);
  }
  from = closeBefore(ADDRESSES, ends, from, visitor);
  if (from < ADDRESSES) visitor.interval(from);
}

const ADDRESSES = 2 ** 32;

function closeBefore(address: number, ends: number[], from: number, visitor: NestingVisitor): number {
  let reached = from;
  while (ends.length > 0) {
    const end = ends[ends.length - 1] as number;
    if (end >= address) break;
    if (reached <= end) visitor.interval(reached);
    reached = end + 1;
    visitor.close();
    ends.pop();
  }
  return reached;
}
