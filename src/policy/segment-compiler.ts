import type { Budget } from './budget.js';
import { Cells } from './cells.js';
import { LeafStack, type RuleLeaves } from './leaf-stack.js';
import type { Policy, Rule } from './model.js';
import { NameTable } from './name-table.js';
import { membership, type PrefixOrder, prefixNumber, prefixOrder, walkNesting } from './nesting.js';
import { type IntervalPool, NONE, type Program, SLICE } from './program.js';
import { Sequences } from './sequences.js';
import type { Slices } from './slices.js';

type Tables = Pick<Program, 'segments' | 'destinations' | 'leaves' | 'slices' | 'names' | 'nameLeaves'>;

/** Compiles segments, each a sequence of groups, into tables that they share. */
export class SegmentCompiler {
  private readonly rules: readonly Rule[];
  /** Group → number of its first rule. */
  private readonly firstRules: Uint32Array;
  private readonly order: PrefixOrder;
  private readonly leaves: Sequences;
  private readonly stack: LeafStack;
  private readonly names = new NameTable();
  private readonly maps = new Cells();
  private readonly wildcards = new Cells();
  private readonly offsets = new Cells();
  private readonly starts = new Cells();
  private readonly values = new Cells();

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
    this.order = prefixOrder(this.rules.flatMap((rule) => (isStatic(rule) ? rule.destinations : [])));
    this.leaves = new Sequences(budget, 'leaves', 2);
    this.stack = new LeafStack(ruleLeaves, slices, budget);
    this.offsets.push(0);
  }

  /** The number of the new segment, or `NONE` where none of its rules can match anything. */
  compile(groups: Uint32Array): number {
    const anywhere: number[] = [];
    const memberships: number[] = [];
    const named = new Map<number, number[]>();
    for (const group of groups) {
      const end = this.firstRules[group + 1] as number;
      for (let number = this.firstRules[group] as number; number < end; number++) {
        const rule = this.rules[number] as Rule;
        if (rule.hostname !== undefined) {
          const name = this.names.number(rule.hostname, rule.destinations);
          const members = named.get(name);
          if (members === undefined) named.set(name, [number]);
          else members.push(number);
        } else if (isStatic(rule)) {
          for (const prefix of rule.destinations) {
            memberships.push(membership(prefixNumber(this.order, prefix), number));
          }
        } else anywhere.push(number);
      }
    }
    this.budget.steps(memberships.length + anywhere.length);
    const wildcard = this.leafOf(anywhere);
    const map = this.destinationMap(memberships);
    const leaves = [...named].map(([name, members]) => ({ name, leaf: this.leafOf(members) }));
    const matching = leaves.filter(({ leaf }) => leaf !== NONE);
    if (wildcard === NONE && map === NONE && matching.length === 0) return NONE;
    const segment = this.maps.length;
    this.budget.entries('segments', 1);
    this.budget.entries('names', matching.length);
    this.maps.push(map);
    this.wildcards.push(wildcard);
    this.names.add(segment, matching);
    return segment;
  }

  tables(): Tables {
    const { leaves, slices } = compact(this.leaves, this.slices.maps);
    return {
      segments: { destinations: this.maps.trimmed(), wildcards: this.wildcards.trimmed() },
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

  private leafOf(members: readonly number[]): number {
    if (members.length === 0) return NONE;
    this.stack.clear();
    this.stack.push(members);
    return this.stack.intern(this.leaves);
  }

  private destinationMap(memberships: readonly number[]): number {
    if (memberships.length === 0) return NONE;
    const { stack, starts, values, offsets } = this;
    const from = starts.length;
    stack.clear();
    walkNesting(this.order, Float64Array.from(memberships).sort(), {
      open: (members) => stack.pushInside(members),
      close: () => stack.pop(),
      interval: (start) => {
        const leaf = stack.intern(this.leaves);
        if (values.length > from && values.array[values.length - 1] === leaf) return;
        this.budget.entries('destinations', 1);
        starts.push(start);
        values.push(leaf);
      },
    });
    if (starts.length - from === 1 && values.array[from] === NONE) {
      starts.length = from;
      values.length = from;
      return NONE;
    }
    offsets.push(starts.length);
    return offsets.length - 2;
  }
}

/** Whether a rule's destinations are known when it is compiled, and are not all there are. */
function isStatic({ hostname, destinations }: Rule): boolean {
  return hostname === undefined && destinations.length > 0 && destinations.every(({ length }) => length > 0);
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
