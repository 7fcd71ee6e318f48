import type { FindingDelta } from './finding.js';
import { nobody } from './no-decider.js';

/** A finding that says that `count` events were lost at `where`. */
export function gap(where: string, count: number, firstMs: number, lastMs: number): FindingDelta {
  return { ...nobody, type: 'gap', effectiveAction: 'allow', target: where, generation: null, firstMs, lastMs, count };
}
