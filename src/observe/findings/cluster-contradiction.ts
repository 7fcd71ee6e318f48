import { emptyIdentity } from './empty-identity.js';
import type { FindingDelta } from './finding.js';

/**
 * Returns a finding of type `cluster_contradiction`. `code` is the kind of the contradiction, such as
 * `older`. `atMs` is the time in milliseconds since 1970.
 */
export function clusterContradiction(code: string, atMs: number): FindingDelta {
  return {
    ...emptyIdentity,
    type: 'cluster_contradiction',
    effectiveAction: 'allow',
    target: 'etcd',
    reason: code,
    generation: null,
    firstMs: atMs,
    lastMs: atMs,
    count: 1,
  };
}
