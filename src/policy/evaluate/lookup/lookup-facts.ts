import { GrowingUint32Array } from '#arrays/growing-uint32-array.js';
import { itemAt } from '#arrays/read.js';
import type { HostnamePattern, Rule } from '#contracts/policy/policy-model.js';
import { NONE } from '#contracts/policy/program.js';
import { verdictWord } from '#contracts/policy/verdict-word.js';
import { lookupExclusion, lookupOutcome } from './evaluate-lookup.js';

/**
 * How the rules of one group decide DNS lookups (D11). In each verdict word (rank and verdict), the rank is
 * the index of the rule in the group.
 */
export type LookupFacts = {
  /**
   * The verdict word (rank and verdict) of the first rule that decides every DNS lookup independently of the
   * name; `NONE` if the group has no such rule.
   */
  readonly final: number;
  /** The hostname patterns of the rules in rule order. A pattern may appear several times. */
  readonly names: readonly HostnamePattern[];
  /**
   * For each element of `names`, the verdict word (rank and verdict) of its rule for DNS lookups. `NONE` if
   * the rule decides no lookup, if an earlier rule decides every lookup, or if the pattern is `*`. For `*`,
   * `final` contains the verdict word.
   */
  readonly words: Uint32Array;
};

export function lookupFacts(rules: readonly Rule[], hasHostname: boolean): LookupFacts {
  let final = NONE;
  const names: HostnamePattern[] = [];
  const words = new GrowingUint32Array(hasHostname ? rules.length : 0);
  for (let place = 0; place < rules.length && (hasHostname || final === NONE); place++) {
    const rule = itemAt(rules, place);
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
