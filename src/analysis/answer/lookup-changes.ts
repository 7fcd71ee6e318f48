import type { Compared } from '#analysis/engine/comparison.js';
import { type Entry, passes } from '#analysis/engine/decision-lists.js';
import type { LookupChange } from '#contracts/analysis/policy-diff.js';
import { addressSet } from './address-set.js';
import { flowCondition } from './flow-conditions.js';

const EFFECTS: readonly LookupChange['effect'][] = ['opens', 'closes', 'audit'];

/** Returns the changes of DNS lookups; what opens comes first. */
export function lookupChanges({ lookups, lookupConditions: conditions }: Compared): LookupChange[] {
  return lookups
    .flatMap(({ sources, changes }) =>
      changes.map(({ condition, from, to }): LookupChange => {
        const atoms = conditions.describe(condition);
        const patterns = atoms.flatMap((atom) => (atom.kind === 'name' ? [atom.pattern.text] : []));
        return {
          effect: passes(from.outcome) === passes(to.outcome) ? 'audit' : passes(to.outcome) ? 'opens' : 'closes',
          sources: addressSet([sources]),
          names: patterns.length === 0 ? '*' : patterns.join(' and '),
          conditions: atoms.filter(({ kind }) => kind !== 'name').map(flowCondition),
          before: decidedBy(from),
          after: decidedBy(to),
        };
      }),
    )
    .sort((one, other) => EFFECTS.indexOf(one.effect) - EFFECTS.indexOf(other.effect));
}

function decidedBy({ outcome }: Entry): LookupChange['before'] {
  return { decision: outcome === 'allow' ? 'allow' : 'deny', mode: outcome === 'audit' ? 'audit' : 'enforce' };
}
