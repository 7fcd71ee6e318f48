import { GrowingUint32Array } from '#arrays/growing-uint32-array.js';
import { u32At } from '#arrays/read.js';
import type { Range } from '#contracts/policy/policy-model.js';
import { SOURCE_PORT_MAP } from '#contracts/policy/program.js';
import { NO_MATCH } from '#contracts/policy/verdict-word.js';
import { Sequences } from '#policy/compile/sequences.js';
import type { Budget } from '#policy/model/budget.js';
import { mergedRanges } from '#policy/model/intervals.js';

/**
 * Builds the values of a port map that depend on the source port. A value is a rule number, `NO_MATCH`, or
 * `SOURCE_PORT_MAP` plus the number of a source-port map. If all source ports have the same value, this value
 * itself is used instead of a map.
 */
export class SourcePortMaps {
  readonly maps: Sequences;
  private readonly scratch = new GrowingUint32Array();

  constructor(private readonly budget: Budget) {
    this.maps = new Sequences(budget, 'source-port maps', 2);
  }

  /**
   * Returns the value of a port map at a key. `word` is a rule number. At source ports in `ranges`, the value
   * stands for this rule; at all other source ports, it stands for `NO_MATCH`.
   */
  of(ranges: readonly Range[], word: number): number {
    this.scratch.length = 0;
    for (const { low, high } of mergedRanges(ranges)) {
      this.add(low, word);
      if (high < 0xffff) this.add(high + 1, NO_MATCH);
    }
    return this.finish();
  }

  /**
   * Merges two values of a port map. At each source port, the result stands for the lower of the two rule
   * numbers.
   */
  lower(left: number, right: number): number {
    if (left < SOURCE_PORT_MAP && right < SOURCE_PORT_MAP) return left < right ? left : right;
    const { maps } = this;
    let a = left < SOURCE_PORT_MAP ? 0 : maps.start(left - SOURCE_PORT_MAP);
    let b = right < SOURCE_PORT_MAP ? 0 : maps.start(right - SOURCE_PORT_MAP);
    const aEnd = left < SOURCE_PORT_MAP ? 0 : maps.end(left - SOURCE_PORT_MAP);
    const bEnd = right < SOURCE_PORT_MAP ? 0 : maps.end(right - SOURCE_PORT_MAP);
    this.budget.steps(aEnd - a + bEnd - b);
    this.scratch.length = 0;
    let aValue = left;
    let bValue = right;
    while (a < aEnd || b < bEnd) {
      const cells = maps.cells.array;
      const aStart = a < aEnd ? u32At(cells, a) : Number.POSITIVE_INFINITY;
      const bStart = b < bEnd ? u32At(cells, b) : Number.POSITIVE_INFINITY;
      if (aStart <= bStart) {
        aValue = u32At(cells, a + 1);
        a += 2;
      }
      if (bStart <= aStart) {
        bValue = u32At(cells, b + 1);
        b += 2;
      }
      this.add(Math.min(aStart, bStart), Math.min(aValue, bValue));
    }
    return this.finish();
  }

  private add(start: number, value: number): void {
    const { scratch } = this;
    if (start > 0 && scratch.length === 0) this.add(0, NO_MATCH);
    if (scratch.length > 0 && scratch.array[scratch.length - 1] === value) return;
    scratch.push(start);
    scratch.push(value);
  }

  private finish(): number {
    const { array, length } = this.scratch;
    if (length === 2) return u32At(array, 1);
    return SOURCE_PORT_MAP + this.maps.intern(array, 0, length);
  }
}
