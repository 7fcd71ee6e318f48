import { ofFamily } from '#addresses/ip-address.js';
import { itemAt } from '#arrays/read.js';
import type { Family, Rule } from '#contracts/policy/policy-model.js';

/**
 * A part of the rules of a group. `places`: for each rule, its index in the group; null if the part has all
 * rules.
 */
export type Part = { readonly rules: readonly Rule[]; readonly places: Uint32Array | null };
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

const knownDenies = new WeakMap<readonly Rule[], Parts['denies']>();

/** Returns the deny rules of all families. The same rule list gives the same result each time. */
export function deniesOf(rules: readonly Rule[]): Parts['denies'] {
  const found = knownDenies.get(rules);
  if (found !== undefined) return found;
  const places = Uint32Array.from([...rules.keys()].filter((place) => rules[place]?.action === 'deny'));
  const denies = { rules: Array.from(places, (place) => itemAt(rules, place)), places };
  knownDenies.set(rules, denies);
  return denies;
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
