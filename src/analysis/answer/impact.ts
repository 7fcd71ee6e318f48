import { formatAddress } from '#addresses/ip-address.js';
import type { AddressSpace } from '#analysis/engine/address-space.js';
import type { Region } from '#analysis/engine/comparison.js';
import type { Atom, Conditions } from '#analysis/engine/conditions.js';
import type { Decider, DeciderFinder, Flow } from '#analysis/engine/decider.js';
import { type Change, passes } from '#analysis/engine/decision-lists.js';
import { bySources, RegionIndex } from '#analysis/engine/region-index.js';
import { KEYS, PORTS } from '#analysis/engine/rule-diagrams.js';
import { f64At, itemAt, u16At, u32At } from '#arrays/read.js';
import type { DiffCause, DiffEffect } from '#contracts/analysis/diff-effect.js';
import type { ImpactCount, ImpactFlow, PolicyImpact } from '#contracts/analysis/policy-impact.js';
import { seenFlow, seenTime } from '#contracts/analysis/seen-flow.js';
import {
  type FlowRows,
  FOLDED_DESTINATION,
  FOLDED_LENGTHS,
  FOLDED_SOURCE,
  type SeenFlows,
  UNKNOWN_NAMES,
} from '#contracts/analysis/seen-flows.js';
import { ADDRESS_WORDS, addressAt } from '#contracts/policy/address-words.js';
import { PORT_PROTOCOLS } from '#contracts/policy/policy-model.js';
import { matchesHostname } from '#policy/model/names/hostname.js';
import { deciderName } from './decider-name.js';
import { impactSummary } from './impact-summary.js';
import { type SeenPlaces, seenPlaces } from './seen-places.js';

/** The change of the flows of one family. */
export type FamilyChange = {
  readonly space: AddressSpace;
  readonly regions: readonly Region[];
  readonly conditions: Conditions;
  readonly finders: readonly [before: DeciderFinder, after: DeciderFinder];
};

export type ImpactOptions = {
  /** The maximum number of flows in the answer. */
  readonly limit: number;
  readonly node: string;
  /** Whether the comparison of the policies is complete. */
  readonly isComplete: boolean;
  readonly effectOf: (change: Change) => DiffEffect;
  readonly causeOf: (change: Change) => DiffCause | null;
};

/** The effect of a change on one seen flow. `change`: one of the changes of its region, with this effect. */
type Affected = { readonly effect: DiffEffect; readonly depends: boolean; readonly change: Change };

/**
 * The facts that all flows of a region share. `first`: the effect that comes first, if facts that are not
 * recorded hold. `certain`: the effect, if the region has no conditions. `byNames`: the effect on the flow
 * that was last decided with a list of names.
 */
type Plan = {
  readonly first: Affected | null;
  readonly certain: Affected | null;
  readonly hasEveryPort: boolean;
  readonly byNames: Map<number, Affected | null>;
};

/** The order of the effects in the answer. */
const ORDER: readonly DiffEffect[] = ['closes', 'opens', 'inspection', 'audit'];
/**
 * The limit of rules that are looked at to decide flows in regions with conditions. Above it, a flow has the
 * effect of another flow of the region with the same names, and if there is none, it depends.
 */
const STEPS = 200_000;
const SOURCE_PORT = 40_000;

/** Returns which of the seen flows a change affects. Flows of a family that is not given are not affected. */
export function policyImpact(families: readonly FamilyChange[], seen: SeenFlows, options: ImpactOptions): PolicyImpact {
  const work = { steps: 0 };
  const affected = families.map((family) => new AffectedRows(family, seen, options, work));
  const effects = Object.fromEntries(
    ORDER.map((effect) => [effect, { ...counts(), depends: counts() }]),
  ) as unknown as Effects;
  for (const rows of affected) rows.addTo(effects);
  const flows = affected
    .flatMap((rows) => rows.first(options.limit))
    .sort((one, other) => one.place - other.place)
    .slice(0, options.limit)
    .map(({ flow }) => flow());
  return {
    node: options.node,
    summary: impactSummary(effects, seen.coverage, options.isComplete),
    coverage: seenTime(seen),
    effects,
    flows,
    flows_omitted: affected.reduce((sum, { count }) => sum + count, 0) - flows.length,
  };
}

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };
type Effects = Readonly<Record<DiffEffect, Mutable<ImpactCount> & { readonly depends: Mutable<ImpactCount> }>>;
const counts = (): Mutable<ImpactCount> => ({ flows: 0, connections: 0 });

