import { u32At } from '#arrays/read.js';
import { textFinder } from '#arrays/texts.js';
import type { Hit, HitQuery, HitReport } from '#contracts/datapath/datapath.js';
import type { StagedRuleNames } from '#contracts/datapath/event-source.js';
import type { RuleNames } from '#contracts/policy/rule-names.js';
import type { Moment } from '#dataplane/flows/moment.js';
import { deciderAt } from '#policy/model/rules/rule-names.js';
import type { Hits } from './hits.js';

/**
 * Returns the hits of the rules and defaults of one compiled policy that match the query, in the order of the
 * policy.
 */
export function hitReport(
  hits: Hits,
  { ruleNames, generation, entries }: StagedRuleNames,
  query: HitQuery,
  moment: Moment,
): HitReport {
  const { from, limit, unused } = query;
  const isNamed = rankFinder(ruleNames, query);
  const items: Hit[] = [];
  let rank = from;
  for (; rank < entries.length && items.length < limit; rank++) {
    const entry = u32At(entries, rank);
    if (entry === 0 || !isNamed(rank)) continue;
    const packets = hits.packets(entry);
    if (unused !== undefined && unused !== (packets === 0n)) continue;
    const lastMs = moment.dateOf(hits.lastNs(entry));
    items.push({
      decider: deciderAt(ruleNames, rank),
      packets,
      bytes: hits.bytes(entry),
      lastMs: packets === 0n ? null : lastMs,
      unusedSinceMs: packets === 0n ? lastMs : null,
    });
  }
  const next = rank < entries.length ? rank : null;
  return { policy: ruleNames.policy, generation, sinceMs: moment.dateOf(hits.sinceNs), items, next };
}

/**
 * Returns a function that tests a rank (the place of a rule in the policy): the rule must belong to one of
 * the wanted groups and be one of the wanted rules. An empty list accepts all groups or all rules.
 */
export function rankFinder(
  { groups, groupIds, ruleIds }: RuleNames,
  wanted: { readonly groups: readonly string[]; readonly rules: readonly string[] },
): (rank: number) => boolean {
  const isGroup = textFinder(groupIds, wanted.groups);
  const isRule = textFinder(ruleIds, wanted.rules);
  const groupWanted = groupIds.ends.map((_, group) => (wanted.groups.length === 0 || isGroup(group) ? 1 : 0));
  return (rank) =>
    (wanted.groups.length === 0 || groupWanted[u32At(groups, rank)] === 1) &&
    (wanted.rules.length === 0 || isRule(rank));
}
