import type { AddressSpace } from '#analysis/engine/address-space.js';
import type { Compared, Region } from '#analysis/engine/comparison.js';
import type { Change } from '#analysis/engine/decision-lists.js';
import type { FlowRegion } from '#contracts/analysis/flow-region.js';
import { addressSet } from './address-set.js';
import { exampleOf, explainRequest } from './example-flow.js';
import { flowCondition } from './flow-conditions.js';
import { portTexts, serviceSet } from './service-set.js';

/** Returns a region in the form of an answer, with the conditions of one of its changes. */
export function flowRegion(
  region: Region,
  change: Change,
  flows: bigint,
  { conditions }: Compared,
  space: AddressSpace,
): FlowRegion {
  const atoms = conditions.describe(change.condition);
  return {
    sources: addressSet(region.sources, space),
    destinations: addressSet(region.destinations, space),
    services: serviceSet(region.keys),
    source_ports: portTexts(region.sourcePorts),
    conditions: atoms.map(flowCondition),
    unless: change.unless.map((condition) => conditions.describe(condition).map(flowCondition)),
    flows: flows.toString(),
    example: explainRequest(exampleOf(region, space), atoms, space),
  };
}
