import { foldedWord, ofFamily } from '#addresses/ip-address.js';
import { policyImpact } from '#analysis/answer/impact.js';
import { type AddressSpace, IPV4, IPV6 } from '#analysis/engine/address-space.js';
import { compare } from '#analysis/engine/comparison.js';
import { DeciderFinder } from '#analysis/engine/decider.js';
import { type Change, passes } from '#analysis/engine/decision-lists.js';
import type { SeenFlows } from '#contracts/analysis/seen-flows.js';
import { type Address, IPPROTO, type Policy, type Prefix } from '#contracts/policy/policy-model.js';
import { EventBatch } from '#dataplane/events/batch.js';
import { FlowHistory } from '#observe/flow-history/flow-history.js';
import { AddressNames } from '#observe/names/address-names.js';
import { type EventInput, packedOf } from '#test/observe/events.js';
import { Random } from '#test/seed.js';
import { policyOf } from './analysis/policies.js';
import type { Bench, Row } from './bench.js';
import { median } from './median.js';

const FLOWS = 262_144;
const OPTIONS = { retentionMs: 7 * 86_400_000, maxFlows: FLOWS };
const BATCH = 4_096;
const ROUNDS = 5;
const RULES = { tens: 100_000, site: 10_000 } as const;
const STEPS = 8_000_000;

type Flow = { readonly source: Address; readonly destination: Address; readonly destinationPort: number };

export const flowHistoryBench: Bench = {
  name: 'flow-history',
  run: async () => [
    ...recordingRows('IPv4', Number, 1_000),
    ...recordingRows('IPv6', asIpv6, 2_000),
    ...impactRows('site', IPV4),
    ...impactRows('tens', IPV4),
    ...impactRows('tens', IPV6),
  ],
};

/** Returns an IPv6 address for each IPv4 address. Each has a /64 prefix of its own. */
const asIpv6 = (address: number): bigint => (0x2001_0db8n << 96n) | (BigInt(address) << 64n);
const HOST_BITS = 64;

/** Returns a policy with an IPv6 prefix in place of each IPv4 prefix. */
function policyOfIpv6(policy: Policy): Policy {
  const moved = (prefixes: readonly Prefix[]): Prefix[] =>
    ofFamily(prefixes, 'ipv4').map(({ address, length }) => ({
      address: length === 0 ? 0n : asIpv6(address),
      length: length === 0 ? 0 : 128 - HOST_BITS - 32 + length,
    }));
  return {
    ...policy,
    groups: policy.groups.map((group) => ({
      ...group,
      sources: moved(group.sources),
      rules: group.rules.map((rule) => ({ ...rule, destinations: moved(rule.destinations) })),
    })),
  };
}

/** Batches of opened flows. Every eighth destination has a name. */
function batchesOf(flows: readonly Flow[], names: AddressNames): EventBatch[] {
  const batches: EventBatch[] = [];
  for (let from = 0; from < flows.length; from += BATCH) {
    const events = flows.slice(from, from + BATCH).map((flow): EventInput => ({ type: 'flow_opened', ...flow }));
    batches.push(new EventBatch(packedOf(events, { unixMs: Date.now() })));
  }
  for (const [at, { destination }] of flows.entries())
    if (at % 8 === 0) names.add(destination, `h${foldedWord(destination) % 5_000}.example.com`);
  return batches;
}

function recordingRows(family: string, addressOf: (address: number) => Address, atMost: number): Row[] {
  const random = new Random(1);
  const flows = Array.from({ length: FLOWS }, () => ({
    source: addressOf(0x0a00_0000 + random.below(20_000)),
    destination: addressOf(0xac10_0000 + random.below(2 ** 20)),
    destinationPort: random.below(1_024),
  }));
  const names = new AddressNames();
  const batches = batchesOf(flows, names);
  const fresh: number[] = [];
  const known: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const history = new FlowHistory(OPTIONS, Date.now());
    const record = (): number => {
      const began = performance.now();
      for (const batch of batches) history.add(batch, names, Date.now());
      return ((performance.now() - began) * 1e6) / FLOWS;
    };
    fresh.push(record());
    known.push(record());
  }
  return [
    { what: `an event of a new flow of ${family}`, value: median(fresh), unit: 'ns', atMost },
    { what: `an event of a known flow of ${family}`, value: median(known), unit: 'ns', atMost },
  ];
}

