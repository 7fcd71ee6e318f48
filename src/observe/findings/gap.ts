import { emptyIdentity } from './empty-identity.js';
import type { FindingDelta } from './finding.js';

/**
 * Returns a finding of type `gap`. The finding reports that the component `where` lost `count` events between
 * the times `firstMs` and `lastMs`, in milliseconds since 1970.
 */
export function gap(where: string, count: number, firstMs: number, lastMs: number): FindingDelta {
  return {
    ...emptyIdentity,
    type: 'gap',
    effectiveAction: 'allow',
    target: where,
    generation: null,
    firstMs,
    lastMs,
    count,
  };
}
