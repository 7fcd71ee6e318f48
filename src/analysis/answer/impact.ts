import type { AddressSpace } from '#analysis/engine/address-space.js';
import type { Compared, Region } from '#analysis/engine/comparison.js';
import type { Atom } from '#analysis/engine/conditions.js';
import type { Decider, DeciderFinder } from '#analysis/engine/decider.js';
import { type Change, passes } from '#analysis/engine/decision-lists.js';
import { bySources, RegionIndex } from '#analysis/engine/region-index.js';
import { KEYS, PORTS } from '#analysis/engine/rule-diagrams.js';
import { f64At, itemAt, u16At, u32At } from '#arrays/read.js';
import type { DiffCause, DiffEffect } from '#contracts/analysis/diff-effect.js';
import type { ImpactCount, ImpactFlow, PolicyImpact } from '#contracts/analysis/policy-impact.js';
import { seenFlow, seenTime } from '#contracts/analysis/seen-flow.js';
import { FOLDED, FOLDED_BITS, type SeenFlows, UNKNOWN_NAMES } from '#contracts/analysis/seen-flows.js';
import { PORT_PROTOCOLS } from '#contracts/policy/policy-model.js';
import { matchesHostname } from '#policy/model/names/hostname.js';
import { deciderName } from './decider-name.js';
import { impactSummary } from './impact-summary.js';

export type ImpactOptions = {
  readonly space: AddressSpace;
  /** The maximum number of flows in the answer. */
  readonly limit: number;
  readonly node: string;
  readonly effectOf: (change: Change) => DiffEffect;
  readonly causeOf: (change: Change) => DiffCause | null;
};

/** The effect of a change on one seen flow. `change`: one of the changes of its region, with this effect. */
type Affected = { readonly effect: DiffEffect; readonly depends: boolean; readonly change: Change };
type Finders = readonly [before: DeciderFinder, after: DeciderFinder];

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
const HOSTS = 2 ** (32 - FOLDED_BITS);

/** Returns which of the seen flows a change affects. */
export function policyImpact(
  compared: Compared,
  finders: Finders,
  seen: SeenFlows,
  options: ImpactOptions,
): PolicyImpact {
  const rows = new AffectedRows(compared, finders, seen, options);
  const effects = rows.effects();
  const flows = rows.first(options.limit).map((row) => rows.flow(row));
  return {
    node: options.node,
    summary: impactSummary(effects, seen.coverage, compared.left.length === 0),
    coverage: seenTime(seen),
    effects,
    flows,
    flows_omitted: rows.count - flows.length,
  };
}

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };

/** Finds the rows of the seen flows that a change affects. */
class AffectedRows {
  count = 0;
  /** The effect of the change on each row; undefined if it has none. */
  readonly #affected: (Affected | undefined)[];
  readonly #work = { steps: 0 };
  readonly #plans = new Map<Region, Plan>();

  constructor(
    private readonly compared: Compared,
    private readonly finders: Finders,
    private readonly seen: SeenFlows,
    private readonly options: ImpactOptions,
  ) {
    const { regions } = compared;
    this.#affected = new Array<Affected | undefined>(seen.count).fill(undefined);
    for (const region of regions) this.#plans.set(region, this.#planOf(region));
    const rows = rowsBySource(seen);
    for (const some of bySources(regions, options.space)) this.#look(new RegionIndex(some, options.space), rows);
  }

  effects(): PolicyImpact['effects'] {
    const counts = (): Mutable<ImpactCount> => ({ flows: 0, connections: 0 });
    const effects = Object.fromEntries(ORDER.map((effect) => [effect, { ...counts(), depends: counts() }])) as Record<
      DiffEffect,
      Mutable<ImpactCount> & { readonly depends: Mutable<ImpactCount> }
    >;
    for (const row of this.#rows()) {
      const affected = this.#affected[row] as Affected;
      const of = effects[affected.effect];
      const count = affected.depends ? of.depends : of;
      count.flows++;
      count.connections += this.#timesOf(row);
    }
    return effects;
  }

  #look(index: RegionIndex, rows: Uint32Array): void {
    const { sources, destinations, services } = this.seen;
    let row = 0;
    let isFolded = false;
    const visit = (region: Region): void => this.#note(row, this.#affectedBy(region, row, isFolded));
    let source = -1;
    let isSelected = false;
    for (let at = firstFrom(rows, sources, index.firstSource); at < rows.length; at++) {
      row = u32At(rows, at);
      if (u32At(sources, row) !== source) {
        source = u32At(sources, row);
        if (source > index.lastSource) return;
        isSelected = index.select(source);
      }
      if (!isSelected) continue;
      const service = u32At(services, row);
      const destination = u32At(destinations, row);
      isFolded = service >= FOLDED;
      const key = isFolded ? service - FOLDED : service;
      const last = isFolded ? destination + HOSTS - 1 : destination;
      index.visit(destination, last, key, isFolded ? key + 0xffff : key, visit);
    }
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
    const { conditions } = this.compared;
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

