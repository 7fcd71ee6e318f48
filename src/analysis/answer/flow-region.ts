import type { Compared, Region } from '#analysis/engine/comparison.js';
import type { Change } from '#analysis/engine/decision-lists.js';
import type { FlowRegion } from '#contracts/analysis/flow-region.js';
import { addressSet } from './address-set.js';
import { exampleOf, explainRequest } from './example-flow.js';
import { flowCondition } from './flow-conditions.js';
import { flowsOf, portTexts, serviceSet } from './service-set.js';

/** Returns the number of flows in a region. */
export function flowCount({ space, sources, destinations, keys, sourcePorts }: Region): bigint {
  const count = (spans: Region['sources']) => spans.reduce((sum, span) => sum + space.sizeOf(span), 0n);
  return count(sources) * count(destinations) * flowsOf(keys, sourcePorts, space.family);
}

/** Returns a region in the form of an answer, with the conditions of one of its changes. */
export function flowRegion(region: Region, change: Change, flows: bigint, { conditions }: Compared): FlowRegion {
  const { space } = region;
  const atoms = conditions.describe(change.condition);
  return {
    sources: addressSet([{ space, spans: region.sources }]),
    destinations: addressSet([{ space, spans: region.destinations }]),
    services: serviceSet(region.keys, space.family),
    source_ports: portTexts(region.sourcePorts),
    conditions: atoms.map(flowCondition),
    unless: change.unless.map((condition) => conditions.describe(condition).map(flowCondition)),
    flows: flows.toString(),
    example: explainRequest(exampleOf(region), atoms, space),
  };
}
