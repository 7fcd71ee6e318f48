import { bitsOf, familyOf } from '#addresses/ip-address.js';
import { hasAddress } from '#addresses/memory-words.js';
import type {
  Datapath,
  FlowFilter,
  FlowPage,
  FlowQuery,
  GroupTraffic,
  HitQuery,
  HitReport,
  Learned,
  LiveFlow,
} from '#contracts/datapath/datapath.js';
import type { DestinationTranslation } from '#contracts/datapath/translation.js';
import type { Arrival, OpenFlow } from '#contracts/policy/explain-facts.js';
import type { Address, Packet, Prefix, Range } from '#contracts/policy/policy-model.js';
import { type Refusal, refusal } from '#contracts/refusal.js';
import { anyFlow } from '#dataplane/flows/listing/flow-filter.js';

/** Functions about the present traffic. Each returns a `Refusal` while no datapath is open. */
export type Traffic = {
  hits(query: HitQuery): Promise<HitReport | Refusal>;
  /** Returns the traffic of the source groups; see `Datapath.groupTraffic`. Null if none is counted. */
  groupTraffic(): Promise<GroupTraffic | null | Refusal>;
  flows(query: FlowQuery): Promise<FlowPage | Refusal>;
  cutFlows(filter: FlowFilter): Promise<{ readonly cut: number } | Refusal>;
  /** Returns the present grants (addresses learned for hostname patterns); see `Datapath.learned`. */
  learned(): Promise<readonly Learned[] | Refusal>;
  /** Returns the interfaces on which packets from `source` arrive; see `Datapath.arrival`. */
  arrival(source: Address): Promise<Arrival | Refusal>;
  /** Returns how the node translates the destination of a packet; see `Datapath.destinationTranslation`. */
  destinationTranslation(packet: Packet): Promise<DestinationTranslation | null | Refusal>;
};

const ABSENT = refusal(
  'feature_unavailable',
  'the configuration has no dataplane section: this node classifies no packets',
);
const NOT_RUNNING = refusal('dataplane_unavailable', 'the dataplane is not running; see /ready');
const NOTHING_YET = refusal(
  'dataplane_unavailable',
  'no policy was activated since the start of this process; see /ready',
);

/**
 * Creates access to the traffic of a datapath; `datapath` is null on a node without a dataplane. `isEngaged`
 * returns whether the datapath is open.
 */
export function trafficOver(datapath: Datapath | null, isEngaged: () => boolean): Traffic {
  const ask = async <T>(question: (asked: Datapath) => Promise<T>): Promise<T | Refusal> => {
    if (datapath === null) return ABSENT;
    return isEngaged() ? question(datapath) : NOT_RUNNING;
  };
  return {
    hits: (query) => ask(async (asked) => (await asked.hits(query)) ?? NOTHING_YET),
    groupTraffic: () => ask((asked) => asked.groupTraffic()),
    flows: (query) => ask((asked) => asked.flows(query)),
    learned: () => ask((asked) => asked.learned()),
    arrival: (source) => ask((asked) => asked.arrival(source)),
    destinationTranslation: (packet) => ask((asked) => asked.destinationTranslation(packet)),
    cutFlows: (filter) => ask(async (asked) => ({ cut: await asked.cutFlows(filter) })),
  };
}

/** Returns the hostname patterns for which an address was learned from DNS; null if no datapath is open. */
export async function grantedFor(
  traffic: Pick<Traffic, 'learned'>,
  address: Address,
): Promise<readonly string[] | null> {
  const learned = await traffic.learned();
  if ('kind' in learned) return null;
  return learned
    .filter(({ family, addresses }) => family === familyOf(address) && hasAddress(addresses, address))
    .map(({ pattern }) => pattern);
}

/** Returns the interfaces on which packets from `source` arrive; null if no datapath is open. */
export async function arrivalOf(traffic: Pick<Traffic, 'arrival'>, source: Address): Promise<Arrival | null> {
  const arrival = await traffic.arrival(source);
  return 'kind' in arrival ? null : arrival;
}

/** Returns how the node translates the destination of a packet; null without NAT or without a datapath. */
export async function translationOf(
  traffic: Pick<Traffic, 'destinationTranslation'>,
  packet: Packet,
): Promise<DestinationTranslation | null> {
  const translation = await traffic.destinationTranslation(packet);
  return translation !== null && 'kind' in translation ? null : translation;
}

/** Returns the live flow of a packet. Returns null if the packet has no flow, or if no datapath is open. */
export async function openFlowOf(traffic: Pick<Traffic, 'flows'>, packet: Packet): Promise<OpenFlow | null> {
  const { source, destination, sourcePort, destinationPort, protocol } = packet;
  const [ends, ports] = [[source, destination].map(alone), [sourcePort, destinationPort].map(portAlone)];
  const filter = anyFlow({
    ...{ sources: ends, destinations: ends, sourcePorts: ports, destinationPorts: ports },
    protocols: [protocol],
  });
  const page = await traffic.flows({ filter, after: null, limit: BETWEEN_TWO });
  if ('kind' in page) return null;
  const isOf = (flow: LiveFlow, from: Address, port: number) => flow.source === from && flow.ports?.[0] === port;
  const asked = page.items.find((flow) => isOf(flow, source, sourcePort));
  const flow = asked ?? page.items.find((found) => isOf(found, destination, destinationPort));
  if (flow === undefined) return null;
  const { decider, verdict, current, suspended } = flow;
  return {
    isReply: asked === undefined,
    isCurrent: !suspended && (current || flow.foreign),
    isSuspended: suspended,
    verdict,
    group: decider === null || decider.kind === 'policy_default' ? null : decider.group,
    rule: decider?.kind === 'rule' ? decider.rule : null,
  };
}

const alone = (address: Address): Prefix => ({ address, length: bitsOf(address) });
const portAlone = (port: number): Range => ({ low: port, high: port });
/**
 * The maximum number of flows that the filter can match: two addresses give two directions, and two ports
 * give four pairs of ports.
 */
const BETWEEN_TWO = 8;
