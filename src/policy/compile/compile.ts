import { GrowingUint32Array } from '#arrays/growing-uint32-array.js';
import { itemAt, u8At, u32At } from '#arrays/read.js';
import { type ListedMembership, NOTHING_LISTED } from '#contracts/kubernetes/membership.js';
import type { Action, HostnamePattern, Mode, Policy, Rule } from '#contracts/policy/policy-model.js';
import { type FamilyProgram, type Ipv6Program, NONE, type Program } from '#contracts/policy/program.js';
import { MAX_RANKS, verdictWord, wordAt } from '#contracts/policy/verdict-word.js';
import { RuleBlockCompiler } from '#policy/compile/rule-blocks/rule-block-compiler.js';
import { Division } from '#policy/compile/rule-blocks/rule-block-division.js';
import { ClassNumbers } from '#policy/compile/sources/class-numbers.js';
import { type GroupViews, viewsOf } from '#policy/compile/sources/group-views.js';
import { type SourcePoints, withMembers } from '#policy/compile/sources/member-populations.js';
import { type Populations, sourceMap } from '#policy/compile/sources/source-populations.js';
import { factsOfGroups, type RuleFacts } from '#policy/evaluate/rule-facts.js';
import { Budget, type CompileLimits } from '#policy/model/budget.js';
import { outcome } from '#policy/model/rules/rank.js';
import { addressClasses, classOf } from '#policy/model/sources/address-classes.js';
import { selectorGroups } from '#policy/model/sources/group-sets.js';
import { CompileMemory, type FamilyMemory } from './compile-memory.js';
import type { RuleWords } from './program-tables.js';
import { Sequences } from './sequences.js';

const DEFAULT_LIMITS: CompileLimits = { entries: 1 << 24, steps: 1 << 29, ranks: MAX_RANKS };

export type CompileOptions = {
  readonly limits?: Partial<CompileLimits>;
  /**
   * The maximum number of additional copies of rules in the compiled policy: a group in several of its lists
   * is normally copied for each list. If more copies would be needed, the groups with the most copied rules
   * become separate rule blocks, which several lists share.
   */
  readonly copies?: number;
  /** A cache of results of earlier compilations. `compile` adds new results. */
  readonly memory?: CompileMemory;
  /** Whether the program has the tables of IPv6. */
  readonly ipv6?: boolean;
  /** Which Kubernetes selectors are resolved, and the addresses that they select. Default: none. */
  readonly membership?: ListedMembership | undefined;
};

/**
 * Compiles a policy into a program. Equal policies give equal bytes, independently of the cache. The program
 * also depends on which selectors are resolved, and on the pairs of base (population without selectors) and
 * set of groups that occur among the addresses of Kubernetes objects. Throws `CompileTooLarge` if the policy
 * has too many rules, or if its rules overlap so much that the program would exceed the limits.
 */
export function compile(policy: Policy, options: CompileOptions = {}): Program {
  const budget = new Budget({ ...DEFAULT_LIMITS, ...options.limits });
  const { membership = NOTHING_LISTED, memory = new CompileMemory(), copies } = options;
  const context: FamilyContext = { policy, membership, copies, budget };
  const ipv4 = compileFamily(context, memory.ipv4, IPV4_POINTS, []);
  const ipv6 = options.ipv6 === true ? compileIpv6(context, memory.ipv6, ipv4.names) : null;
  return {
    ...ipv4.tables,
    ipv6: ipv6?.tables ?? null,
    names: ipv6?.names ?? ipv4.names,
    ranks: ipv4.ranks,
    ruleNames: memory.ruleNames(policy, membership.scope),
  };
}

type FamilyContext = {
  readonly policy: Policy;
  readonly membership: ListedMembership;
  readonly copies: number | undefined;
  readonly budget: Budget;
};

type Compiled<Tables> = {
  readonly tables: Tables;
  /** The hostname patterns of the rules. A pattern of both families has the same number in both. */
  readonly names: readonly HostnamePattern[];
  readonly ranks: number;
};

function compileIpv6(
  context: FamilyContext,
  memory: FamilyMemory,
  names: readonly HostnamePattern[],
): Compiled<Ipv6Program> {
  const numbers = new ClassNumbers(context.policy.groups, context.membership.scope);
  const classes = addressClasses(numbers.starts);
  const points: SourcePoints = {
    family: 'ipv6',
    pointOf: (address) => classOf(classes, BigInt(address)),
    end: numbers.starts.length,
  };
  const compiled = compileFamily(context, memory, { numbers, points }, names);
  return { ...compiled, tables: { ...compiled.tables, classes } };
}

/**
 * The keys that stand for the addresses of a family in the tables of a program. `numbers`: the address
 * classes of IPv6; null for IPv4.
 */
type FamilyPoints = { readonly numbers: ClassNumbers | null; readonly points: SourcePoints };
const IPV4_POINTS: FamilyPoints = {
  numbers: null,
  points: { family: 'ipv4', pointOf: (address) => Number(address), end: 2 ** 32 },
};

