import { Budget, type CompileLimits } from './budget.js';
import { Cells } from './cells.js';
import { keyRanges } from './key-ranges.js';
import { RuleLeaves } from './leaf-stack.js';
import type { Policy } from './model.js';
import { MAX_RANKS, NONE, type Program, word } from './program.js';
import { outcomeAt, places } from './rank.js';
import { rosterOf } from './roster.js';
import { SegmentCompiler } from './segment-compiler.js';
import { Division } from './segments.js';
import { Sequences } from './sequences.js';
import { Slices } from './slices.js';
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
  const budget = new Budget({ ...DEFAULT_LIMITS, ...options.limits });
  const words = wordsOf(policy, budget);
  const found = populations(policy, budget);
  const division = new Division(policy, found, options.copies);
  const slices = new Slices(budget);
  const compiler = new SegmentCompiler(policy, leavesOf(policy, words.rules, slices, budget), slices, budget);
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
      if (run === known) segmentOfRun.push(compiler.compile(cells.array, from, to));
      const segment = segmentOfRun.array[run] as number;
      if (segment !== NONE) list.push(segment);
      from = to;
    }
    const last = from > found.groups.start(population) ? (cells.array[from - 1] as number) : NONE;
    list.push(words.defaults[last] ?? words.policy);
    listOfPopulation.push(lists.intern(list.array, 0, list.length));
  }
  return {
    sources: sourcesOf(found, listOfPopulation),
    lists: listsOf(lists),
    ...compiler.tables(),
    ranks: words.ranks,
    roster: rosterOf(policy),
  };
}

type Words = {
  /** Of all rules, numbered through the groups. */
  readonly rules: Uint32Array;
  /** Per group; `undefined` where it has no default action. */
  readonly defaults: readonly (number | undefined)[];
  readonly policy: number;
  readonly ranks: number;
};

function wordsOf(policy: Policy, budget: Budget): Words {
  const found = places(policy);
  budget.ranks(found.length);
  const rules = new Uint32Array(found.length);
  const defaults: (number | undefined)[] = policy.groups.map(() => undefined);
  let rule = 0;
  for (const [rank, place] of found.entries()) {
    const { verdict, audited } = outcomeAt(policy, place);
    if (place.kind === 'rule') rules[rule++] = word(rank, verdict, audited);
    else if (place.kind === 'group_default') defaults[place.group] = word(rank, verdict, audited);
  }
  const { verdict, audited } = outcomeAt(policy, { kind: 'policy_default' });
  return { rules, defaults, policy: word(found.length - 1, verdict, audited), ranks: found.length };
}

function leavesOf(policy: Policy, words: Uint32Array, slices: Slices, budget: Budget): RuleLeaves {
  const leaves = new RuleLeaves(budget);
  let rule = 0;
  for (const group of policy.groups) {
    for (const matched of group.rules) {
      const own = words[rule++] as number;
      const ranges = keyRanges(matched);
      leaves.add(ranges, matched.sourcePorts.length > 0 ? slices.of(matched.sourcePorts, own) : own);
    }
  }
  return leaves;
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
