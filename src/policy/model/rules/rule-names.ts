import { itemAt, u32At } from '#arrays/read.js';
import { sharedBytes, sharedWords } from '#arrays/shared-array.js';
import { concatenatedTexts, textAt, textsOf } from '#arrays/texts.js';
import type { Action, Group, Mode, Policy } from '#contracts/policy/policy-model.js';
import type { PolicyRecord } from '#contracts/policy/policy-record.js';
import { NONE } from '#contracts/policy/program.js';
import type { Decider, GroupSources, RuleNames } from '#contracts/policy/rule-names.js';
import { VERDICT_NUMBER } from '#contracts/policy/verdict-word.js';
import { groupSourcesOf } from '#policy/model/sources/group-sources.js';
import { groupChange, ranksOf } from './group-change.js';
import { HitIdentity, mixed } from './hit-identity.js';

const RULE = 0x1_0000;
const GROUP_DEFAULT = 0x1_0001;
const POLICY_DEFAULT = 0x1_0002;
const RECORD = 0x1_0003;

/**
 * Returns the names and hit identities (keys of hit counts) of the rule or default at each rank. These
 * identities do not depend on a policy record; `ruleNamesOfRecord` mixes the id of the record into them.
 */
export function ruleNamesOf(
  { groups, default: policyDefault }: Policy,
  sources: GroupSources = groupSourcesOf(groups),
): RuleNames {
  const ranks = ranksOf(groups, 0, groups.length) + 1;
  const identities = sharedWords(2 * ranks);
  const groupOfRank = sharedWords(ranks);
  const verdicts = sharedBytes(ranks);
  const names: string[] = [];
  const own = new HitIdentity();
  for (const [group, { id, rules, defaultAction, mode }] of groups.entries()) {
    const first = names.length;
    for (let at = 0; at < rules.length; at++) {
      const rule = itemAt(rules, at);
      verdicts[names.length] = verdictNumber(rule.action, rule.mode);
      names.push(rule.id);
    }
    if (defaultAction !== undefined) {
      verdicts[names.length] = verdictNumber(defaultAction, mode);
      names.push('');
    }
    groupOfRank.fill(group, first, names.length);
    own.begin();
    own.text(id, RULE);
    const { low, high } = own;
    for (let rank = first; rank < names.length; rank++) {
      const name = itemAt(names, rank);
      own.continueFrom(low, high);
      own.text(name, name === '' ? GROUP_DEFAULT : RULE);
      own.write(identities, rank);
    }
  }
  own.begin();
  own.text('', POLICY_DEFAULT);
  own.write(identities, names.length);
  groupOfRank[names.length] = NONE;
  verdicts[names.length] = verdictNumber(policyDefault.action, policyDefault.mode);
  names.push('');
  return {
    policy: null,
    identities,
    groups: groupOfRank,
    groupIds: textsOf(groups.map(({ id }) => id)),
    ruleIds: textsOf(names),
    verdicts,
    sources,
  };
}

/**
 * Returns the rule names of `policy`. `known` has the rule names of the groups in `before`; the function
 * copies them for groups that did not change.
 */
