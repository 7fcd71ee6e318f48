import { Identity, mixed } from './identity.js';
import type { Group, Policy, Rule } from './model.js';
import { NONE } from './program.js';
import type { PolicyRecord } from './record.js';
import { joinTexts, type Texts, textAt, textsOf } from './texts.js';

/** Who stands at each rank of a program: under which identity its hits are counted, and by which names it is shown. */
export type Roster = {
  /** The record that the policy is of; null where none is active. */
  readonly policy: Pick<PolicyRecord, 'id' | 'revision'> | null;
  /** Low and high word for each rank; both 0 where nobody stands there. */
  readonly identities: Uint32Array;
  /** Rank → group, in the order of the walk; `NONE` for the policy's default. */
  readonly groups: Uint32Array;
  readonly groupIds: Texts;
  /** By rank; empty for defaults. */
  readonly ruleIds: Texts;
};

export type Decider =
  | { readonly kind: 'rule'; readonly group: string; readonly rule: string }
  | { readonly kind: 'group_default'; readonly group: string }
  | { readonly kind: 'policy_default' };

const RULE = 0x1_0000;
const GROUP_DEFAULT = 0x1_0001;
const POLICY_DEFAULT = 0x1_0002;
const RECORD = 0x1_0003;

/** The roster of the ranks that `places` gives, of no record yet. */
export function rosterOf({ groups }: Policy): Roster {
  const parts = groups.map(partOf);
  const ranks = parts.reduce((sum, { ids }) => sum + ids.ends.length, 1);
  const identities = new Uint32Array(2 * ranks);
  const groupOfRank = new Uint32Array(ranks);
  let rank = 0;
  for (const [group, part] of parts.entries()) {
    identities.set(part.identities, 2 * rank);
    groupOfRank.fill(group, rank, rank + part.ids.ends.length);
    rank += part.ids.ends.length;
  }
  const own = new Identity();
  own.begin();
  own.text('', POLICY_DEFAULT);
  own.finish();
  identities.set([own.low, own.high], 2 * rank);
  groupOfRank[rank] = NONE;
  return {
    policy: null,
    identities,
    groups: groupOfRank,
    groupIds: textsOf(groups.map(({ id }) => id)),
    ruleIds: joinTexts([...parts.map(({ ids }) => ids), { bytes: new Uint8Array(), ends: Uint32Array.of(0) }]),
  };
}

/** The same roster with the identities of a record: what another record calls by the same names is counted apart. */
export function rosterOfRecord(roster: Roster, record: Pick<PolicyRecord, 'id' | 'revision'>): Roster {
  const owner = new Identity();
  owner.begin();
  owner.text(record.id, RECORD);
  owner.finish();
  const identities = new Uint32Array(roster.identities.length);
  for (let at = 0; at < identities.length; at += 2) {
    const [low, high] = [roster.identities[at] as number, roster.identities[at + 1] as number];
    if (low === 0 && high === 0) continue;
    identities[at] = mixed(low ^ owner.low) || 1;
    identities[at + 1] = mixed(high ^ owner.high);
  }
  return { ...roster, policy: { id: record.id, revision: record.revision }, identities };
}

export function deciderAt({ groups, groupIds, ruleIds }: Roster, rank: number): Decider {
  const group = groups[rank] as number;
  if (group === NONE) return { kind: 'policy_default' };
  const rule = textAt(ruleIds, rank);
  const id = textAt(groupIds, group);
  return rule === '' ? { kind: 'group_default', group: id } : { kind: 'rule', group: id, rule };
}

/** The ranks of one group: its rules, then its default where it has one. */
type Part = { readonly group: Group; readonly identities: Uint32Array; readonly ids: Texts };

/** Lists of rules that stay the same from policy to policy are read once. */
const known = new WeakMap<readonly Rule[], Part>();

function partOf(group: Group): Part {
  const { id, rules, defaultAction } = group;
  const found = known.get(rules);
  const hadDefault = found?.group.defaultAction !== undefined;
  if (found?.group.id === id && hadDefault === (defaultAction !== undefined)) return found;
  const names = rules.map((rule) => rule.id);
  if (defaultAction !== undefined) names.push('');
  const part = { group, identities: identitiesOf(id, names), ids: textsOf(names) };
  known.set(rules, part);
  return part;
}

function identitiesOf(group: string, names: readonly string[]): Uint32Array {
  const identities = new Uint32Array(2 * names.length);
  const own = new Identity();
  own.begin();
  own.text(group, RULE);
  const { low, high } = own;
  for (let rank = 0; rank < names.length; rank++) {
    const name = names[rank] as string;
    own.continueFrom(low, high);
    own.text(name, name === '' ? GROUP_DEFAULT : RULE);
    own.finish();
    identities[2 * rank] = own.low || 1;
    identities[2 * rank + 1] = own.high;
  }
  return identities;
}
