import { f64At, itemAt, u32At } from '#arrays/read.js';
import { ICMP, icmpOf, type Range, type Rule } from '#contracts/policy/policy-model.js';
import { portMapKey } from '#contracts/policy/program.js';
import { keyRanges } from '#policy/compile/rule-blocks/key-ranges.js';
import { mergedRanges } from '#policy/model/intervals.js';
import { type AddressSpace, KeptByList, overlap, type Span, spansIn } from './address-space.js';
import { DestinationIndex } from './destination-index.js';

/**
 * The flows of one family that a rule matches by their destination, protocol and ports. `destinations` and
 * `sourcePorts` are null if they do not matter. `keys` are ranges of `portMapKey` values. A rule that has
 * only destinations of the other family has an empty list of destinations.
 */
export type Shape = {
  readonly destinations: readonly Span[] | null;
  readonly keys: readonly Range[];
  readonly sourcePorts: readonly Range[] | null;
};

export function shapeOf(rule: Rule, space: AddressSpace): Shape {
  return {
    destinations: rule.destinations.length === 0 ? null : spansIn(rule.destinations, space),
    keys: keysOf(rule, space),
    sourcePorts: rule.sourcePorts.length === 0 ? null : mergedRanges(rule.sourcePorts),
  };
}

/**
 * Returns the ranges of `portMapKey` values that a rule matches in one family. A packet with the ICMP
 * protocol of the other family is no ICMP message: its type and code are 0, and all keys of the protocol are
 * one flow.
 */
export function keysOf(rule: Rule, { family }: AddressSpace): readonly Range[] {
  const { icmpTypes, icmpCodes } = rule;
  const protocol = icmpOf(rule);
  if (icmpTypes.length + icmpCodes.length === 0 || protocol === ICMP[family]) return keyRanges(rule);
  const isMatched =
    keyRanges(rule).length > 0 && [icmpTypes, icmpCodes].every((list) => list.length === 0 || list.includes(0));
  return isMatched ? [{ low: portMapKey(protocol, 0), high: portMapKey(protocol, 0xffff) }] : [];
}

/** Whether a shape has a flow. */
export const hasFlows = ({ destinations, keys }: Pick<Shape, 'destinations' | 'keys'>): boolean =>
  destinations?.length !== 0 && keys.length > 0;

/** A set of flows, as a union of shapes. */
export class Window {
  /** The shapes with their bounds, by ascending first destination. */
  readonly #sorted: readonly { readonly shape: Shape; readonly hull: Hull }[];
  /** For each shape, the highest last destination of this shape and of all shapes before it. */
  readonly #highest: Float64Array;
  /** The bounds of the destinations of all shapes; null if a shape has every destination. */
  readonly #ranges: readonly Range[] | null;

  constructor(
    all: readonly Shape[],
    private readonly shapeOf: (rule: Rule) => Shape,
    private readonly space: AddressSpace,
  ) {
    const shapes = all.filter(hasFlows);
    this.#sorted = shapes
      .map((shape) => ({ shape, hull: hullOf(shape, space) }))
      .sort((left, right) => left.hull.low - right.hull.low);
    this.#highest = new Float64Array(shapes.length);
    let highest = Number.NEGATIVE_INFINITY;
    for (const [at, { hull }] of this.#sorted.entries()) {
      highest = Math.max(highest, hull.high);
      this.#highest[at] = highest;
    }
    const isEverywhere = shapes.some(({ destinations }) => destinations === null);
    this.#ranges = isEverywhere ? null : shapes.flatMap(({ destinations }) => rangesOf(destinations ?? [], space));
  }

  /**
   * Returns the indexes of the rules that match at least one flow of the window, ascending. `isWanted`:
   * whether the rule at an index is looked at.
   */
  rulesInside(rules: readonly Rule[], isWanted?: (at: number) => boolean): number[] {
    const bounds = kept.of(rules, this.space);
    const isInside = (at: number) => isWanted?.(at) !== false && this.#isInside(rules, at, bounds);
    const near = this.#ranges === null ? null : bounds.near(this.#ranges, isInside);
    if (near !== null) return near;
    const found: number[] = [];
    for (let at = 0; at < rules.length; at++) if (isInside(at)) found.push(at);
    return found;
  }

  #isInside(rules: readonly Rule[], at: number, { low, high, firstKey, lastKey }: Bounds): boolean {
    const first = f64At(low, at);
    for (let own = this.#before(f64At(high, at)) - 1; own >= 0 && f64At(this.#highest, own) >= first; own--) {
      const { hull, shape } = itemAt(this.#sorted, own);
      if (hull.high < first || hull.lastKey < u32At(firstKey, at) || hull.firstKey > u32At(lastKey, at)) continue;
      if (touch(this.shapeOf(itemAt(rules, at)), shape)) return true;
    }
    return false;
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

/** The bounds of a rule without flows: they overlap with no others. */
const NOTHING: Hull = {
  low: Number.POSITIVE_INFINITY,
  high: Number.NEGATIVE_INFINITY,
  firstKey: 0xffff_ffff,
  lastKey: 0,
};

function hullOf(shape: Shape, space: AddressSpace): Hull {
  if (!hasFlows(shape)) return NOTHING;
  const { destinations, keys } = shape;
  return {
    low: destinations === null ? 0 : space.approximate(itemAt(destinations, 0).start),
    high: space.approximate(destinations === null ? space.end : itemAt(destinations, destinations.length - 1).end),
    firstKey: itemAt(keys, 0).low,
    lastKey: itemAt(keys, keys.length - 1).high,
  };
}

const rangesOf = (spans: readonly Span[], space: AddressSpace): Range[] =>
  spans.map(({ start, end }) => ({ low: space.approximate(start), high: space.approximate(end) }));

/** A list with fewer rules than this has no index: it is searched as a whole. */
const INDEXED = 256;

/** The bounds of all rules of a list, in arrays that can be searched fast. */
class Bounds {
  readonly low: Float64Array;
  readonly high: Float64Array;
  readonly firstKey: Uint32Array;
  readonly lastKey: Uint32Array;
  #searches = 0;
  #index: DestinationIndex | undefined;

  constructor(
    private readonly rules: readonly Rule[],
    private readonly space: AddressSpace,
  ) {
    this.low = new Float64Array(rules.length);
    this.high = new Float64Array(rules.length);
    this.firstKey = new Uint32Array(rules.length);
    this.lastKey = new Uint32Array(rules.length);
    for (let at = 0; at < rules.length; at++) {
      const hull = hullOf(shapeOf(itemAt(rules, at), space), space);
      this.low[at] = hull.low;
      this.high[at] = hull.high;
      this.firstKey[at] = hull.firstKey;
      this.lastKey[at] = hull.lastKey;
    }
  }

  /**
   * Returns the indexes of the rules near the ranges for which `isInside` holds, see `DestinationIndex`; null
   * if the list has no index. A long list gets one at the second search: making it takes longer than one
   * search.
   */
  near(ranges: readonly Range[], isInside: (at: number) => boolean): number[] | null {
    if (this.rules.length < INDEXED || ++this.#searches < 2) return null;
    this.#index ??= new DestinationIndex(this.rules, this.space);
    return this.#index.search(ranges, isInside);
  }
}

const kept = new KeptByList((rules: readonly Rule[], space) => new Bounds(rules, space));
