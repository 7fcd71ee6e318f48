import { Budget, type CompileLimits } from './budget.js';
import { Cells } from './cells.js';
import { CompiledSegments } from './compiled-segments.js';
import type { Action, Group, Mode, Policy, Rule } from './model.js';
import { MAX_RANKS, NONE, type Program, word } from './program.js';
import { ProgramTables, type RuleWords } from './program-tables.js';
import { outcome } from './rank.js';
import { factsOf } from './rule-facts.js';
import { SegmentCompiler } from './segment-compiler.js';
import { Division } from './segments.js';
import { Sequences } from './sequences.js';
import { populations } from './source-lists.js';

const DEFAULT_LIMITS: CompileLimits = { entries: 1 << 24, steps: 1 << 29, ranks: MAX_RANKS };

export type CompileOptions = {
  readonly limits?: Partial<CompileLimits>;
  /** So many copies of rules are compiled before large groups become segments that lists share. */
  readonly copies?: number;
};

/**
 * The program of a policy: the same policy gives the same bytes. Throws `CompileTooLarge` where its rules overlap so
 * much that the program would pass the limits.
 */
export function compile(policy: Policy, options: CompileOptions = {}): Program {
  return compileWith(policy, new CompiledSegments(), options).program;
}

/** A program, and the segments that it was put together from. */
export type Compilation = { readonly program: Program; readonly segments: CompiledSegments };

/** The same program as `compile` gives; what was compiled before of the same lists of rules is not compiled again. */
export function compileWith(policy: Policy, known: CompiledSegments, options: CompileOptions = {}): Compilation {
  const budget = new Budget({ ...DEFAULT_LIMITS, ...options.limits });
  const words = wordsOf(policy, budget);
  const found = populations(policy, budget);
  const division = new Division(policy, found, options.copies);
  const source = new SegmentSource(policy, words, known, budget);
  const runs = new Sequences(budget, 'segments', 1);
  const lists = new Sequences(budget, 'lists', 1);
  const segmentOfRun = new Cells();
  const list = new Cells();
  const listOfPopulation = new Cells();
  for (let population = 0; population < found.groups.count; population++) {
    const { cells } = found.groups;
    let from = found.groups.start(population);
    list.length = 0;
    for (const to of division.ends(population)) {
      const known = runs.count;
      const run = runs.intern(cells.array, from, to);
      if (run === known) {
        segmentOfRun.push(source.segment(cells.array.subarray(from, to), division.isShared(from, to)));
      }
      const segment = segmentOfRun.array[run] as number;
      if (segment !== NONE) list.push(segment);
      from = to;
    }
    const last = from > found.groups.start(population) ? (cells.array[from - 1] as number) : NONE;
    list.push(words.defaults[last] ?? words.policy);
    listOfPopulation.push(lists.intern(list.array, 0, list.length));
  }
  const program = {
    sources: sourcesOf(found, listOfPopulation),
    lists: listsOf(lists),
    ...source.tables.tables(),
    ranks: words.ranks,
  };
  return { program, segments: source.compiled };
}

type Words = {
  /** Of all rules, numbered through the groups. */
  readonly rules: Uint32Array;
  /** Group → number of its first rule. */
  readonly first: Uint32Array;
  /** Per group; `undefined` where it has no default action. */
  readonly defaults: readonly (number | undefined)[];
  readonly policy: number;
  readonly ranks: number;
};

/** The words of the places of `places`, in the same order. */
function wordsOf({ groups, default: decides }: Policy, budget: Budget): Words {
  let count = 0;
  let ranks = 1;
  for (const { rules, defaultAction } of groups) {
    count += rules.length;
    ranks += rules.length + (defaultAction === undefined ? 0 : 1);
  }
  budget.ranks(ranks);
  const words = new Uint32Array(count);
  const first = new Uint32Array(groups.length);
  const defaults: (number | undefined)[] = [];
  let rank = 0;
  let number = 0;
  for (let group = 0; group < groups.length; group++) {
    const { rules, defaultAction, mode } = groups[group] as Group;
    const { lowBits } = factsOf(rules);
    first[group] = number;
    for (let rule = 0; rule < lowBits.length; rule++) words[number++] = rank++ * 16 + (lowBits[rule] as number);
    defaults.push(defaultAction === undefined ? undefined : wordOf(rank++, defaultAction, mode));
  }
  return { rules: words, first, defaults, policy: wordOf(rank, decides.action, decides.mode), ranks };
}

function wordOf(rank: number, action: Action, mode: Mode): number {
  const { verdict, audited } = outcome(action, mode);
  return word(rank, verdict, audited);
}

/** Puts the segments of a policy into the tables of its program; those that are known are not compiled again. */
class SegmentSource {
  readonly tables = new ProgramTables();
  readonly compiled = new CompiledSegments();
  private readonly compiler: SegmentCompiler;

  constructor(
    private readonly policy: Policy,
    private readonly words: Words,
    private readonly known: CompiledSegments,
    private readonly budget: Budget,
  ) {
    this.compiler = new SegmentCompiler(budget);
  }

  /** The number of the segment of some groups, or `NONE` where none of their rules can match anything. */
  segment(groups: Uint32Array, shared: boolean): number {
    const lists = Array.from(groups, (group) => this.rulesOf(group));
    const numbers = lists.map((rules) => factsOf(rules).number);
    let segment = this.known.get(numbers);
    if (segment === undefined) segment = this.compiler.compile(lists.length === 1 ? (lists[0] ?? []) : lists.flat());
    else if (segment !== null) {
      this.budget.entries('segments', segment.used.entries);
      this.budget.steps(segment.used.steps);
    }
    this.compiled.set(numbers, segment);
    return segment === null ? NONE : this.tables.add(segment, this.wordsOf(groups), shared);
  }

  private wordsOf(groups: Uint32Array): RuleWords {
    const { rules, first } = this.words;
    const begin = (group: number): number => first[group] as number;
    if (groups.length === 1) return { words: rules, first: begin(groups[0] as number) };
    const words = new Cells();
    for (const group of groups) words.append(rules, begin(group), begin(group) + this.rulesOf(group).length);
    return { words: words.array, first: 0 };
  }

  private rulesOf(group: number): readonly Rule[] {
    return this.policy.groups[group]?.rules ?? [];
  }
}

function sourcesOf({ starts, numbers }: { starts: Cells; numbers: Cells }, lists: Cells): Program['sources'] {
  const keptStarts = new Cells();
  const values = new Cells();
  for (let at = 0; at < starts.length; at++) {
    const list = lists.array[numbers.array[at] as number] as number;
    if (values.length > 0 && values.array[values.length - 1] === list) continue;
    keptStarts.push(starts.array[at] as number);
    values.push(list);
  }
  return { starts: keptStarts.trimmed(), values: values.trimmed() };
}

function listsOf(lists: Sequences): Program['lists'] {
  const offsets = new Uint32Array(lists.count + 1);
  const segments = new Cells();
  const defaults = new Uint32Array(lists.count);
  for (let list = 0; list < lists.count; list++) {
    const last = lists.end(list) - 1;
    segments.append(lists.cells.array, lists.start(list), last);
    defaults[list] = lists.cells.array[last] as number;
    offsets[list + 1] = segments.length;
  }
  return { offsets, segments: segments.trimmed(), defaults };
}
