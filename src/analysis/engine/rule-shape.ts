import { f64At, itemAt, u32At } from '#arrays/read.js';
import type { Range, Rule } from '#contracts/policy/policy-model.js';
import { keyRanges } from '#policy/compile/rule-blocks/key-ranges.js';
import { mergedRanges } from '#policy/model/intervals.js';
import { type AddressSpace, KeptByList, mergedSpans, overlap, type Span } from './address-space.js';

/**
 * The flows that a rule matches by their destination, protocol and ports. `destinations` and `sourcePorts`
 * are null if they do not matter. `keys` are ranges of `portMapKey` values.
 */
export type Shape = {
  readonly destinations: readonly Span[] | null;
  readonly keys: readonly Range[];
  readonly sourcePorts: readonly Range[] | null;
};

export function shapeOf(rule: Rule, space: AddressSpace): Shape {
  const spans = mergedSpans(rule.destinations.map((prefix) => space.spanOf(prefix)));
  return {
    destinations: spans.length === 0 ? null : spans,
    keys: keyRanges(rule),
    sourcePorts: rule.sourcePorts.length === 0 ? null : mergedRanges(rule.sourcePorts),
  };
}

/** A set of flows, as a union of shapes. */
export class Window {
  /** The shapes with their bounds, by ascending first destination. */
  readonly #sorted: readonly { readonly shape: Shape; readonly hull: Hull }[];
  /** For each shape, the highest last destination of this shape and of all shapes before it. */
  readonly #highest: Float64Array;

  constructor(
    shapes: readonly Shape[],
    private readonly shapeOf: (rule: Rule) => Shape,
    private readonly space: AddressSpace,
  ) {
    this.#sorted = shapes
      .map((shape) => ({ shape, hull: hullOf(shape, space) }))
      .sort((left, right) => left.hull.low - right.hull.low);
    this.#highest = new Float64Array(shapes.length);
    let highest = Number.NEGATIVE_INFINITY;
    for (const [at, { hull }] of this.#sorted.entries()) {
      highest = Math.max(highest, hull.high);
      this.#highest[at] = highest;
    }
  }

  /** Returns the indexes of the rules that match at least one flow of the window. */
  rulesInside(rules: readonly Rule[]): number[] {
    const { low, high, firstKey, lastKey } = kept.of(rules, this.space);
    const found: number[] = [];
    for (let at = 0; at < rules.length; at++) {
      const first = f64At(low, at);
      const last = f64At(high, at);
      for (let own = this.#before(last) - 1; own >= 0 && f64At(this.#highest, own) >= first; own--) {
        const { hull, shape } = itemAt(this.#sorted, own);
        if (hull.high < first || hull.lastKey < u32At(firstKey, at) || hull.firstKey > u32At(lastKey, at)) continue;
        if (!touch(this.shapeOf(itemAt(rules, at)), shape)) continue;
        found.push(at);
        break;
      }
    }
    return found;
  }

  /** Returns the number of shapes whose first destination is not above `point`. */
  #before(point: number): number {
    let low = 0;
    let high = this.#sorted.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (itemAt(this.#sorted, middle).hull.low <= point) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function touch(one: Shape, other: Shape): boolean {
  return (
    overlapRanges(one.keys, other.keys) &&
    (one.sourcePorts === null || other.sourcePorts === null || overlapRanges(one.sourcePorts, other.sourcePorts)) &&
    (one.destinations === null || other.destinations === null || overlap(one.destinations, other.destinations))
  );
}

function overlapRanges(one: readonly Range[], other: readonly Range[]): boolean {
  let at = 0;
  for (const { low, high } of one) {
    while (at < other.length && itemAt(other, at).high < low) at++;
    const found = other[at];
    if (found === undefined) return false;
    if (found.low <= high) return true;
  }
  return false;
}

/** Bounds around a shape. Two shapes whose bounds do not overlap have no flow in common. */
type Hull = { readonly low: number; readonly high: number; readonly firstKey: number; readonly lastKey: number };

function hullOf({ destinations, keys }: Shape, space: AddressSpace): Hull {
  const first = destinations?.[0];
  const last = destinations?.at(-1);
  return {
    low: first === undefined ? 0 : space.approximate(first.start),
    high: space.approximate(last === undefined ? space.end : last.end),
    firstKey: keys[0]?.low ?? 0xffff_ffff,
    lastKey: keys.at(-1)?.high ?? 0,
  };
}

/** The bounds of all rules of a list, in arrays that can be searched fast. */
type Hulls = {
  readonly low: Float64Array;
  readonly high: Float64Array;
  readonly firstKey: Uint32Array;
  readonly lastKey: Uint32Array;
};

const kept = new KeptByList((rules: readonly Rule[], space) => hullsOf(rules, space));

function hullsOf(rules: readonly Rule[], space: AddressSpace): Hulls {
  const hulls: Hulls = {
    low: new Float64Array(rules.length),
    high: new Float64Array(rules.length),
    firstKey: new Uint32Array(rules.length),
    lastKey: new Uint32Array(rules.length),
  };
  for (let at = 0; at < rules.length; at++) {
    const hull = hullOf(shapeOf(itemAt(rules, at), space), space);
    hulls.low[at] = hull.low;
    hulls.high[at] = hull.high;
    hulls.firstKey[at] = hull.firstKey;
    hulls.lastKey[at] = hull.lastKey;
  }
  return hulls;
}
