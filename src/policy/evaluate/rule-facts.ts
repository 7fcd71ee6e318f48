import { itemAt } from '#arrays/read.js';
import type { Group, Rule } from '#contracts/policy/policy-model.js';
import { outcomeBits } from '#contracts/policy/verdict-word.js';
import { type LookupFacts, lookupFacts } from '#policy/evaluate/lookup/lookup-facts.js';
import { outcomeOf } from '#policy/model/rules/rank.js';
import { isCatchAll } from '#policy/model/rules/rule-coverage.js';

/**
 * Properties of the rules of a group. They are computed once for each list of rules, because many functions
 * use them.
 */
export type RuleFacts = {
  /** A number that identifies this list of rules. It is unique within the thread. */
  readonly number: number;
  /** For each rule, the verdict word (rank and verdict) that the rule would have at rank 0. */
  readonly outcomes: Uint8Array;
  readonly hasHostname: boolean;
  readonly hasTls: boolean;
  readonly hasCatchAll: boolean;
  /**
   * `auditDenies`: the indexes of deny rules in audit mode. `hasEnforcedDeny`: whether the list has an
   * enforced deny rule. Both fields ignore TLS rules.
   */
  readonly auditDenies: readonly number[];
  readonly hasEnforcedDeny: boolean;
  readonly lookup: LookupFacts;
};

const known = new WeakMap<readonly Rule[], RuleFacts>();
let lists = 0;

export function factsOf(rules: readonly Rule[]): RuleFacts {
  const found = known.get(rules);
  if (found !== undefined) return found;
  const facts = look(rules);
  known.set(rules, facts);
  return facts;
}

const ofGroups = new WeakMap<readonly Group[], readonly RuleFacts[]>();

export function factsOfGroups(groups: readonly Group[]): readonly RuleFacts[] {
  const found = ofGroups.get(groups);
  if (found !== undefined) return found;
  const facts = groups.map(({ rules }) => factsOf(rules));
  ofGroups.set(groups, facts);
  return facts;
}

function look(rules: readonly Rule[]): RuleFacts {
  const bits = new Uint8Array(rules.length);
  const auditDenies: number[] = [];
  let hasHostname = false;
  let hasTls = false;
  let hasEnforcedDeny = false;
  for (let place = 0; place < rules.length; place++) {
    const rule = itemAt(rules, place);
    const { verdict, audited } = outcomeOf(rule);
    bits[place] = outcomeBits(verdict, audited);
    hasHostname ||= rule.hostname !== undefined;
    hasTls ||= rule.tls !== undefined;
    if (verdict === 'audit') auditDenies.push(place);
    hasEnforcedDeny ||= verdict === 'deny';
  }
  return {
    number: lists++,
    outcomes: bits,
    hasHostname,
    hasTls,
    hasCatchAll: rules.some(isCatchAll),
    auditDenies,
    hasEnforcedDeny,
    lookup: lookupFacts(rules, hasHostname),
  };
}
