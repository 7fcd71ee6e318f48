import type { FlowFilter } from '#dataplane/datapath.js';

/** Every flow, but for what is given. */
export function anyFlow(given: Partial<FlowFilter> = {}): FlowFilter {
  return {
    sources: [],
    destinations: [],
    ports: [],
    sourcePorts: [],
    destinationPorts: [],
    protocols: [],
    groups: [],
    rules: [],
    verdicts: [],
    states: [],
    foreign: undefined,
    current: undefined,
    minBytes: 0,
    ...given,
  };
}
