import { familyOf } from '#addresses/ip-address.js';
import { textAt } from '#arrays/texts.js';
import type { FlowVerdict, LiveFlow } from '#contracts/datapath/datapath.js';
import { TICK_NS } from '#contracts/datapath/datapath-numbers.js';
import type { FlowTimeouts } from '#contracts/datapath/datapath-options.js';
import { type Address, ICMP, PORT_PROTOCOLS } from '#contracts/policy/policy-model.js';
import { NONE } from '#contracts/policy/program.js';
import { verdictOf } from '#contracts/policy/verdict-word.js';
import { type Flow, type FlowLayout, readFlow } from '#dataplane/abi/flow.js';
import type { Finder, RuleNameHistory } from '#dataplane/events/rule-name-history.js';
import type { Moment } from '#dataplane/flows/moment.js';
import { deciderAt } from '#policy/model/rules/rule-names.js';
import { groupsWith, NAMED_GROUPS } from '#policy/model/sources/group-sources.js';

export type FlowSurroundings = {
  readonly ruleNameHistory: RuleNameHistory;
  readonly finder: Finder;
  readonly epoch: number;
  readonly timeoutsMs: FlowTimeouts;
  readonly moment: Moment;
  readonly interfaces: ReadonlyMap<number, string>;
};

/**
 * Converts a flow of the datapath's flow table to the form that the API returns: with the name of the
 * deciding rule, dates and interface names.
 */
export function liveFlow(
  layout: FlowLayout<Address>,
  view: DataView,
  at: number,
  surroundings: FlowSurroundings,
): LiveFlow {
  const { ruleNameHistory, finder, epoch, timeoutsMs, moment, interfaces } = surroundings;
  const flow = readFlow(layout, view, at);
  const found = flow.foreign ? undefined : finder.find(flow.hit, flow.hitCheck);
  const idleMs = (((ticksOf(moment) - flow.lastSeen) | 0) * TICK_NS) / 1e6;
  return {
    key: new Uint8Array(view.buffer, view.byteOffset + at, layout.keyBytes).slice(),
    source: flow.source,
    destination: flow.destination,
    protocol: flow.protocol,
    ports: PORT_PROTOCOLS.includes(flow.protocol) ? [flow.sourcePort, flow.destinationPort] : null,
    icmpId: flow.protocol === ICMP[familyOf(flow.source)] ? flow.sourcePort : null,
    state: flow.state,
    verdict: flowVerdict(flow),
    decider: found === undefined ? null : deciderAt(found.ruleNames, found.rank),
    sourceGroups: found === undefined ? null : sourceGroupsOf(found, flow.source),
    foreign: flow.foreign,
    suspended: flow.suspended,
    generation: flow.foreign ? null : (ruleNameHistory.generationOf(flow.epoch) ?? null),
    current: flow.foreign || flow.epoch === epoch,
    packets: flow.packets,
    bytes: flow.bytes,
    openedMs: moment.dateOf(flow.openedNs),
    lastSeenMs: Math.round(moment.ms - idleMs),
    expiresInMs: Math.max(0, Math.round(timeoutsMs[flow.state] - idleMs)),
    interfaces: [interfaces.get(flow.ifindex[0]) ?? null, interfaces.get(flow.ifindex[1]) ?? null],
    translation: null,
  };
}

function sourceGroupsOf(
  { ruleNames, rank }: NonNullable<ReturnType<Finder['find']>>,
  source: Address,
): LiveFlow['sourceGroups'] {
  const { groups, groupIds, sources } = ruleNames;
  if (groups[rank] !== NONE) return null;
  const ids = groupsWith(sources, source, NAMED_GROUPS).map((group) => textAt(groupIds, group));
  return { ids, hasSelectors: sources.hasSelectors };
}

function flowVerdict({ foreign, word }: Flow<Address>): FlowVerdict | null {
  return foreign ? null : (verdictOf(word) ?? null);
}

function ticksOf({ ns }: Moment): number {
  return Number((ns / BigInt(TICK_NS)) & 0xffff_ffffn);
}