/** Compiles the tables of one family. */
function compileFamily(
  { policy, membership, copies, budget }: FamilyContext,
  memory: FamilyMemory,
  { numbers, points }: FamilyPoints,
  names: readonly HostnamePattern[],
): Compiled<FamilyProgram> {
  const views = viewsOf(policy, membership.scope, memory.family);
  const words = wordsOf(policy, views, budget);
  const bases = memory.populations(views, numbers, budget);
  const selectors = selectorGroups(policy.groups, membership.scope);
  const found = selectors.size === 0 ? bases : withMembers(views, bases, selectors, membership, points, budget);
  const division = new Division(views.policy, found, copies);
  const { runs, ofPopulations } = runsOf(found, division, budget);
  memory.begin(numbers);
  for (const pattern of names) memory.tables.addName(pattern);
  const lookups = memory.lookups.compile(views, words, found, memory.tables);
  const source = new RuleBlockSource(views.policy, words, runs, memory, budget);
  const ruleBlocks = new Uint32Array(runs.count);
  for (let run = 0; run < runs.count; run++) ruleBlocks[run] = source.ruleBlock(run);
  memory.end();
  const { lists, ofPopulations: listOfPopulation } = listsOfRuns(found, ofPopulations, ruleBlocks, words, budget);
  const tables = {
    sources: sourceMap(found, listOfPopulation),
    members: membersOf(found, listOfPopulation),
    lists: listsOf(lists),
    ...memory.tables.tables(),
    lookups,
  };
  return { tables, names: memory.tables.patterns, ranks: words.ranks };
}

function membersOf({ members }: Populations, listOfPopulation: GrowingUint32Array): FamilyProgram['members'] {
  if (members === null) return null;
  const { bases, trees, pairs, sets, selectors } = members;
  const named = [...selectors].map(([key, groups]) => ({ key, groups }));
  return { bases, trees, pairs, sets, selectors: named, lists: listOfPopulation.trimmed() };
}

/**
 * Returns the distinct runs. A run is a sequence of groups that becomes one rule block. For each population
 * (sources with the same groups), `ofPopulations` contains the numbers of its runs, followed by `NONE`.
 */
function runsOf(
  { groups }: Populations,
  division: Division,
  budget: Budget,
): { runs: Sequences; ofPopulations: GrowingUint32Array } {
  const runs = new Sequences(budget, 'rule blocks', 1);
  const ofPopulations = new GrowingUint32Array();
  for (let population = 0; population < groups.count; population++) {
    let from = groups.start(population);
    for (const to of division.ends(population)) {
      ofPopulations.push(runs.intern(groups.cells.array, from, to));
      from = to;
    }
    ofPopulations.push(NONE);
  }
  return { runs, ofPopulations };
}

function listsOfRuns(
  { groups }: Populations,
  runs: GrowingUint32Array,
  ruleBlocks: Uint32Array,
  words: Words,
  budget: Budget,
): { lists: Sequences; ofPopulations: GrowingUint32Array } {
  const lists = new Sequences(budget, 'lists', 1);
  const ofPopulations = new GrowingUint32Array();
  const list = new GrowingUint32Array(16);
  for (let population = 0, at = 0; population < groups.count; population++, at++) {
    list.length = 0;
    for (; runs.array[at] !== NONE; at++) {
      const ruleBlock = u32At(ruleBlocks, u32At(runs.array, at));
      if (ruleBlock !== NONE) list.push(ruleBlock);
    }
    const end = groups.end(population);
    const last = end > groups.start(population) ? u32At(groups.cells.array, end - 1) : NONE;
    list.push(words.defaults[last] ?? words.policy);
    ofPopulations.push(lists.intern(list.array, 0, list.length));
  }
  return { lists, ofPopulations };
}

type Words = {
  /**
   * The verdict words (rank and verdict) of the rules in all groups of `GroupViews.policy`, in group order.
   */
  readonly rules: Uint32Array;
  /**
   * For each group of `GroupViews.policy`: `first` is the index of its first rule in `rules`, and
   * `firstRanks` is the first rank (position in the order of evaluation) of its group in the original policy.
   */
  readonly first: Uint32Array;
  readonly firstRanks: Uint32Array;
  /**
   * For each group of `GroupViews.policy`, the verdict word (rank and verdict) of its default action;
   * `undefined` if the group has no default action.
   */
  readonly defaults: readonly (number | undefined)[];
  readonly policy: number;
  readonly ranks: number;
};

/**
 * Computes the verdict words (rank and verdict) of all rules and defaults from their positions in the policy.
 */
