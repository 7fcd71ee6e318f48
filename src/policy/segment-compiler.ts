import type { Budget } from './budget.js';
import { Cells } from './cells.js';
import { LeafStack, type RuleLeaves } from './leaf-stack.js';
import type { Policy, Prefix, Rule } from './model.js';
import { type NameLeaf, NameTable } from './name-table.js';
import {
  membership,
  type NestingVisitor,
  type PrefixOrder,
  prefixNumber,
  prefixOrder,
  walkNesting,
} from './nesting.js';
import { type IntervalPool, MAP, NONE, type Program, SLICE } from './program.js';
import { Sequences } from './sequences.js';
import type { Slices } from './slices.js';

/** What it takes to sort a member in, open its prefix and close it, measured in steps of a merge. */
const STEPS_OF_A_MEMBER = 16;

type Tables = Pick<Program, 'segments' | 'destinations' | 'leaves' | 'slices' | 'names' | 'nameLeaves'>;

/** Compiles segments, each a sequence of groups, into tables that they share. */
export class SegmentCompiler implements NestingVisitor {
  private readonly rules: readonly Rule[];
  /** Group → number of its first rule. */
  private readonly firstRules: Uint32Array;
  private readonly order: PrefixOrder;
  /** Rule → its destinations, as numbers of `order`; none where any destination will do. */
  private readonly prefixes = new Cells();
  private readonly firstPrefixes: Uint32Array;
  private readonly leaves: Sequences;
  private readonly stack: LeafStack;
  private readonly names = new NameTable();
  private readonly maps = new Cells();
  private readonly wildcards = new Cells();
  private readonly named = new Cells();
  private readonly offsets = new Cells();
  private readonly starts = new Cells();
  private readonly values = new Cells();
  private memberships = new Float64Array(1024);

  constructor(
    policy: Policy,
    ruleLeaves: RuleLeaves,
    private readonly slices: Slices,
    private readonly budget: Budget,
  ) {
    this.rules = policy.groups.flatMap(({ rules }) => rules);
    this.firstRules = new Uint32Array(policy.groups.length + 1);
    for (const [group, { rules }] of policy.groups.entries()) {
      this.firstRules[group + 1] = (this.firstRules[group] as number) + rules.length;
    }
    this.order = prefixOrder(this.rules.flatMap(prefixesOf));
    this.firstPrefixes = new Uint32Array(this.rules.length + 1);
    for (const [number, rule] of this.rules.entries()) {
      for (const prefix of prefixesOf(rule)) this.prefixes.push(prefixNumber(this.order, prefix));
      this.firstPrefixes[number + 1] = this.prefixes.length;
    }
    // Also those that no source reaches: what is granted to them stays while the policy has them (D12).
    for (const { hostname } of this.rules) if (hostname !== undefined) this.names.number(hostname);
    this.leaves = new Sequences(budget, 'leaves', 2);
    this.stack = new LeafStack(ruleLeaves, slices, budget);
    this.offsets.push(0);
  }

  /** The number of the segment of the groups `from` … `to`, or `NONE` where none of its rules can match anything. */
  compile(groups: Uint32Array, from: number, to: number): number {
    const anywhere: number[] = [];
    const named: number[] = [];
    let count = 0;
    for (let at = from; at < to; at++) {
      const group = groups[at] as number;
      const end = this.firstRules[group + 1] as number;
      for (let rule = this.firstRules[group] as number; rule < end; rule++) {
        if (this.rules[rule]?.hostname !== undefined) named.push(rule);
        else if (this.firstPrefixes[rule] === this.firstPrefixes[rule + 1]) anywhere.push(rule);
        else count = this.addMemberships(rule, count);
      }
    }
    this.budget.steps((count + anywhere.length + named.length) * STEPS_OF_A_MEMBER);
    const map = this.destinationMap(count);
    const wildcard = this.leafOf(anywhere);
    const names = this.nameLeaves(named);
    if (map === NONE && wildcard === NONE && names.length === 0) return NONE;
    const segment = this.maps.length;
    this.budget.entries('segments', 1);
    this.budget.entries('names', names.length);
    this.maps.push(map);
    this.wildcards.push(wildcard);
    this.named.push(names.length === 0 ? NONE : this.leafOf(named));
    this.names.add(segment, names);
    return segment;
  }

  open(members: readonly number[]): void {
    this.stack.pushInside(members);
  }

  close(): void {
    this.stack.pop();
  }

  interval(start: number): void {
    const { starts, values, offsets } = this;
    const leaf = this.stack.intern(this.leaves);
    const bottom = offsets.array[offsets.length - 1] as number;
    if (values.length > bottom && values.array[values.length - 1] === leaf) return;
    this.budget.entries('destinations', 1);
    starts.push(start);
    values.push(leaf);
  }

