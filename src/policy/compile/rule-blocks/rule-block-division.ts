import { f64At, u32At } from '#arrays/read.js';
import type { Policy } from '#contracts/policy/policy-model.js';
import { MAX_RULE_BLOCKS } from '#contracts/policy/program.js';
import type { Sequences } from '#policy/compile/sequences.js';
import type { Populations } from '#policy/compile/sources/source-populations.js';

/**
 * The limit on additional copies of rules in the compiled policy is `MULTIPLE` times the number of all rules,
 * plus `SMALL`. Above the limit, groups become separate rule blocks, which several of its lists share.
 */
const MULTIPLE = 3;
const SMALL = 1 << 16;
/**
 * A group with at least this many rules becomes a separate rule block if it applies to several populations
 * (source sets with different groups). If the caller passes `copies`, this number has no effect.
 */
const LARGE = 1_024;

/** A sequence of adjacent groups that becomes one rule block of the compiled policy. */
type Run = { readonly from: number; to: number; rules: number; readonly saving: number };

/**
 * Divides the groups of each population (sources with the same groups) into runs; each run becomes one rule
 * block. Normally a population has one run. If the compiled policy would contain too many copies of rules,
 * expensive groups become separate runs, which populations share.
 */
export class Division {
  private readonly uses: Float64Array;
  private readonly users: Uint32Array;
  private readonly shared: Uint8Array;
  private readonly sharing: boolean;

  constructor(
    private readonly policy: Policy,
    private readonly populations: Populations,
    copies?: number,
  ) {
    const count = policy.groups.length;
    this.uses = new Float64Array(count);
    this.users = new Uint32Array(count);
    this.shared = new Uint8Array(count);
    this.countUses(populations.groups);
    this.choose(copies);
    this.sharing = this.shared.includes(1);
  }

  /**
   * Returns the ends of the runs of a population, as indexes into `populations.groups.cells`. A run is a
   * sequence of groups that becomes one rule block.
   */
  ends(population: number): readonly number[] {
    const { groups } = this.populations;
    const from = groups.start(population);
    const to = groups.end(population);
    if (from === to) return [];
    if (!this.sharing) return [to];
    const runs = this.runs(from, to);
    return merged(runs, to);
  }

  private countUses(groups: Sequences): void {
    const cells = groups.cells.array;
    for (let population = 0; population < groups.count; population++) {
      const end = groups.end(population);
      for (let at = groups.start(population); at < end; at++) {
        const group = u32At(cells, at);
        this.uses[group] = f64At(this.uses, group) + 1;
        // `users` contains, for each group, a hash of the populations to which the group applies. Groups with
        // equal hashes are treated as groups of the same populations. A hash collision is rare, and only
        // makes the compiled policy larger.
        this.users[group] = Math.imul(u32At(this.users, group) ^ (population + 1), 0x01000193);
      }
    }
  }

  private choose(copies: number | undefined): void {
    const alike = new Map<number, { saving: number; readonly groups: number[] }>();
    let total = 0;
    let multiplied = 0;
    for (const [group, { rules }] of this.policy.groups.entries()) {
      const uses = f64At(this.uses, group);
      const users = u32At(this.users, group);
      total += rules.length;
      multiplied += rules.length * uses;
      if (uses < 2) continue;
      if (copies === undefined && rules.length >= LARGE) {
        this.shared[group] = 1;
        multiplied -= rules.length * (uses - 1);
        continue;
      }
      const known = alike.get(users);
      const saving = rules.length * (uses - 1);
      if (known === undefined) alike.set(users, { saving, groups: [group] });
      else {
        known.saving += saving;
        known.groups.push(group);
      }
    }
    const enough = total + (copies ?? total * MULTIPLE + SMALL);
    for (const { saving, groups } of [...alike.values()].sort((left, right) => right.saving - left.saving)) {
      if (multiplied <= enough) return;
      for (const group of groups) this.shared[group] = 1;
      multiplied -= saving;
    }
  }

  private runs(from: number, to: number): Run[] {
    const cells = this.populations.groups.cells.array;
    const runs: Run[] = [];
    let before = -1;
    for (let at = from; at < to; at++) {
      const group = u32At(cells, at);
      const rules = this.policy.groups[group]?.rules.length ?? 0;
      const last = runs.at(-1);
      if (last !== undefined && this.alike(before, group)) {
        last.to = at + 1;
        last.rules += rules;
      } else {
        runs.push({
          from: at,
          to: at + 1,
          rules,
          saving: this.shared[group] === 1 ? f64At(this.uses, group) - 1 : 0,
        });
      }
      before = group;
    }
    return runs;
  }

  private alike(left: number, right: number): boolean {
    if (this.shared[left] !== this.shared[right]) return false;
    return this.shared[left] === 0 || this.users[left] === this.users[right];
  }
}

/**
 * Chooses which runs of a population become separate rule blocks (parts of a rule list): the shared runs that
 * save most copies. Merges all other adjacent runs, so that at most `MAX_RULE_BLOCKS` rule blocks remain.
 * Returns the ends of the rule blocks.
 */
function merged(runs: readonly Run[], to: number): readonly number[] {
  if (runs.length <= MAX_RULE_BLOCKS) return runs.map((run) => run.to);
  const dearest = runs
    .filter(({ saving }) => saving > 0)
    .sort((left, right) => right.rules * right.saving - left.rules * left.saving || left.from - right.from)
    .slice(0, MAX_RULE_BLOCKS);
  let ends: readonly number[] = [to];
  const apart: Run[] = [];
  for (const run of dearest) {
    const tried = new Set([...[...apart, run].flatMap((kept) => [kept.from, kept.to]), to]);
    tried.delete(runs[0]?.from ?? 0);
    if (tried.size > MAX_RULE_BLOCKS) continue;
    apart.push(run);
    ends = [...tried].sort((left, right) => left - right);
  }
  return ends;
}
