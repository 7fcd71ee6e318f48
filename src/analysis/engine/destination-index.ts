import { f64At, u32At } from '#arrays/read.js';
import type { Rule } from '#contracts/policy/policy-model.js';
import { type AddressSpace, spansIn } from './address-space.js';

/**
 * The rules of a list by their destinations: the spans of all rules, by ascending start, as a balanced search
 * tree without pointers. The root of the spans `from` … `to` - 1 is in their middle.
 */
export class DestinationIndex {
  readonly #low: Float64Array;
  readonly #high: Float64Array;
  readonly #rules: Uint32Array;
  /** For each span as a root, the highest end of all spans below it. */
  readonly #highest: Float64Array;
  readonly #withoutDestination: readonly number[];

  constructor(rules: readonly Rule[], space: AddressSpace) {
    const spans: { readonly low: number; readonly high: number; readonly rule: number }[] = [];
    const withoutDestination: number[] = [];
    for (const [rule, { destinations }] of rules.entries()) {
      if (destinations.length === 0) withoutDestination.push(rule);
      for (const { start, end } of spansIn(destinations, space))
        spans.push({ low: space.approximate(start), high: space.approximate(end), rule });
    }
    spans.sort((left, right) => left.low - right.low);
    this.#low = Float64Array.from(spans, ({ low }) => low);
    this.#high = Float64Array.from(spans, ({ high }) => high);
    this.#rules = Uint32Array.from(spans, ({ rule }) => rule);
    this.#highest = new Float64Array(spans.length);
    this.#withoutDestination = withoutDestination;
    this.#fill(0, spans.length);
  }

  /**
   * Returns the indexes of the rules, ascending, that may match an address from `low` to `high` of one of the
   * ranges, and for which `isInside` holds. The bounds are those of `AddressSpace.approximate`.
   */
  search(
    ranges: readonly { readonly low: number; readonly high: number }[],
    isInside: (rule: number) => boolean,
  ): number[] {
    const found = this.#withoutDestination.filter(isInside);
    const add = (rule: number): void => {
      if (isInside(rule)) found.push(rule);
    };
    for (const { low, high } of ranges) this.#search(0, this.#low.length, low, high, add);
    found.sort((left, right) => left - right);
    return found.filter((rule, at) => at === 0 || rule !== found[at - 1]);
  }

  #search(from: number, to: number, low: number, high: number, add: (rule: number) => void): void {
    if (from >= to) return;
    const middle = (from + to) >>> 1;
    if (f64At(this.#highest, middle) < low) return;
    this.#search(from, middle, low, high, add);
    if (f64At(this.#low, middle) > high) return;
    if (f64At(this.#high, middle) >= low) add(u32At(this.#rules, middle));
    this.#search(middle + 1, to, low, high, add);
  }

  #fill(from: number, to: number): number {
    if (from >= to) return Number.NEGATIVE_INFINITY;
    const middle = (from + to) >>> 1;
    const highest = Math.max(f64At(this.#high, middle), this.#fill(from, middle), this.#fill(middle + 1, to));
    this.#highest[middle] = highest;
    return highest;
  }
}
