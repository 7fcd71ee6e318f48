import { GrowingUint32Array } from '#arrays/growing-uint32-array.js';
import type { SelectorResolution } from '#contracts/kubernetes/membership.js';
import type { Family, Group, Policy } from '#contracts/policy/policy-model.js';
import type { RuleNames } from '#contracts/policy/rule-names.js';
import { LookupCompiler } from '#policy/compile/lookups/lookup-compiler.js';
import type { RuleBlock } from '#policy/compile/rule-blocks/rule-block.js';
import type { ClassNumbers } from '#policy/compile/sources/class-numbers.js';
import type { GroupViews } from '#policy/compile/sources/group-views.js';
import { type Populations, populations } from '#policy/compile/sources/source-populations.js';
import { Budget, type Used } from '#policy/model/budget.js';
import { ruleNamesAfter, ruleNamesOf } from '#policy/model/rules/rule-names.js';
import { groupSourcesOf } from '#policy/model/sources/group-sources.js';
import { isSameResolution, sameSources } from '#policy/model/sources/same-sources.js';
import { ProgramTables } from './program-tables.js';
import { Sequences } from './sequences.js';

/**
 * Caches results of earlier compilations for the next compilation, also the names of rules.
 */
export class CompileMemory {
  readonly ipv4 = new FamilyMemory('ipv4');
  readonly ipv6 = new FamilyMemory('ipv6');
  private named:
    | {
        readonly groups: readonly Group[];
        readonly resolution: SelectorResolution;
        readonly ruleNames: RuleNames;
      }
    | undefined;

  /**
   * Returns the rule names of a policy. Uses the source tables of the latest result again if neither the
   * sources nor the selectors have changed.
   */
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
}

type Views = Pick<GroupViews, 'policy' | 'lookups'>;

/** Whether `populations` gives the same result for both arguments. */
function havePopulationsOf(before: Views, after: Views): boolean {
  return (
    sameSources(before.policy.groups, after.policy.groups) &&
    before.lookups.every(({ rules }, group) => (rules.length === 0) === (after.lookups[group]?.rules.length === 0))
  );
}

/**
 * Caches results of earlier compilations for the next compilation of the same family: rule blocks, source
 * intervals with their groups, and work tables. Unused rule blocks are discarded when they outnumber the rule
 * blocks of the latest compilation by more than `FEW`.
 */
export class FamilyMemory {
  readonly tables = new ProgramTables();
  readonly lookups = new LookupCompiler();
  private known: { readonly views: Views; readonly found: Populations; readonly used: Used } | undefined;
  /**
   * The latest populations (sources with equal groups), and the same with the numbers of the address classes
   * of their policy.
   */
  private placed: { readonly own: Populations; readonly found: Populations } | undefined;
  private runs = new Sequences(Budget.unlimited, 'rule blocks', 1);
  private ruleBlocks: (RuleBlock | null)[] = [];
  private stamps = new GrowingUint32Array();
  private stamp = 0;
  private wanted = 0;

  constructor(readonly family: Family) {}

  /** `classes`: the address classes of the next program; null for IPv4. */
  begin(classes: ClassNumbers | null): void {
    this.tables.begin(classes);
    this.stamp = (this.stamp + 1) >>> 0;
    this.wanted = 0;
  }

  /**
   * Returns the source addresses of a policy, divided by the groups that apply to them. Returns the latest
   * result again if no group has changed its sources, and no group has gained or lost all its rules or its
   * default action.
   */
  populations(views: Views, classes: ClassNumbers | null, budget: Budget): Populations {
    const own = this.ownPopulations(views, budget);
    return classes === null || own.classStarts === null ? own : this.place(own, classes, own.classStarts);
  }

  /**
   * Returns the populations (sources with the same groups) with the numbers of all address classes of the
   * policy. If nothing has changed, returns the latest result, so that the tables made of it are used again.
   */
  private place(own: Populations, classes: ClassNumbers, classStarts: readonly bigint[]): Populations {
    const starts = new GrowingUint32Array();
    starts.append(own.starts.array, 0, own.starts.length);
    classes.place(starts.array, 0, starts.length, classStarts);
    const { placed } = this;
    const isSame =
      placed?.own === own && starts.trimmed().every((start, at) => placed.found.starts.array[at] === start);
    if (isSame) return placed.found;
    this.placed = { own, found: { ...own, starts, classStarts: null } };
    return this.placed.found;
  }

  private ownPopulations(views: Views, budget: Budget): Populations {
    const { known } = this;
    if (known !== undefined && havePopulationsOf(known.views, views)) {
      budget.ranks(views.policy.groups.length);
      budget.entries('sources', known.used.entries);
      budget.steps(known.used.steps);
      this.known = { ...known, views };
      return known.found;
    }
    const before = budget.used;
    const found = populations(views, this.family, budget);
    const { entries, steps } = budget.used;
    this.known = { views, found, used: { entries: entries - before.entries, steps: steps - before.steps } };
    return found;
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