  #affectedBy(region: Region, row: number, isFolded: boolean): Affected | null {
    const plan = this.#plans.get(region) as Plan;
    const { first, certain, byNames } = plan;
    if (isFolded || (certain !== null && !this.#hasEveryPort(plan, row))) return first;
    if (certain !== null) return certain;
    const nameList = u16At(this.seen.nameLists, row);
    if (this.#work.steps > STEPS) {
      const found = byNames.get(nameList);
      if (found !== undefined) return found;
    }
    const affected = this.#decided(region, plan, row, nameList);
    byNames.set(nameList, affected);
    return affected;
  }

  #hasEveryPort({ hasEveryPort }: Plan, row: number): boolean {
    return hasEveryPort || !PORT_PROTOCOLS.includes(u32At(this.seen.services, row) >>> 16);
  }

  #decided(region: Region, plan: Plan, row: number, nameList: number): Affected | null {
    const holds = this.#holdsFor(nameList);
    const { conditions } = this.compared;
    const possible = region.changes.filter(
      ({ condition }) => !conditions.describe(condition).some((atom) => holds(atom) === false),
    );
    const first = this.#first(possible);
    if (first === null || this.#work.steps > STEPS || !this.#hasEveryPort(plan, row)) return first;
    const flow = this.#flowOf(row);
    const [before, after] = this.finders.map((finder) => finder.decideIfKnown(flow, holds, this.#work));
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

  #flowOf(row: number) {
    const { sources, destinations, services } = this.seen;
    const key = u32At(services, row) & (KEYS - 1);
    return {
      source: u32At(sources, row),
      destination: u32At(destinations, row),
      key,
      sourcePort: PORT_PROTOCOLS.includes(key >>> 16) ? SOURCE_PORT : 0,
    };
  }

  /** Returns the affected rows. */
  #rows(): number[] {
    const rows: number[] = [];
    for (let row = 0; row < this.seen.count; row++) if (this.#affected[row] !== undefined) rows.push(row);
    return rows;
  }

  /** Returns the rows that come first: by effect, certain ones first, then by how often they were seen. */
  first(limit: number): number[] {
    const rows = this.#rows();
    const places = Float64Array.from(rows, (row) => this.#placeOf(row));
    const last = limit >= rows.length ? Number.POSITIVE_INFINITY : f64At(places.slice().sort(), Math.max(0, limit - 1));
    return rows
      .filter((_, at) => f64At(places, at) <= last)
      .sort((one, other) => this.#placeOf(one) - this.#placeOf(other))
      .slice(0, limit);
  }

  #placeOf(row: number): number {
    const { effect, depends } = this.#affected[row] as Affected;
    return (2 * ORDER.indexOf(effect) + (depends ? 1 : 0)) * 2 ** 32 + (2 ** 32 - 1 - this.#timesOf(row));
  }

  /** How often a flow passed; how often it was denied if the change opens it. */
  #timesOf(row: number): number {
    const opens = this.#affected[row]?.effect === 'opens';
    return u32At(opens ? this.seen.denied : this.seen.passed, row);
  }

  flow(row: number): ImpactFlow {
    const { effect, depends, change } = this.#affected[row] as Affected;
    const { seen, compared } = this;
    const { space } = this.options;
    const nameList = u16At(seen.nameLists, row);
    const { conditions } = compared;
    const holds = this.#holdsFor(nameList);
    const named = conditions.all().flatMap((atom, number) => (holds(atom) === true ? [number] : []));
    const holding = conditions.closure([...conditions.atomsOf(change.condition), ...named]) ?? new Set<number>();
    const [before, after] = this.finders.map((finder) => deciderName(finder.decide(this.#flowOf(row), holding)));
    return {
      effect,
      depends,
      ...seenFlow(seen, row, (address) => space.format(address)),
      before: before as ImpactFlow['before'],
      after: after as ImpactFlow['after'],
      cause: this.options.causeOf(change),
    };
  }
}

/** A source and a row together are a number of 53 bits. */
const MAX_ROWS = 2 ** 21;

/** Returns the rows in the order of their sources. */
function rowsBySource({ sources, count }: SeenFlows): Uint32Array {
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
