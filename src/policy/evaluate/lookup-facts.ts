import type { HostnamePattern, Rule } from '#contracts/policy-model.js';
import { NONE } from '#contracts/program.js';
import { verdictWord } from '#contracts/verdict-word.js';
import { GrowingWords } from '#policy/model/growing-words.js';
import { lookupExclusion, lookupOutcome } from './evaluate-lookup.js';

/** How the rules of a group decide lookups (D11). Words are for a group whose first rank is 0. */
export type LookupFacts = {
  /** The word of the first rule that decides every lookup, or `NONE`. */
  readonly final: number;
  /** The hostnames of the rules in their order, with repetitions. */
  readonly names: readonly HostnamePattern[];
  /**
   * The word with which each of them decides lookups; `NONE` if it decides none, or if an earlier rule
   * decides every lookup.
   */
  readonly words: Uint32Array;
};

export function lookupFacts(rules: readonly Rule[], hasHostname: boolean): LookupFacts {
  let final = NONE;
  const names: HostnamePattern[] = [];
  const words = new GrowingWords(hasHostname ? rules.length : 0);
  for (let place = 0; place < rules.length && (hasHostname || final === NONE); place++) {
    const rule = rules[place] as Rule;
    const { hostname } = rule;
    let decided = NONE;
    if (final === NONE && lookupExclusion(rule) === undefined) {
      decided = wordOf(place, rule);
      if (hostname === undefined || hostname.kind === 'any') final = decided;
    }
    if (hostname === undefined) continue;
    names.push(hostname);
    words.push(hostname.kind === 'any' ? NONE : decided);
  }
  return { final, names, words: words.array.subarray(0, words.length) };
}

function wordOf(place: number, { action, mode }: Rule): number {
  const { verdict, audited } = lookupOutcome(action, mode);
  return verdictWord(place, verdict, audited);
}