/** The time that the impact takes after the comparison of the policies. */
function impactRows(kind: 'tens' | 'site', space: AddressSpace): Row[] {
  const random = new Random(2);
  const ofIpv4 = policyOf(kind, RULES[kind], new Random(1));
  const isIpv4 = space === IPV4;
  const before = isIpv4 ? ofIpv4 : policyOfIpv6(ofIpv4);
  const flipped: Policy = {
    ...before,
    groups: before.groups.map((group) => ({
      ...group,
      rules: group.rules.map((rule) =>
        random.chance(0.01)
          ? { ...rule, action: rule.action === 'allow' ? ('deny' as const) : ('allow' as const) }
          : rule,
      ),
    })),
  };
  const opened: Policy = { ...before, default: { ...before.default, action: 'allow' } };
  const seen = flowsOf(ofIpv4, random, isIpv4 ? Number : asIpv6);
  return (
    [
      ['1 % of the rules flipped', flipped],
      ['default to allow', opened],
    ] as const
  ).map(([name, after]) => {
    const compared = compare(before, after, { spaces: [space], steps: STEPS });
    const finders = [before, after].map((policy) => new DeciderFinder(policy, space, compared.conditions)) as [
      DeciderFinder,
      DeciderFinder,
    ];
    const effectOf = ({ to }: Change) => (passes(to.outcome) ? ('opens' as const) : ('closes' as const));
    const { regions, conditions } = compared;
    const changes = [{ space, regions, conditions, finders }];
    const options = { limit: 50, node: 'node-a', isComplete: true, effectOf, causeOf: () => null };
    let affected = 0;
    const times = Array.from({ length: ROUNDS }, () => {
      const began = performance.now();
      const { flows, flows_omitted } = policyImpact(changes, seen, options);
      affected = flows.length + flows_omitted;
      return performance.now() - began;
    });
    const of = `${kind === 'tens' ? 'groups of ten' : 'a site'}${isIpv4 ? '' : ' of IPv6'}`;
    const what = `${of}, ${name}: ${affected} of ${FLOWS} flows in ${compared.regions.length} regions`;
    return {
      what,
      value: median(times),
      unit: 'ms',
      atMost: (compared.regions.length > 10_000 ? 2_000 : 300) * (isIpv4 ? 1 : 2),
    };
  });
}

/** Flows from sources of the groups, half of them to destinations of the rules. */
function flowsOf(policy: Policy, random: Random, addressOf: (address: number) => Address): SeenFlows {
  const within = ({ address, length }: Prefix<number>): number =>
    address + random.below(2 ** Math.min(16, 32 - length));
  const history = new FlowHistory(OPTIONS, Date.now());
  const flows = Array.from({ length: FLOWS }, () => {
    const group = random.pick(policy.groups);
    const rule = random.pick(group.rules);
    const to =
      rule.destinations.length > 0 && random.chance(0.5) ? random.pick(ofFamily(rule.destinations, 'ipv4')) : null;
    return {
      source: addressOf(within(random.pick(ofFamily(group.sources, 'ipv4')))),
      destination: addressOf(to === null ? 0xac10_0000 + random.below(2 ** 20) : within(to)),
      destinationPort: rule.destinationPorts[0]?.low ?? 443,
      protocol: rule.protocol === 'any' ? IPPROTO.tcp : rule.protocol,
    };
  });
  const names = new AddressNames();
  for (const batch of batchesOf(flows, names)) history.add(batch, names, Date.now());
  return history.read(Date.now());
}
