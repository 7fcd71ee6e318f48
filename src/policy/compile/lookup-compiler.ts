import type { LookupTables, NameTables } from '#contracts/dns-lookup-tables.js';
import type { HostnamePattern } from '#contracts/policy-model.js';
import { NONE } from '#contracts/program.js';
import { sharedWords } from '#contracts/shared-array.js';
import { rankOf, verdictOf, verdictWord, wordAt } from '#contracts/verdict-word.js';
import { factsOfGroups, type RuleFacts } from '#policy/evaluate/rule-facts.js';
import type { GroupViews } from './group-views.js';
import { BY_NAME, FINAL, type LookupClasses, lookupClasses } from './lookup-classes.js';
import { LookupPatterns } from './lookup-patterns.js';
import { type NamePool, namePool, namePoolAfter } from './name-pool.js';
import { nameTables } from './name-tables.js';
import type { ProgramTables } from './program-tables.js';
import type { Populations } from './source-populations.js';

/** Compiles the lookup tables of successive policies, and reuses the parts that did not change. */
export class LookupCompiler {
  private classes: LookupClasses | undefined;
  private named: { readonly pool: NamePool; readonly tables: NameTables } = NO_NAMES;

  /**
   * Numbers every pattern of the policy, including those that no source reaches: their grants must stay valid
   * as long as the policy contains the pattern (D12).
   */
  compile(views: GroupViews, words: GroupWords, found: Populations, tables: ProgramTables): LookupTables {
    const { marks, finals, patterns } = walk(views, words, tables);
    const classes = lookupClasses(found, marks, this.classes);
    this.classes = classes;
    const defaults = sharedWords(classes.finals.length);
    for (let number = 0; number < defaults.length; number++) {
      const final = classes.finals[number] as number;
      defaults[number] = final === NONE ? lookupWord(words.policy) : (finals[final] as number);
    }
    const { sources, offsets, groups } = classes;
    return {
      sources,
      classes: { offsets, groups, defaults },
      patterns: patterns.tables(tables.patterns.length),
      names: this.namesOf(tables.patterns),
    };
  }

  private namesOf(patterns: readonly HostnamePattern[]): NameTables {
    const { pool, tables } = this.named;
    const next = namePoolAfter(pool, patterns);
    if (next === pool) return tables;
    this.named = { pool: next, tables: nameTables(next) };
    return this.named.tables;
  }
}

const nothing = namePool([]);
const NO_NAMES = { pool: nothing, tables: nameTables(nothing) };

/** The first rank of each view, and the words of the defaults for packets. */
type GroupWords = {
  readonly firstRanks: Uint32Array;
  readonly defaults: readonly (number | undefined)[];
  readonly policy: number;
};

type Walk = {
  readonly marks: Uint8Array;
  /** For each group the word that decides every lookup, or `NONE`. */
  readonly finals: Uint32Array;
  readonly patterns: LookupPatterns;
};

function walk(
  { policy: { groups }, places }: GroupViews,
  { firstRanks, defaults }: GroupWords,
  tables: ProgramTables,
): Walk {
  const facts = factsOfGroups(groups);
  const marks = new Uint8Array(groups.length);
  const finals = new Uint32Array(groups.length).fill(NONE);
  const patterns = new LookupPatterns();
  for (let group = 0; group < groups.length; group++) {
    const { names, words, final } = (facts[group] as RuleFacts).lookup;
    const firstRank = firstRanks[group] as number;
    const ownPlaces = places[group] ?? null;
    let mark = 0;
    for (let at = 0; at < names.length; at++) {
      const number = tables.addName(names[at] as HostnamePattern);
      const own = words[at] as number;
      if (own === NONE) continue;
      patterns.add(number, group, placedWord(own, firstRank, ownPlaces));
      mark = BY_NAME;
    }
    const byDefault = defaults[group];
    if (final !== NONE) finals[group] = placedWord(final, firstRank, ownPlaces);
    else if (byDefault !== undefined) finals[group] = lookupWord(byDefault);
    marks[group] = finals[group] === NONE ? mark : mark | FINAL;
  }
  return { marks, finals, patterns };
}

/** The word of a rule of a view at the rank of that rule in its group. */
function placedWord(word: number, firstRank: number, places: Uint32Array | null): number {
  const place = rankOf(word);
  return wordAt(firstRank + (places === null ? place : (places[place] as number)), word);
}

/** Converts the word of a default for packets into the word for lookups: an allow is never audited. */
function lookupWord(word: number): number {
  return verdictOf(word) === 'allow' ? verdictWord(rankOf(word), 'allow', false) : word;
}
