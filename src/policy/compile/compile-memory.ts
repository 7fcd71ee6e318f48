import { GrowingUint32Array } from '#arrays/growing-uint32-array.js';
import type { SelectorResolution } from '#contracts/kubernetes/membership.js';
import type { Group, Policy } from '#contracts/policy/policy-model.js';
import type { RuleNames } from '#contracts/policy/rule-names.js';
import { LookupCompiler } from '#policy/compile/lookups/lookup-compiler.js';
import type { RuleBlock } from '#policy/compile/rule-blocks/rule-block.js';
import { type Populations, populations } from '#policy/compile/sources/source-populations.js';
import { Budget, type Used } from '#policy/model/budget.js';
import { ruleNamesAfter, ruleNamesOf } from '#policy/model/rules/rule-names.js';
import { groupSourcesOf } from '#policy/model/sources/group-sources.js';
import { isSameResolution, sameSources } from '#policy/model/sources/same-sources.js';
import { ProgramTables } from './program-tables.js';
import { Sequences } from './sequences.js';

/**
 * Caches results of earlier compilations for the next compilation: rule blocks, source intervals with their
 * groups, rule names and work tables. Unused rule blocks are discarded when they outnumber the rule blocks of
 * the latest compilation by more than `FEW`.
 */
export class CompileMemory {
  readonly tables = new ProgramTables();
  readonly lookups = new LookupCompiler();
  private known: { readonly groups: readonly Group[]; readonly found: Populations; readonly used: Used } | undefined;
  private named:
    | {
        readonly groups: readonly Group[];
        readonly resolution: SelectorResolution;
        readonly ruleNames: RuleNames;
      }
    | undefined;
  private runs = new Sequences(Budget.unlimited, 'rule blocks', 1);
  private ruleBlocks: (RuleBlock | null)[] = [];
  private stamps = new GrowingUint32Array();
  private stamp = 0;
  private wanted = 0;

  begin(): void {
    this.tables.clear();
    this.stamp = (this.stamp + 1) >>> 0;
    this.wanted = 0;
  }

  /**
   * Returns the source addresses of a policy, divided by the groups that apply to them. Returns the latest
   * result again if no group has changed its sources, and no group has gained or lost all its rules or its
   * default action.
   */
  populations(policy: Policy, budget: Budget): Populations {
    const { groups } = policy;
    const { known } = this;
    if (known !== undefined && sameSources(known.groups, groups)) {
      budget.ranks(groups.length);
      budget.entries('sources', known.used.entries);
      budget.steps(known.used.steps);
      this.known = { ...known, groups };
      return known.found;
    }
    const before = budget.used;
    const found = populations(policy, budget);
    const { entries, steps } = budget.used;
    this.known = { groups, found, used: { entries: entries - before.entries, steps: steps - before.steps } };
    return found;
  }

  /** The sources are those of the latest result if neither the sources nor the resolution has changed. */
  ruleNames(policy: Policy, resolution: SelectorResolution): RuleNames {
    const { named } = this;
    const isKept =
      named !== undefined && isSameResolution(named.resolution, resolution) && sameSources(named.groups, policy.groups);
    const sources = isKept ? named.ruleNames.sources : groupSourcesOf(policy.groups, resolution);
    const ruleNames =
      named === undefined
        ? ruleNamesOf(policy, sources)
        : ruleNamesAfter(named.ruleNames, named.groups, policy, sources);
    this.named = { groups: policy.groups, resolution, ruleNames };
    return ruleNames;
  }

  /**
   * Returns the cached rule block of a sequence of rule lists; `lists` contains the numbers of the lists.
   * Returns null if the rules match no packet, and undefined if the cache has no entry for this sequence.
   */
  find(lists: GrowingUint32Array): RuleBlock | null | undefined {
    const run = this.runs.find(lists.array, 0, lists.length);
    if (run === undefined) return undefined;
    this.note(run);
    return this.ruleBlocks[run];
  }

  add(lists: GrowingUint32Array, ruleBlock: RuleBlock | null): void {
    const run = this.runs.intern(lists.array, 0, lists.length);
    this.ruleBlocks[run] = ruleBlock;
    if (run === this.stamps.length) this.stamps.push(this.stamp - 1);
    this.note(run);
  }

  end(): void {
    const { runs, ruleBlocks, stamps, stamp, wanted } = this;
    if (runs.count <= 2 * wanted + FEW) return;
    this.runs = new Sequences(Budget.unlimited, 'rule blocks', 1);
    this.ruleBlocks = [];
    this.stamps = new GrowingUint32Array();
    for (const [run, ruleBlock] of ruleBlocks.entries()) {
      if (stamps.array[run] !== stamp) continue;
      this.runs.intern(runs.cells.array, runs.start(run), runs.end(run));
      this.ruleBlocks.push(ruleBlock);
      this.stamps.push(stamp);
    }
  }

  private note(run: number): void {
    if (this.stamps.array[run] === this.stamp) return;
    this.stamps.array[run] = this.stamp;
    this.wanted += 1;
  }
}

const FEW = 1_000;
