import { itemAt, u32At } from '#arrays/read.js';
import { sharedWords } from '#arrays/shared-array.js';
import type { LookupTables, NameTables } from '#contracts/dns/dns-lookup-tables.js';
import type { HostnamePattern } from '#contracts/policy/policy-model.js';
import { NONE } from '#contracts/policy/program.js';
import { rankOf, verdictOf, verdictWord, wordAt } from '#contracts/policy/verdict-word.js';
import type { ProgramTables } from '#policy/compile/program-tables.js';
import type { GroupViews } from '#policy/compile/sources/group-views.js';
import type { Populations } from '#policy/compile/sources/source-populations.js';
import { factsOf } from '#policy/evaluate/rule-facts.js';
import { BY_NAME, FINAL, type LookupClasses, lookupClasses } from './lookup-classes.js';
import { LookupPatterns } from './lookup-patterns.js';
import { type NamePool, namePool, namePoolAfter, nameTables } from './name-pool.js';

/** Compiles the DNS lookup tables of successive policies, and reuses tables that did not change. */
export class LookupCompiler {
  private classes: LookupClasses | undefined;
  private named: { readonly pool: NamePool; readonly tables: NameTables } = NO_NAMES;

  /**
   * Compiles the DNS lookup tables. Every pattern of the policy gets a number, even if no source reaches its
   * rules: the grants of a pattern (addresses of its names) stay valid while the policy contains the pattern
   * (D12).
   */
  compile(views: GroupViews, words: GroupWords, found: Populations, tables: ProgramTables): LookupTables {
    const { marks, finals, patterns } = walk(views, words, tables);
    const classes = lookupClasses(found, marks, this.classes);
    this.classes = classes;
    const defaults = sharedWords(classes.finals.length);
    for (let number = 0; number < defaults.length; number++) {
      const final = u32At(classes.finals, number);
      defaults[number] = final === NONE ? lookupWord(words.policy) : u32At(finals, final);
    }
    const { sources, members, offsets, groups } = classes;
    return {
      sources,
      members,
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

/**
 * For each group of `GroupViews.policy`, the first rank of the original group, and the verdict word (rank and
 * verdict) of the group's default for packets. `policy` is the verdict word of the policy default.
 */
type GroupWords = {
  readonly firstRanks: Uint32Array;
  readonly defaults: readonly (number | undefined)[];
  readonly policy: number;
};

type Walk = {
  readonly marks: Uint8Array;
  /**
   * For each group of `GroupViews.policy`, the verdict word (rank and verdict) for DNS lookups that its
   * hostname rules do not decide. `NONE` if the group does not decide such lookups.
   */
  readonly finals: Uint32Array;
  readonly patterns: LookupPatterns;
};

function walk(
  { policy: { groups }, lookups }: GroupViews,
  { firstRanks, defaults }: GroupWords,
  tables: ProgramTables,
): Walk {
  const marks = new Uint8Array(groups.length);
  const finals = new Uint32Array(groups.length).fill(NONE);
  const patterns = new LookupPatterns();
  for (let group = 0; group < groups.length; group++) {
    const { rules, places } = itemAt(lookups, group);
    const { names, words, final } = factsOf(rules).lookup;
    const firstRank = u32At(firstRanks, group);
    let mark = 0;
    for (let at = 0; at < names.length; at++) {
      const number = tables.addName(itemAt(names, at));
      const own = u32At(words, at);
      if (own === NONE) continue;
      patterns.add(number, group, placedWord(own, firstRank, places));
      mark = BY_NAME;
    }
    const byDefault = defaults[group];
    if (final !== NONE) finals[group] = placedWord(final, firstRank, places);
    else if (byDefault !== undefined) finals[group] = lookupWord(byDefault);
    marks[group] = finals[group] === NONE ? mark : mark | FINAL;
  }
  return { marks, finals, patterns };
}

/**
 * Converts the verdict word of a DNS lookup rule. In `word`, the rank is the index of the rule in its part
 * of `GroupViews.lookups`. In the result, it is the rank of the rule in the original policy. `places`: for
 * each rule of the group, its index in the original group; null if both groups have the same rules.
 */
function placedWord(word: number, firstRank: number, places: Uint32Array | null): number {
  const place = rankOf(word);
  return wordAt(firstRank + (places === null ? place : u32At(places, place)), word);
}

/**
 * Converts the verdict word of a default for packets to the word for DNS lookups. An allow loses its audit
 * bit, and all other words stay unchanged.
 */
function lookupWord(word: number): number {
  return verdictOf(word) === 'allow' ? verdictWord(rankOf(word), 'allow', false) : word;
}
