import { type AddressSpace, type FamilySpans, joinedFamilies } from '#analysis/engine/address-space.js';
import type { Compared } from '#analysis/engine/comparison.js';
import { type Entry, passes } from '#analysis/engine/decision-lists.js';
import type { LookupChange } from '#contracts/analysis/policy-diff.js';
import { addressSet } from './address-set.js';
import { flowCondition } from './flow-conditions.js';

const EFFECTS: readonly LookupChange['effect'][] = ['opens', 'closes', 'audit'];

/**
 * Returns the changes of DNS lookups; what opens comes first. Changes that differ only in their sources are
 * one, also if the sources are of two families.
 */
export function lookupChanges(
  { lookups, lookupConditions: conditions }: Compared,
  spaces: readonly AddressSpace[],
): LookupChange[] {
  const found = new Map<string, { readonly change: Omit<LookupChange, 'sources'>; readonly sources: FamilySpans[] }>();
  for (const { sources, changes } of lookups)
    for (const { condition, from, to } of changes) {
      const atoms = conditions.describe(condition);
      const patterns = atoms.flatMap((atom) => (atom.kind === 'name' ? [atom.pattern.text] : []));
      const change = {
        effect: passes(from.outcome) === passes(to.outcome) ? 'audit' : passes(to.outcome) ? 'opens' : 'closes',
        names: patterns.length === 0 ? '*' : patterns.join(' and '),
        conditions: atoms.filter(({ kind }) => kind !== 'name').map(flowCondition),
        before: decidedBy(from),
        after: decidedBy(to),
      } as const;
      const key = JSON.stringify(change);
      const known = found.get(key);
      if (known === undefined) found.set(key, { change, sources: [sources] });
      else known.sources.push(sources);
    }
  return [...found.values()]
    .map(({ change, sources }) => ({ ...change, sources: addressSet(joinedFamilies(sources, spaces)) }))
    .sort((one, other) => EFFECTS.indexOf(one.effect) - EFFECTS.indexOf(other.effect));
}

function decidedBy({ outcome }: Entry): LookupChange['before'] {
  return { decision: outcome === 'allow' ? 'allow' : 'deny', mode: outcome === 'audit' ? 'audit' : 'enforce' };
}