function wordsOf({ groups, default: decides }: Policy, views: GroupViews, budget: Budget): Words {
  const ranksOfGroups = new Uint32Array(groups.length);
  let ranks = 1;
  for (let group = 0; group < groups.length; group++) {
    const { rules, defaultAction } = itemAt(groups, group);
    ranksOfGroups[group] = ranks - 1;
    ranks += rules.length + (defaultAction === undefined ? 0 : 1);
  }
  budget.ranks(ranks);
  const { groups: viewed } = views.policy;
  const facts = factsOfGroups(viewed);
  const words = new Uint32Array(viewed.reduce((count, { rules }) => count + rules.length, 0));
  const first = new Uint32Array(viewed.length);
  const firstRanks = new Uint32Array(viewed.length);
  const defaults: (number | undefined)[] = [];
  let number = 0;
  for (let view = 0; view < viewed.length; view++) {
    const { defaultAction, mode } = itemAt(viewed, view);
    const { outcomes } = itemAt(facts, view);
    const group = u32At(views.groups, view);
    const places = views.places[view] ?? null;
    const rank = u32At(ranksOfGroups, group);
    first[view] = number;
    firstRanks[view] = rank;
    for (let rule = 0; rule < outcomes.length; rule++) {
      const place = places === null ? rule : u32At(places, rule);
      words[number++] = wordAt(rank + place, u8At(outcomes, rule));
    }
    const last = rank + itemAt(groups, group).rules.length;
    defaults.push(defaultAction === undefined ? undefined : wordOf(last, defaultAction, mode));
  }
  return { rules: words, first, firstRanks, defaults, policy: wordOf(ranks - 1, decides.action, decides.mode), ranks };
}

function wordOf(rank: number, action: Action, mode: Mode): number {
  const { verdict, audited } = outcome(action, mode);
  return verdictWord(rank, verdict, audited);
}

/**
 * Adds the rule blocks (parts of a rule list) of a policy to the tables. Takes known rule blocks from the
 * cache.
 */
class RuleBlockSource {
  private readonly compiler: RuleBlockCompiler;
  private readonly facts: readonly RuleFacts[];
  private readonly lists = new GrowingUint32Array(16);
  /**
   * For each group, the number of distinct runs that contain the group. A run is a sequence of groups that
   * become one rule block.
   */
  private readonly uses: Uint32Array;

  constructor(
    private readonly policy: Policy,
    private readonly words: Words,
    private readonly runs: Sequences,
    private readonly memory: FamilyMemory,
    private readonly budget: Budget,
  ) {
    this.compiler = new RuleBlockCompiler(memory.family, budget);
    this.facts = factsOfGroups(policy.groups);
    this.uses = new Uint32Array(policy.groups.length);
    const { array, length } = runs.cells;
    for (let at = 0; at < length; at++) {
      const group = u32At(array, at);
      this.uses[group] = u32At(this.uses, group) + 1;
    }
  }

  /**
   * Compiles a run (sequence of groups) to a rule block of the program, and returns its number.
   * Returns `NONE` if no rule of the run can match a packet.
   */
  ruleBlock(run: number): number {
    const from = this.runs.start(run);
    const to = this.runs.end(run);
    const groups = this.runs.cells.array;
    this.lists.length = 0;
    let shared = false;
    for (let at = from; at < to; at++) {
      const group = u32At(groups, at);
      this.lists.push(itemAt(this.facts, group).number);
      shared ||= u32At(this.uses, group) > 1;
    }
    let ruleBlock = this.memory.find(this.lists);
    if (ruleBlock === undefined) {
      ruleBlock = this.compiler.compile(this.rulesOfRun(groups, from, to));
      this.memory.add(this.lists, ruleBlock);
    } else if (ruleBlock !== null) {
      this.budget.entries('rule blocks', ruleBlock.used.entries);
      this.budget.steps(ruleBlock.used.steps);
    }
    return ruleBlock === null ? NONE : this.memory.tables.add(ruleBlock, this.wordsOf(groups, from, to), shared);
  }

  private wordsOf(groups: Uint32Array, from: number, to: number): RuleWords {
    const { rules, first } = this.words;
    const begin = (at: number): number => u32At(first, u32At(groups, at));
    if (to - from === 1) return { words: rules, first: begin(from) };
    const words = new GrowingUint32Array();
    for (let at = from; at < to; at++) {
      words.append(rules, begin(at), begin(at) + this.rulesOf(u32At(groups, at)).length);
    }
    return { words: words.array, first: 0 };
  }

  private rulesOfRun(groups: Uint32Array, from: number, to: number): readonly Rule[] {
    if (to - from === 1) return this.rulesOf(u32At(groups, from));
    return Array.from(groups.subarray(from, to), (group) => this.rulesOf(group)).flat();
  }

  private rulesOf(group: number): readonly Rule[] {
    return this.policy.groups[group]?.rules ?? [];
  }
}

function listsOf(lists: Sequences): FamilyProgram['lists'] {
  const offsets = new Uint32Array(lists.count + 1);
  const ruleBlocks = new GrowingUint32Array();
  const defaults = new Uint32Array(lists.count);
  for (let list = 0; list < lists.count; list++) {
    const last = lists.end(list) - 1;
    ruleBlocks.append(lists.cells.array, lists.start(list), last);
    defaults[list] = u32At(lists.cells.array, last);
    offsets[list + 1] = ruleBlocks.length;
  }
  return { offsets, ruleBlocks: ruleBlocks.trimmed(), defaults };
}
