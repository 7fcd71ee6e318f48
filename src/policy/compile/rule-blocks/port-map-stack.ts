import { GrowingUint32Array } from '#arrays/growing-uint32-array.js';
import { itemAt, u32At } from '#arrays/read.js';
import type { Range } from '#contracts/policy/policy-model.js';
import { NONE, SOURCE_PORT_MAP } from '#contracts/policy/program.js';
import { NO_MATCH } from '#contracts/policy/verdict-word.js';
import type { Sequences } from '#policy/compile/sequences.js';
import type { Budget } from '#policy/model/budget.js';
import type { SourcePortMaps } from './source-port-maps.js';

/**
 * The port map (protocol and port → value) of each rule, as pairs: a key, and the value from this key up to
 * the key of the next pair.
 */
export class RulePortMaps {
  readonly cells = new GrowingUint32Array(1 << 16);
  readonly offsets = new GrowingUint32Array();

  constructor(private readonly budget: Budget) {
    this.offsets.push(0);
  }

  clear(): void {
    this.cells.length = 0;
    this.offsets.length = 1;
  }

  /**
   * Adds the port map of the next rule: it has `value` at the keys in `ranges`, and `NO_MATCH` elsewhere.
   * `ranges` must be ascending, with a gap between neighbours.
   */
  add(ranges: readonly Range[], value: number): void {
    const { cells } = this;
    let next = 0;
    this.budget.entries('port maps', ranges.length);
    for (const { low, high } of ranges) {
      if (low > next) {
        cells.push(next);
        cells.push(NO_MATCH);
      }
      cells.push(low);
      cells.push(value);
      next = high + 1;
    }
    if (next <= LAST_KEY) {
      cells.push(next);
      cells.push(NO_MATCH);
    }
    this.offsets.push(cells.length);
  }
}

const LAST_KEY = 0xff_ffff;

/**
 * A stack of port maps under construction. The value at a key is the lowest number of the rules that match
 * the key. If this number depends on the source port, the value refers to a source-port map.
 */
export class PortMapStack {
  private readonly cells = new GrowingUint32Array(1 << 16);
  private readonly bottoms: number[] = [];

  constructor(
    private readonly rules: RulePortMaps,
    private readonly sourcePortMaps: SourcePortMaps,
    private readonly budget: Budget,
  ) {}

  clear(): void {
    this.bottoms.length = 0;
    this.cells.length = 0;
  }

  /**
   * Merges the port maps of the rules with the numbers `rules` into the port map on top of the stack, and
   * pushes the result. The previous top stays below the result.
   */
  pushInside(rules: readonly number[]): void {
    const outer = this.bottoms.length - 1;
    this.push(rules);
    if (outer >= 0) this.lower(outer, outer + 1);
  }

  /** Merges the port maps of the rules with the numbers `rules`, and pushes the result on the stack. */
  push(rules: readonly number[]): void {
    this.pushHalf(rules, 0, rules.length);
  }

  pop(): void {
    this.cells.length = this.bottoms.pop() ?? 0;
  }

  /**
   * Stores the port map on top of the stack in `portMaps` and returns its number. Returns `NONE` if the stack
   * is empty or the port map matches no key.
   */
  intern(portMaps: Sequences): number {
    const bottom = this.bottoms.at(-1);
    if (bottom === undefined) return NONE;
    const { array, length } = this.cells;
    if (length - bottom === 2 && array[bottom + 1] === NO_MATCH) return NONE;
    return portMaps.intern(array, bottom, length);
  }

  private pushHalf(rules: readonly number[], from: number, to: number): void {
    if (to - from > 1) {
      const middle = (from + to) >>> 1;
      this.pushHalf(rules, from, middle);
      this.pushHalf(rules, middle, to);
      this.lower(this.bottoms.length - 2, this.bottoms.length - 1);
      const merged = this.bottoms.at(-1) as number;
      const under = this.bottoms.at(-2) as number;
      this.cells.array.copyWithin(under, merged, this.cells.length);
      this.cells.length -= merged - under;
      this.bottoms.pop();
      return;
    }
    const rule = itemAt(rules, from);
    const { offsets, cells } = this.rules;
    this.bottoms.push(this.cells.length);
    this.cells.append(cells.array, u32At(offsets.array, rule), u32At(offsets.array, rule + 1));
  }

  /**
   * Merges the two port maps on top of the stack, and replaces the upper port map by the result. At each key,
   * the result has the lower of the two values.
   */
  private lower(left: number, right: number): void {
    const a0 = itemAt(this.bottoms, left);
    const b0 = itemAt(this.bottoms, right);
    const end = this.cells.length;
    this.budget.steps((end - a0) / 2);
    this.cells.reserve(end - a0);
    const cells = this.cells.array;
    let a = a0;
    let b = b0;
    let out = end;
    let aValue = NO_MATCH;
    let bValue = NO_MATCH;
    let last = NONE;
    while (a < b0 || b < end) {
      const aStart = a < b0 ? u32At(cells, a) : NONE;
      const bStart = b < end ? u32At(cells, b) : NONE;
      let start = aStart;
      if (aStart <= bStart) {
        aValue = u32At(cells, a + 1);
        a += 2;
      }
      if (bStart <= aStart) {
        start = bStart;
        bValue = u32At(cells, b + 1);
        b += 2;
      }
      let value = aValue < bValue ? aValue : bValue;
      if (aValue >= SOURCE_PORT_MAP || bValue >= SOURCE_PORT_MAP) value = this.sourcePortMaps.lower(aValue, bValue);
      if (value === last) continue;
      cells[out] = start;
      cells[out + 1] = value;
      out += 2;
      last = value;
    }
    cells.copyWithin(b0, end, out);
    this.cells.length = b0 + out - end;
  }
}
