import { GrowingUint32Array } from '#arrays/growing-uint32-array.js';
import { u32At } from '#arrays/read.js';
import { sharedWords } from '#arrays/shared-array.js';
import type { LookupTables } from '#contracts/dns/dns-lookup-tables.js';
import { NONE } from '#contracts/policy/program.js';

/** Collects, for each hostname pattern, the groups that decide DNS lookups by this pattern. */
export class LookupPatterns {
  private readonly numbers = new GrowingUint32Array(0);
  private readonly groups = new GrowingUint32Array(0);
  private readonly words = new GrowingUint32Array(0);

  /**
   * Adds the verdict word (rank and verdict) with which a group decides DNS lookups by a pattern. The caller
   * must add the groups in ascending order, and the verdict words of a group in ascending order.
   */
  add(number: number, group: number, word: number): void {
    this.numbers.push(number);
    this.groups.push(group);
    this.words.push(word);
  }

  /**
   * Returns the tables of the patterns with the numbers 0 … `count` - 1. If several rules of a group have the
   * same pattern, the tables contain only the verdict word of the first rule.
   */
  tables(count: number): LookupTables['patterns'] {
    const { first, offsets } = this.firsts(count);
    const total = u32At(offsets, count);
    const groups = sharedWords(total);
    const words = sharedWords(total);
    const next = offsets.slice();
    for (let at = 0; at < this.numbers.length; at++) {
      if (first[at] === 0) continue;
      const number = u32At(this.numbers.array, at);
      const place = u32At(next, number);
      groups[place] = u32At(this.groups.array, at);
      words[place] = u32At(this.words.array, at);
      next[number] = place + 1;
    }
    return { offsets: offsets, groups, words };
  }

  /**
   * `first`: for each call of `add`, 1 if no earlier call had the same pattern and group, else 0. `offsets`:
   * for each pattern, the index where its entries begin in the result.
   */
  private firsts(count: number): { readonly first: Uint8Array; readonly offsets: Uint32Array } {
    const first = new Uint8Array(this.numbers.length);
    const offsets = sharedWords(count + 1);
    const latest = new Uint32Array(count).fill(NONE);
    for (let at = 0; at < this.numbers.length; at++) {
      const number = u32At(this.numbers.array, at);
      const group = u32At(this.groups.array, at);
      if (latest[number] === group) continue;
      latest[number] = group;
      first[at] = 1;
      offsets[number + 1] = u32At(offsets, number + 1) + 1;
    }
    for (let number = 0; number < count; number++) {
      offsets[number + 1] = u32At(offsets, number + 1) + u32At(offsets, number);
    }
    return { first, offsets };
  }
}