/** An affected row. Rows with a lower place come first. */
type Placed = { readonly place: number; readonly flow: () => ImpactFlow };

/** Finds the rows of one family that a change affects. */
class AffectedRows {
  count = 0;
  /** The effect of the change on each row; undefined if it has none. */
  readonly #affected: (Affected | undefined)[];
  readonly #plans = new Map<Region, Plan>();
  readonly #rows: FlowRows;
  readonly #places: SeenPlaces;
  /** The row that `#visit` looks for. */
  readonly #visited = { row: 0, isPart: false };
  /** The places of the sources and destinations of the rows. */
  readonly #sources: Uint32Array;
  readonly #destinations: Uint32Array;

  constructor(
    private readonly of: FamilyChange,
    private readonly seen: SeenFlows,
    private readonly options: ImpactOptions,
    private readonly work: { steps: number },
  ) {
    const { regions, space } = of;
    const rows = seen[space.family];
    this.#rows = rows;
    this.#affected = new Array<Affected | undefined>(rows.count).fill(undefined);
    this.#places = seenPlaces(regions, space);
    this.#sources = this.#places.firstOf(rows.sources, rows.count);
    this.#destinations = this.#places.firstOf(rows.destinations, rows.count);
    for (const region of regions) this.#plans.set(region, this.#planOf(region));
    const wide = this.#wideRows();
    const isWide = new Set(wide.map(({ row }) => row));
    const sorted = rowsBySource(this.#sources, rows.count).filter((row) => !isWide.has(row));
    for (const some of bySources(regions, this.#places.placeOf)) {
      const index = new RegionIndex(some, this.#places.placeOf);
      this.#look(index, sorted);
      for (const each of wide) this.#lookWide(index, each);
    }
  }

  /** Adds the number of flows with each effect, and how often they were seen. */
  addTo(effects: Effects): void {
    for (const row of this.#affectedRows()) {
      const affected = this.#affected[row] as Affected;
      const of = effects[affected.effect];
      const count = affected.depends ? of.depends : of;
      count.flows++;
      count.connections += this.#timesOf(row);
    }
  }

  /**
   * Returns the rows whose sources are at several places, with the last place. No bound of a region divides
   * the sources of any other row, so all of them change as the first one does.
   */
  #wideRows(): WideRow[] {
    const { sources, services, count } = this.#rows;
    const { source: length } = FOLDED_LENGTHS[this.of.space.family];
    const wide: WideRow[] = [];
    for (let row = 0; row < count; row++) {
      if ((u32At(services, row) & FOLDED_SOURCE) === 0) continue;
      const lastSource = this.#places.lastOf(sources, row, length);
      if (lastSource > u32At(this.#sources, row)) wide.push({ row, lastSource });
    }
    return wide;
  }

  #look(index: RegionIndex, rows: Uint32Array): void {
    let source = -1;
    let isSelected = false;
    for (let at = firstFrom(rows, this.#sources, index.firstSource); at < rows.length; at++) {
      const row = u32At(rows, at);
      if (u32At(this.#sources, row) !== source) {
        source = u32At(this.#sources, row);
        if (source > index.lastSource) return;
        isSelected = index.select(source, source);
      }
      if (isSelected) this.#visit(index, row, u32At(this.#rows.services, row) >= FOLDED_DESTINATION);
    }
  }

  #lookWide(index: RegionIndex, { row, lastSource }: WideRow): void {
    const source = u32At(this.#sources, row);
    if (source > index.lastSource || lastSource < index.firstSource) return;
    if (index.select(source, lastSource)) this.#visit(index, row, true);
  }

  readonly #found = (region: Region): void => {
    const { row, isPart } = this.#visited;
    this.#note(row, this.#affectedBy(region, row, isPart));
  };

  /** `isPart`: a region can have a part of the flows of the row. */
  #visit(index: RegionIndex, row: number, isPart: boolean): void {
    const service = u32At(this.#rows.services, row);
    const key = service & (KEYS - 1);
    const destination = u32At(this.#destinations, row);
    this.#visited.row = row;
    this.#visited.isPart = isPart;
    if (service < FOLDED_DESTINATION) {
      index.visit(destination, destination, key, key, this.#found);
      return;
    }
    const { destination: length } = FOLDED_LENGTHS[this.of.space.family];
    const last = this.#places.lastOf(this.#rows.destinations, row, length);
    index.visit(destination, last, key, key + 0xffff, this.#found);
  }

  /** Keeps the effect that comes first. A flow is in several regions only if its source port decides. */
  #note(row: number, affected: Affected | null): void {
    if (affected === null) return;
    const known = this.#affected[row];
    if (known === undefined) this.count++;
    else if (ORDER.indexOf(affected.effect) >= ORDER.indexOf(known.effect)) return;
    this.#affected[row] = affected;
  }

  /** Finds out what is the same for all flows of a region. */
  #planOf({ changes, sourcePorts }: Region): Plan {
    const { conditions } = this.of;
    const first = this.#first(changes);
    const isUnconditional = changes.every(
      ({ condition, unless }) => conditions.atomsOf(condition).length === 0 && unless.length === 0,
    );
    return {
      first,
      certain: isUnconditional && first !== null ? { ...first, depends: false } : null,
      hasEveryPort: sourcePorts.length === 2 && sourcePorts[0] === 0 && sourcePorts[1] === PORTS,
      byNames: new Map(),
    };
  }

  #affectedBy(region: Region, row: number, isPart: boolean): Affected | null {
    const plan = this.#plans.get(region) as Plan;
    const { first, certain, byNames } = plan;
    if (isPart || (certain !== null && !this.#hasEveryPort(plan, row))) return first;
    if (certain !== null) return certain;
    const nameList = u16At(this.#rows.nameLists, row);
    if (this.work.steps > STEPS) {
      const found = byNames.get(nameList);
      if (found !== undefined) return found;
    }
    const affected = this.#decided(region, plan, row, nameList);
    byNames.set(nameList, affected);
    return affected;
  }

  #hasEveryPort({ hasEveryPort }: Plan, row: number): boolean {
    return hasEveryPort || !PORT_PROTOCOLS.includes((u32At(this.#rows.services, row) >>> 16) & 255);
  }

  #decided(region: Region, plan: Plan, row: number, nameList: number): Affected | null {
    const holds = this.#holdsFor(nameList);
    const { conditions, finders } = this.of;
    const possible = region.changes.filter(
      ({ condition }) => !conditions.describe(condition).some((atom) => holds(atom) === false),
    );
    const first = this.#first(possible);
    if (first === null || this.work.steps > STEPS || !this.#hasEveryPort(plan, row)) return first;
    const flow = this.#flowOf(row);
    const [before, after] = finders.map((finder) => finder.decideIfKnown(flow, holds, this.work));
    if (before == null || after == null) return first;
    if (before.outcome === after.outcome) return null;
    const effect = effectOn(before, after);
    const change = possible.find((one) => this.options.effectOf(one) === effect) ?? first.change;
    return { effect, depends: false, change };
  }

  #holdsFor(nameList: number): (atom: Atom) => boolean | undefined {
    const names = itemAt(this.seen.names, nameList);
    return (atom) => {
      if (atom.kind !== 'name' || nameList === UNKNOWN_NAMES) return undefined;
      return names.some((name) => matchesHostname(atom.pattern, name));
    };
  }

  /** Returns the effect that comes first, as one that depends. */
  #first(changes: readonly Change[]): Affected | null {
    for (const effect of ORDER) {
      const change = changes.find((one) => this.options.effectOf(one) === effect);
      if (change !== undefined) return { effect, depends: true, change };
    }
    return null;
  }

  /** Returns the flow of a row from its first source. */
  #flowOf(row: number): Flow {
    const { sources, destinations, services } = this.#rows;
    const { family } = this.of.space;
    const key = u32At(services, row) & (KEYS - 1);
    return {
      source: addressAt(sources, row * ADDRESS_WORDS[family], family),
      destination: addressAt(destinations, row * ADDRESS_WORDS[family], family),
      key,
      sourcePort: PORT_PROTOCOLS.includes(key >>> 16) ? SOURCE_PORT : 0,
    };
  }

  #affectedRows(): number[] {
    const rows: number[] = [];
    for (let row = 0; row < this.#affected.length; row++) if (this.#affected[row] !== undefined) rows.push(row);
    return rows;
  }

  /** Returns the rows that come first: by effect, certain ones first, then by how often they were seen. */
  first(limit: number): Placed[] {
    const rows = this.#affectedRows();
    const places = Float64Array.from(rows, (row) => this.#placeOf(row));
    const last = limit >= rows.length ? Number.POSITIVE_INFINITY : f64At(places.slice().sort(), Math.max(0, limit - 1));
    return rows.flatMap((row, at) => {
      const place = f64At(places, at);
      return place <= last ? [{ place, flow: () => this.#impactFlow(row) }] : [];
    });
  }

  #placeOf(row: number): number {
    const { effect, depends } = this.#affected[row] as Affected;
    return (2 * ORDER.indexOf(effect) + (depends ? 1 : 0)) * 2 ** 32 + (2 ** 32 - 1 - this.#timesOf(row));
  }

  /** How often a flow passed; how often it was denied if the change opens it. */
  #timesOf(row: number): number {
    const opens = this.#affected[row]?.effect === 'opens';
    return u32At(opens ? this.#rows.denied : this.#rows.passed, row);
  }

  #impactFlow(row: number): ImpactFlow {
    const { effect, depends, change } = this.#affected[row] as Affected;
    const { conditions, finders, space } = this.of;
    const holds = this.#holdsFor(u16At(this.#rows.nameLists, row));
    const named = conditions.all().flatMap((atom, number) => (holds(atom) === true ? [number] : []));
    const holding = conditions.closure([...conditions.atomsOf(change.condition), ...named]) ?? new Set<number>();
    const [before, after] = finders.map((finder) => deciderName(finder.decide(this.#flowOf(row), holding)));
    return {
      effect,
      depends,
      ...seenFlow(this.seen, space.family, row, formatAddress),
      before: before as ImpactFlow['before'],
      after: after as ImpactFlow['after'],
      cause: this.options.causeOf(change),
    };
  }
}

/** A row whose sources are at several places. */
type WideRow = { readonly row: number; readonly lastSource: number };

/** A source and a row together are a number of 53 bits. */
const MAX_ROWS = 2 ** 21;

/** Returns the rows in the order of their sources. */
function rowsBySource(sources: Uint32Array, count: number): Uint32Array {
  const keys = new Float64Array(count);
  for (let row = 0; row < count; row++) keys[row] = u32At(sources, row) * MAX_ROWS + row;
  keys.sort();
  const rows = new Uint32Array(count);
  for (let at = 0; at < count; at++) rows[at] = f64At(keys, at) - Math.floor(f64At(keys, at) / MAX_ROWS) * MAX_ROWS;
  return rows;
}

/** Returns the place of the first of the ordered rows whose source is not below `source`. */
function firstFrom(rows: Uint32Array, sources: Uint32Array, source: number): number {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (u32At(sources, u32At(rows, middle)) < source) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The effect on a flow that the service plane does not inspect, before or after the change. */
function effectOn(before: Decider, after: Decider): DiffEffect {
  if (passes(before.outcome) === passes(after.outcome)) return 'audit';
  return passes(after.outcome) ? 'opens' : 'closes';
}