export function ruleNamesAfter(
  known: RuleNames,
  before: readonly Group[],
  policy: Policy,
  sources: GroupSources = groupSourcesOf(policy.groups),
): RuleNames {
  const { groups } = policy;
  const change = groupChange(before, groups);
  const first = ranksOf(groups, 0, change.from);
  const added = ranksOf(groups, change.from, change.after);
  const removed = ranksOf(before, change.from, change.before);
  const fresh = ruleNamesOf({ ...policy, groups: groups.slice(change.from, change.after) }, sources);
  const left = known.groups.length - first - removed;
  const identities = sharedWords(2 * (first + added + left));
  identities.set(known.identities.subarray(0, 2 * first));
  identities.set(fresh.identities.subarray(0, 2 * added), 2 * first);
  identities.set(known.identities.subarray(2 * (first + removed)), 2 * (first + added));
  const groupOfRank = sharedWords(first + added + left);
  groupOfRank.set(known.groups.subarray(0, first));
  for (let rank = 0; rank < added; rank++) groupOfRank[first + rank] = u32At(fresh.groups, rank) + change.from;
  for (let rank = 0; rank < left; rank++) {
    const group = u32At(known.groups, first + removed + rank);
    groupOfRank[first + added + rank] = group === NONE ? NONE : group + change.after - change.before;
  }
  const verdicts = sharedBytes(first + added + left);
  verdicts.set(known.verdicts.subarray(0, first));
  verdicts.set(fresh.verdicts.subarray(0, added), first);
  verdicts.set(known.verdicts.subarray(first + removed), first + added);
  verdicts[first + added + left - 1] = verdictNumber(policy.default.action, policy.default.mode);
  return {
    policy: null,
    identities,
    groups: groupOfRank,
    groupIds: concatenatedTexts([
      { texts: known.groupIds, from: 0, to: change.from },
      { texts: fresh.groupIds, from: 0, to: change.after - change.from },
      { texts: known.groupIds, from: change.before, to: before.length },
    ]),
    ruleIds: concatenatedTexts([
      { texts: known.ruleIds, from: 0, to: first },
      { texts: fresh.ruleIds, from: 0, to: added },
      { texts: known.ruleIds, from: first + removed, to: known.groups.length },
    ]),
    verdicts,
    sources,
  };
}

function verdictNumber(action: Action, mode: Mode): number {
  return VERDICT_NUMBER[action === 'deny' && mode === 'audit' ? 'audit' : action];
}

/**
 * Mixes the id of a policy record into the hit identities. So rules with equal names in two records have
 * separate hit counts.
 */
export function ruleNamesOfRecord(ruleNames: RuleNames, record: Pick<PolicyRecord, 'id' | 'revision'>): RuleNames {
  const identities = sharedWords(ruleNames.identities.length);
  mixRecord(record.id, ruleNames.identities, identities);
  return { ...ruleNames, policy: { id: record.id, revision: record.revision }, identities };
}

/**
 * Returns the low and the high 32 bits of the hit identity for a rule or default. `policy` is the policy
 * record of the rule; null if no policy is active.
 */
export function identityOf(policy: RuleNames['policy'], decider: Decider): readonly [low: number, high: number] {
  const words = new Uint32Array(2);
  const own = new HitIdentity();
  own.begin();
  if (decider.kind === 'policy_default') own.text('', POLICY_DEFAULT);
  else {
    own.text(decider.group, RULE);
    if (decider.kind === 'rule') own.text(decider.rule, RULE);
    else own.text('', GROUP_DEFAULT);
  }
  own.write(words, 0);
  if (policy !== null) mixRecord(policy.id, words, words);
  return [u32At(words, 0), u32At(words, 1)];
}

function mixRecord(id: string, from: Uint32Array, to: Uint32Array): void {
  const owner = new Uint32Array(2);
  const own = new HitIdentity();
  own.begin();
  own.text(id, RECORD);
  own.write(owner, 0);
  for (let at = 0; at < from.length; at += 2) {
    const low = u32At(from, at);
    if (low === 0) continue;
    to[at] = mixed(low ^ u32At(owner, 0)) || 1;
    to[at + 1] = mixed(u32At(from, at + 1) ^ u32At(owner, 1));
  }
}

export function deciderAt({ groups, groupIds, ruleIds }: RuleNames, rank: number): Decider {
  const group = u32At(groups, rank);
  if (group === NONE) return { kind: 'policy_default' };
  const rule = textAt(ruleIds, rank);
  const id = textAt(groupIds, group);
  return rule === '' ? { kind: 'group_default', group: id } : { kind: 'rule', group: id, rule };
}

/**
 * Returns a key that is unique for each rule or default. A line break separates group and rule, because ids
 * contain no line break.
 */
export function deciderKey(decider: Decider): string {
  if (decider.kind === 'policy_default') return '';
  return decider.kind === 'group_default' ? decider.group : `${decider.group}\n${decider.rule}`;
}
