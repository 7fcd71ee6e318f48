import { itemAt, u32At } from '#arrays/read.js';
import { sharedBytes, sharedWords } from '#arrays/shared-array.js';
import { textsOf } from '#arrays/texts.js';
import type { NameTables } from '#contracts/dns/dns-lookup-tables.js';
import type { HostnamePattern } from '#contracts/policy/policy-model.js';
import { NONE } from '#contracts/policy/program.js';
import { HASH_OF_END, hashWith, slotOf } from '#policy/model/names/name-hash.js';

const KIND = { exact: 0, suffix: 1, any: 2, regex: 3 } as const satisfies Record<HostnamePattern['kind'], number>;

/** The names of all patterns in DNS wire format, one after the other in `bytes`. Each name has a hash. */
export type NamePool = {
  readonly patterns: readonly HostnamePattern[];
  readonly kinds: Uint8Array;
  readonly hashes: Uint32Array;
  readonly bytes: Uint8Array;
  /**
   * Name `n` is the range `offsets[n]` … `offsets[n + 1] - 1` of `bytes`. The range is empty for `*` and for
   * a regular expression.
   */
  readonly offsets: Uint32Array;
};

export function namePool(patterns: readonly HostnamePattern[]): NamePool {
  const kinds = new Uint8Array(patterns.length);
  const hashes = new Uint32Array(patterns.length);
  const offsets = sharedWords(patterns.length + 1);
  let end = 0;
  for (let number = 0; number < patterns.length; number++) {
    const pattern = itemAt(patterns, number);
    kinds[number] = KIND[pattern.kind];
    end += wireLength(pattern);
    offsets[number + 1] = end;
  }
  const bytes = sharedBytes(end);
  for (let number = 0; number < patterns.length; number++) {
    const { kind, text } = itemAt(patterns, number);
    if (kind !== 'exact' && kind !== 'suffix') continue;
    hashes[number] = writeWire(text, kind === 'suffix' ? SUFFIX_MARK : 0, bytes, u32At(offsets, number + 1));
  }
  return { patterns, kinds, hashes, bytes, offsets };
}

/**
 * Computes the pool of `patterns` from the earlier pool `known`. Copies the names of equal patterns at the
 * beginning and end of both lists, and encodes only the names between them.
 */
export function namePoolAfter(known: NamePool, patterns: readonly HostnamePattern[]): NamePool {
  const before = known.patterns;
  const shorter = Math.min(before.length, patterns.length);
  let from = 0;
  while (from < shorter && isSame(before[from], patterns[from])) from++;
  if (from === before.length && from === patterns.length) return known;
  let tail = 0;
  while (tail < shorter - from && isSame(before.at(-1 - tail), patterns.at(-1 - tail))) tail++;
  const fresh = namePool(patterns.slice(from, patterns.length - tail));
  const to = before.length - tail;
  const [first, last] = [u32At(known.offsets, from), u32At(known.offsets, to)];
  const added = fresh.bytes.length;
  const bytes = sharedBytes(known.bytes.length - (last - first) + added);
  bytes.set(known.bytes.subarray(0, first));
  bytes.set(fresh.bytes, first);
  bytes.set(known.bytes.subarray(last), first + added);
  const offsets = sharedWords(patterns.length + 1);
  offsets.set(known.offsets.subarray(0, from));
  for (let at = 0; at < fresh.offsets.length; at++) offsets[from + at] = first + u32At(fresh.offsets, at);
  const shift = first + added - last;
  for (let at = to; at <= before.length; at++) {
    offsets[at + patterns.length - before.length] = u32At(known.offsets, at) + shift;
  }
  const kinds = new Uint8Array(patterns.length);
  const hashes = new Uint32Array(patterns.length);
  kinds.set(known.kinds.subarray(0, from));
  kinds.set(fresh.kinds, from);
  kinds.set(known.kinds.subarray(to), patterns.length - tail);
  hashes.set(known.hashes.subarray(0, from));
  hashes.set(fresh.hashes, from);
  hashes.set(known.hashes.subarray(to), patterns.length - tail);
  return { patterns, kinds, hashes, bytes, offsets };
}

const SUFFIX_MARK = '*.'.length;
/**
 * The number of bytes of a wire-format name beyond one byte for each character: the length byte of the first
 * label, and the zero byte of the root.
 */
const WIRE_EXTRA = 2;
const DOT = 0x2e;

function wireLength({ kind, text }: HostnamePattern): number {
  if (kind === 'exact') return text.length + WIRE_EXTRA;
  return kind === 'suffix' ? text.length - SUFFIX_MARK + WIRE_EXTRA : 0;
}

/**
 * Writes the characters of `text` from index `from` on to `bytes`, in DNS wire format, so that the name ends
 * before byte `end`. Returns the hash of the name.
 */
function writeWire(text: string, from: number, bytes: Uint8Array, end: number): number {
  let at = end - 1;
  let hash = hashWith(HASH_OF_END, 0);
  let length = 0;
  bytes[at] = 0;
  for (let index = text.length - 1; index >= from; index--) {
    const code = text.charCodeAt(index);
    const byte = code === DOT ? length : code;
    length = code === DOT ? 0 : length + 1;
    bytes[--at] = byte;
    hash = hashWith(hash, byte);
  }
  bytes[at - 1] = length;
  return hashWith(hash, length) >>> 0;
}

function isSame(one: HostnamePattern | undefined, other: HostnamePattern | undefined): boolean {
  return one === other || one?.text === other?.text;
}

export function nameTables({ patterns, kinds, hashes, bytes, offsets }: NamePool): NameTables {
  const counts = new Uint32Array(Object.keys(KIND).length);
  for (const kind of kinds) counts[kind] = u32At(counts, kind) + 1;
  const exact = slotsFor(u32At(counts, KIND.exact));
  const suffixes = slotsFor(u32At(counts, KIND.suffix));
  for (let number = 0; number < kinds.length; number++) {
    const kind = kinds[number];
    if (kind === KIND.exact) put(exact, u32At(hashes, number), number);
    else if (kind === KIND.suffix) put(suffixes, u32At(hashes, number), number);
  }
  return {
    wires: { bytes, offsets },
    exact,
    suffixes,
    any: kinds.indexOf(KIND.any) >>> 0,
    regexes: regexesOf(patterns, kinds, u32At(counts, KIND.regex)),
  };
}

/**
 * Creates an open-addressing hash table for `count` names. The names fill at most half of the slots, so each
 * search ends at a free slot.
 */
function slotsFor(count: number): Uint32Array {
  return sharedWords(2 * 2 ** Math.ceil(Math.log2(2 * (count + 1)))).fill(NONE);
}

function put(slots: Uint32Array, hash: number, number: number): void {
  const count = slots.length / 2;
  let slot = slotOf(hash, count);
  while (slots[2 * slot + 1] !== NONE) slot = (slot + 1) & (count - 1);
  slots[2 * slot] = hash;
  slots[2 * slot + 1] = number;
}

function regexesOf(patterns: readonly HostnamePattern[], kinds: Uint8Array, count: number): NameTables['regexes'] {
  const numbers = sharedWords(count);
  for (let at = 0, number = -1; at < count; at++) {
    number = kinds.indexOf(KIND.regex, number + 1);
    numbers[at] = number;
  }
  return { numbers, texts: textsOf(Array.from(numbers, (number) => itemAt(patterns, number).text)) };
}
