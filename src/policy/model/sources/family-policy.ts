import type { Family, Group, Policy, Rule } from '#contracts/policy/policy-model.js';
import { ofFamily } from '#policy/model/ip-address.js';

/**
 * Returns a policy that decides packets of one family as `policy` does: without the prefixes of the other
 * family, and without the rules that have no others. Returns the same objects for groups and policies that
 * need no change, and the same result for each call with the same policy.
 */
export function policyOfFamily(policy: Policy, family: Family): Policy {
  const found = knownPolicies[family].get(policy);
  if (found !== undefined) return found;
  const groups = policy.groups.map((group) => groupOfFamily(group, family));
  const isSame = groups.every((group, at) => group === policy.groups[at]);
  const result = isSame ? policy : { ...policy, groups };
  knownPolicies[family].set(policy, result);
  return result;
}

const knownPolicies: Readonly<Record<Family, WeakMap<Policy, Policy>>> = { ipv4: new WeakMap(), ipv6: new WeakMap() };

function groupOfFamily(group: Group, family: Family): Group {
  const sources = ofFamily(group.sources, family);
  const { rules } = rulesOfFamily(group.rules, family);
  return sources === group.sources && rules === group.rules ? group : { ...group, sources, rules };
}

/**
 * A part of the rules of a group. `places`: for each rule, its index in the group; null if the part has all
 * rules.
 */
type Part = { readonly rules: readonly Rule[]; readonly places: Uint32Array | null };
type Parts = { readonly own: Part; readonly denies: Part & { readonly places: Uint32Array } };

/**
 * The parts of known rule lists. The same rule list gives the same list objects each time, because
 * `CompileMemory` finds cached rule blocks by list identity.
 */
const known: Readonly<Record<Family, WeakMap<readonly Rule[], Partial<Parts>>>> = {
  ipv4: new WeakMap(),
  ipv6: new WeakMap(),
};

function partsOf(rules: readonly Rule[], family: Family): Partial<{ -readonly [Name in keyof Parts]: Parts[Name] }> {
  const found = known[family].get(rules);
  if (found !== undefined) return found;
  const parts = {};
  known[family].set(rules, parts);
  return parts;
}

/**
 * Returns the rules that can match a packet of the family, without the destinations of the other family.
 */
export function rulesOfFamily(rules: readonly Rule[], family: Family): Part {
  const parts = partsOf(rules, family);
  parts.own ??= partOf(rules, family, () => true);
  return parts.own;
}

export function deniesOfFamily(rules: readonly Rule[], family: Family): Parts['denies'] {
  const parts = partsOf(rules, family);
  if (parts.denies === undefined) {
    const { rules: denies, places } = partOf(rules, family, ({ action }) => action === 'deny');
    parts.denies = { rules: denies, places: places ?? Uint32Array.from(rules.keys()) };
  }
  return parts.denies;
}

function partOf(rules: readonly Rule[], family: Family, isWanted: (rule: Rule) => boolean): Part {
  const kept: Rule[] = [];
  const places: number[] = [];
  let isWhole = true;
  for (const [place, rule] of rules.entries()) {
    const destinations = ofFamily(rule.destinations, family);
    const canMatch = rule.destinations.length === 0 || destinations.length > 0;
    if (!canMatch || !isWanted(rule)) continue;
    isWhole &&= destinations === rule.destinations;
    kept.push(destinations === rule.destinations ? rule : { ...rule, destinations });
    places.push(place);
  }
  if (isWhole && kept.length === rules.length) return { rules, places: null };
  return { rules: kept, places: Uint32Array.from(places) };
}
