import type { Counter, DatapathStats, ForwardingNow } from '#contracts/datapath/datapath.js';
import { COUNTER_INDEX, DROP_REASON } from '#contracts/datapath/datapath-numbers.js';
import type { Family } from '#contracts/policy/policy-model.js';
import { guardDropped } from '#dataplane/guard/nftables-guard.js';
import { readCounters } from '#dataplane/loader/counters.js';
import type { LoadedObject } from '#dataplane/object/loaded-object.js';
import type { TrafficStatistics } from './traffic-statistics.js';

/** The names of the map `grants` of each family in statistics. */
const GRANT_NAMES = { ipv4: 'grants', ipv6: 'grants_ipv6' } as const;

export function datapathStats(
  { object, slots, options, grants, routes }: LoadedObject,
  trafficStatistics: TrafficStatistics,
  forwarding: Readonly<Record<Family, ForwardingNow>>,
): DatapathStats {
  const counters = readCounters(object.mapFd('counters'));
  const counter = (index: number): Counter => counters[index] ?? { packets: 0n, bytes: 0n };
  const drops = Object.fromEntries(
    Object.entries(DROP_REASON)
      .filter(([name]) => name !== 'none')
      .map(([name, number]) => [name, counter(COUNTER_INDEX.drops + number)]),
  );
  drops.guard = guardDropped();
  const flowsOpened = counter(COUNTER_INDEX.flows_opened).packets;
  const flowsClosed = counter(COUNTER_INDEX.flows_closed).packets;
  const { flows, halfOpen, sweep, refusing, maps } = trafficStatistics.stats();
  const { generation, lines } = slots.sizeInForce();
  return {
    generation,
    activeFlows: flows,
    halfOpenFlows: halfOpen,
    sweep,
    verdicts: {
      allow: counter(COUNTER_INDEX.allow),
      deny: add(drops.policy_deny, drops.service_plane_absent, drops.node_uninspected),
      audit: counter(COUNTER_INDEX.audit),
    },
    inspected: { handed: counter(COUNTER_INDEX.inspected), joined: counter(COUNTER_INDEX.joined) },
    drops,
    nonIpv4Passed: counter(COUNTER_INDEX.non_ipv4),
    dnsUnroutable: counter(COUNTER_INDEX.dns_unroutable),
    flowsOpened,
    flowsClosed,
    flowsSuspended: counter(COUNTER_INDEX.flows_suspended).packets,
    flowsResumed: counter(COUNTER_INDEX.flows_resumed).packets,
    refusing,
    forwarding: forwarding.ipv4,
    ipv6Forwarding: options.enforcesIpv6 === true ? forwarding.ipv6 : null,
    routesCopied: routes.isInForce,
    grantsRefused: grants.refused,
    events: {
      sent: counter(COUNTER_INDEX.events).packets,
      lost: counter(COUNTER_INDEX.events_lost).packets,
      suppressed: counter(COUNTER_INDEX.events_suppressed).packets,
    },
    maps: {
      program: { entries: lines, capacity: options.slotLines },
      ...maps,
      ...Object.fromEntries(grants.families.map((family) => [GRANT_NAMES[family], grants.addressesOf(family)])),
      patterns: grants.patterns,
    },
  };
}

function add(...counters: readonly (Counter | undefined)[]): Counter {
  const sum = (of: keyof Counter) => counters.reduce((total, counter) => total + (counter?.[of] ?? 0n), 0n);
  return { packets: sum('packets'), bytes: sum('bytes') };
}
