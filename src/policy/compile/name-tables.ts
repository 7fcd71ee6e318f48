import { itemAt, u32At } from '#arrays/read.js';
import { sharedWords } from '#arrays/shared-array.js';
import { textsOf } from '#arrays/texts.js';
import type { NameTables } from '#contracts/dns-lookup-tables.js';
import type { HostnamePattern } from '#contracts/policy-model.js';
import { NONE } from '#contracts/program.js';
import { slotOf } from '#policy/model/name-hash.js';
import { KIND, type NamePool } from './name-pool.js';

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
