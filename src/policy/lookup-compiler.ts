import { lookupOutcome } from './lookup.js';
import { BY_NAME, FINAL, type LookupClasses, lookupClasses } from './lookup-classes.js';
import { LookupPatterns } from './lookup-patterns.js';
import type { LookupTables } from './lookup-tables.js';
import type { Action, Group, HostnamePattern, Mode, Policy } from './model.js';
import { type NameTables, nameTables } from './name-tables.js';
import { NONE, word } from './program.js';
import type { ProgramTables } from './program-tables.js';
import { factsOfGroups, type RuleFacts } from './rule-facts.js';
import { sharedWords } from './shared-array.js';
import type { Populations } from './source-lists.js';

/** Makes the lookup tables of one policy after the other; what did not change since the one before is used again. */
export class LookupCompiler {
  private classes: LookupClasses | undefined;
  private named: { readonly patterns: readonly HostnamePattern[]; readonly tables: NameTables } | undefined;

  /**
   * Gives every pattern of the policy its number, also those that no source reaches: what is granted to them stays while
   * the policy has them (D12).
   */
  compile(policy: Policy, found: Populations, tables: ProgramTables): LookupTables {
    const { marks, finals, byDefault, patterns } = walk(policy, tables);
    const classes = lookupClasses(found, marks, this.classes);
    this.classes = classes;
    const defaults = sharedWords(classes.finals.length);
    for (let number = 0; number < defaults.length; number++) {
      defaults[number] = finals[classes.finals[number] as number] ?? byDefault;
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
    const { named } = this;
    if (named !== undefined && areSame(named.patterns, patterns)) return named.tables;
    const tables = nameTables(patterns);
    this.named = { patterns, tables };
    return tables;
  }
}

type Walk = {
  readonly marks: Uint8Array;
  /** Per group the word that decides every lookup, or `NONE`. */
  readonly finals: Uint32Array;
  /** The word of the policy's default. */
  readonly byDefault: number;
  readonly patterns: LookupPatterns;
};

function walk({ groups, default: decides }: Policy, tables: ProgramTables): Walk {
  const facts = factsOfGroups(groups);
  const marks = new Uint8Array(groups.length);
  const finals = new Uint32Array(groups.length);
  const patterns = new LookupPatterns();
  let rank = 0;
  for (let group = 0; group < groups.length; group++) {
    const { rules, defaultAction, mode } = groups[group] as Group;
    const { names, words, final } = (facts[group] as RuleFacts).lookup;
    const base = word(rank, 'allow', false) - word(0, 'allow', false);
    for (let at = 0; at < names.length; at++) {
      const number = tables.addName(names[at] as HostnamePattern);
      const own = words[at] as number;
      if (own === NONE) continue;
      patterns.add(number, group, base + own);
      marks[group] = BY_NAME;
    }
    rank += rules.length;
    finals[group] = final === NONE ? NONE : base + final;
    if (defaultAction !== undefined) {
      if (final === NONE) finals[group] = wordOf(rank, defaultAction, mode);
      rank += 1;
    }
    if (finals[group] !== NONE) marks[group] = (marks[group] as number) | FINAL;
  }
  return { marks, finals, byDefault: wordOf(rank, decides.action, decides.mode), patterns };
}

function wordOf(rank: number, action: Action, mode: Mode): number {
  const { verdict, audited } = lookupOutcome(action, mode);
  return word(rank, verdict, audited);
}

function areSame(known: readonly HostnamePattern[], patterns: readonly HostnamePattern[]): boolean {
  return (
    known.length === patterns.length &&
    known.every((pattern, number) => pattern === patterns[number] || pattern.text === patterns[number]?.text)
  );
}