  tables(): Tables {
    const { leaves, slices } = compact(this.leaves, this.slices.maps);
    return {
      segments: {
        destinations: this.maps.trimmed(),
        wildcards: this.wildcards.trimmed(),
        named: this.named.trimmed(),
      },
      destinations: {
        starts: this.starts.trimmed(),
        values: this.values.trimmed(),
        offsets: this.offsets.trimmed(),
      },
      leaves,
      slices,
      ...this.names.tables(),
    };
  }

  private addMemberships(rule: number, count: number): number {
    const firstPrefix = this.firstPrefixes[rule] as number;
    const lastPrefix = this.firstPrefixes[rule + 1] as number;
    const need = count + lastPrefix - firstPrefix;
    if (need > this.memberships.length) {
      const grown = new Float64Array(need * 2);
      grown.set(this.memberships);
      this.memberships = grown;
    }
    for (let at = firstPrefix, to = count; at < lastPrefix; at++, to++) {
      this.memberships[to] = membership(this.prefixes.array[at] as number, rule);
    }
    return need;
  }

  private leafOf(members: readonly number[]): number {
    if (members.length === 0) return NONE;
    this.stack.clear();
    this.stack.push(members);
    return this.stack.intern(this.leaves);
  }

  private destinationMap(count: number): number {
    if (count === 0) return NONE;
    const { starts, values, offsets } = this;
    const bottom = starts.length;
    this.stack.clear();
    walkNesting(this.order, this.memberships.subarray(0, count).sort(), this);
    if (starts.length - bottom === 1 && values.array[bottom] === NONE) {
      starts.length = bottom;
      values.length = bottom;
      return NONE;
    }
    offsets.push(starts.length);
    return offsets.length - 2;
  }

  private nameLeaves(named: readonly number[]): readonly NameLeaf[] {
    if (named.length === 0) return [];
    const members = new Map<number, number[]>();
    for (const number of named) {
      const { hostname } = this.rules[number] as Rule;
      if (hostname === undefined) continue;
      const name = this.names.number(hostname);
      const others = members.get(name);
      if (others === undefined) members.set(name, [number]);
      else others.push(number);
    }
    return [...members]
      .map(([name, rules]) => ({ name, leaf: this.nameLeaf(rules) }))
      .filter(({ leaf }) => leaf !== NONE)
      .sort((left, right) => left.name - right.name);
  }

  /** What a granted name brings: a leaf, or a map of destinations where its rules have any (D10). */
  private nameLeaf(rules: readonly number[]): number {
    if (rules.every((rule) => !hasDestination(this.rules[rule] as Rule))) return this.leafOf(rules);
    let count = 0;
    for (const rule of rules) count = this.addMemberships(rule, count);
    this.budget.steps(count * STEPS_OF_A_MEMBER);
    const map = this.destinationMap(count);
    return map === NONE ? NONE : MAP + map;
  }
}

/** The prefixes that a rule is filed under: none where it stands in a wildcard leaf, all addresses under a name. */
function prefixesOf(rule: Rule): readonly Prefix[] {
  if (hasDestination(rule)) return rule.destinations;
  return rule.hostname === undefined ? [] : [EVERYWHERE];
}

const EVERYWHERE: Prefix = { address: 0, length: 0 };

function hasDestination({ destinations }: Rule): boolean {
  return destinations.length > 0 && destinations.every(({ length }) => length > 0);
}

/** Leaves and slices as pools; the slices that only stood in between are left out. */
function compact(leaves: Sequences, slices: Sequences): { leaves: IntervalPool; slices: IntervalPool } {
  const kept: number[] = [];
  const numbers = new Map<number, number>();
  const pool = poolOf(leaves, leaves.count, (leaf) => leaf);
  for (const [at, value] of pool.values.entries()) {
    if (value < SLICE) continue;
    let number = numbers.get(value);
    if (number === undefined) {
      number = kept.push(value - SLICE) - 1;
      numbers.set(value, number);
    }
    pool.values[at] = SLICE + number;
  }
  return { leaves: pool, slices: poolOf(slices, kept.length, (number) => kept[number] as number) };
}

function poolOf(maps: Sequences, count: number, sequence: (map: number) => number): IntervalPool {
  const offsets = new Uint32Array(count + 1);
  for (let map = 0; map < count; map++) {
    const number = sequence(map);
    offsets[map + 1] = (offsets[map] as number) + (maps.end(number) - maps.start(number)) / 2;
  }
  const starts = new Uint32Array(offsets[count] as number);
  const values = new Uint32Array(starts.length);
  const cells = maps.cells.array;
  for (let map = 0; map < count; map++) {
    let from = maps.start(sequence(map));
    const end = offsets[map + 1] as number;
    for (let at = offsets[map] as number; at < end; at++, from += 2) {
      starts[at] = cells[from] as number;
      values[at] = cells[from + 1] as number;
    }
  }
  return { starts, values, offsets };
}
