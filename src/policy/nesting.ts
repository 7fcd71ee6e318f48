import type { Prefix } from './model.js';
import { firstAddress, lastAddress } from './prefix.js';

/** Distinct prefixes, each before those inside it; the number of a prefix is its place in that order. */
export type PrefixOrder = { readonly first: Uint32Array; readonly last: Uint32Array; readonly keys: Float64Array };

export function prefixOrder(prefixes: readonly Prefix[]): PrefixOrder {
  const sorted = Float64Array.from(prefixes, sortKey).sort();
  let count = 0;
  for (const key of sorted) if (count === 0 || sorted[count - 1] !== key) sorted[count++] = key;
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

/** Members of prefixes, so that sorting the numbers sorts by prefix, then by member. */
const MEMBERS = 2 ** 26;
export const MAX_MEMBERS = MEMBERS;

export function membership(prefix: number, member: number): number {
  return prefix * MEMBERS + member;
}

/** What `walkNesting` calls, in ascending order of addresses. */
export type NestingVisitor = {
  /** A prefix begins inside the one that is open; its members in ascending order. */
  open(members: readonly number[]): void;
  /** The innermost open prefix ends. */
  close(): void;
  /** From `start` on, and to the next call, the open prefixes are those that hold the addresses. */
  interval(start: number): void;
};

/** Walks the intervals into which prefixes that nest cut the addresses. `memberships` is sorted. */
export function walkNesting(order: PrefixOrder, memberships: Float64Array, visitor: NestingVisitor): void {
  const ends: number[] = [];
  let from = 0;
  const advance = (to: number): void => {
    if (to <= from) return;
    visitor.interval(from);
    from = to;
  };
  const closeBefore = (address: number): void => {
    for (let end = ends.at(-1); end !== undefined && end < address; end = ends.at(-1)) {
      advance(end + 1);
      visitor.close();
      ends.pop();
    }
  };
  for (let at = 0; at < memberships.length; ) {
    const prefix = Math.floor((memberships[at] as number) / MEMBERS);
    const members: number[] = [];
    for (; at < memberships.length; at++) {
      const member = (memberships[at] as number) - prefix * MEMBERS;
      if (member >= MEMBERS) break;
      if (members.at(-1) !== member) members.push(member);
    }
    const first = order.first[prefix] as number;
    closeBefore(first);
    advance(first);
    visitor.open(members);
    ends.push(order.last[prefix] as number);
  }
  closeBefore(2 ** 32);
  advance(2 ** 32);
}
