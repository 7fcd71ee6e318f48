import { policyImpact } from '#analysis/answer/impact.js';
import { IPV4 } from '#analysis/engine/address-space.js';
import { compare } from '#analysis/engine/comparison.js';
import { DeciderFinder } from '#analysis/engine/decider.js';
import { type Change, passes } from '#analysis/engine/decision-lists.js';
import type { SeenFlows } from '#contracts/analysis/seen-flows.js';
import { IPPROTO, type Policy, type Prefix } from '#contracts/policy/policy-model.js';
import { EventBatch } from '#dataplane/events/batch.js';
import { FlowHistory } from '#observe/flow-history/flow-history.js';
import { AddressNames } from '#observe/names/address-names.js';
import { ofFamily } from '#policy/model/ip-address.js';
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

type Flow = { readonly source: number; readonly destination: number; readonly destinationPort: number };

export const flowHistoryBench: Bench = {
  name: 'flow-history',
  run: async () => [...recordingRows(), ...impactRows('site'), ...impactRows('tens')],
};

/** Batches of opened flows. Every eighth destination has a name. */
function batchesOf(flows: readonly Flow[], names: AddressNames): EventBatch[] {
  const batches: EventBatch[] = [];
  for (let from = 0; from < flows.length; from += BATCH) {
    const events = flows.slice(from, from + BATCH).map((flow): EventInput => ({ type: 'flow_opened', ...flow }));
    batches.push(new EventBatch(packedOf(events, { unixMs: Date.now() })));
  }
  for (const [at, { destination }] of flows.entries())
    if (at % 8 === 0) names.add(destination, `h${destination % 5_000}.example.com`);
  return batches;
}

function recordingRows(): Row[] {
  const random = new Random(1);
  const flows = Array.from({ length: FLOWS }, () => ({
    source: 0x0a00_0000 + random.below(20_000),
    destination: 0xac10_0000 + random.below(2 ** 20),
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
    { what: 'an event of a new flow', value: median(fresh), unit: 'ns', atMost: 1_000 },
    { what: 'an event of a known flow', value: median(known), unit: 'ns', atMost: 1_000 },
  ];
}

/** The time that the impact takes after the comparison of the policies. */
function impactRows(kind: 'tens' | 'site'): Row[] {
  const random = new Random(2);
  const before = policyOf(kind, RULES[kind], new Random(1));
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
  const seen = flowsOf(before, random);
  return (
    [
      ['1 % of the rules flipped', flipped],
      ['default to allow', opened],
    ] as const
  ).map(([name, after]) => {
    const compared = compare(before, after, { space: IPV4, steps: STEPS });
    const finders = [before, after].map((policy) => new DeciderFinder(policy, IPV4, compared.conditions)) as [
      DeciderFinder,
      DeciderFinder,
    ];
    const effectOf = ({ to }: Change) => (passes(to.outcome) ? ('opens' as const) : ('closes' as const));
    const options = { space: IPV4, limit: 50, node: 'node-a', effectOf, causeOf: () => null };
    let affected = 0;
    const times = Array.from({ length: ROUNDS }, () => {
      const began = performance.now();
      const { flows, flows_omitted } = policyImpact(compared, finders, seen, options);
      affected = flows.length + flows_omitted;
      return performance.now() - began;
    });
    const of = kind === 'tens' ? 'groups of ten' : 'a site';
    const what = `${of}, ${name}: ${affected} of ${FLOWS} flows in ${compared.regions.length} regions`;
    return { what, value: median(times), unit: 'ms', atMost: compared.regions.length > 10_000 ? 2_000 : 300 };
  });
}

/** Flows from sources of the groups, half of them to destinations of the rules. */
function flowsOf(policy: Policy, random: Random): SeenFlows {
  const within = ({ address, length }: Prefix<number>): number =>
    address + random.below(2 ** Math.min(16, 32 - length));
  const history = new FlowHistory(OPTIONS, Date.now());
  const flows = Array.from({ length: FLOWS }, () => {
    const group = random.pick(policy.groups);
    const rule = random.pick(group.rules);
    const to =
      rule.destinations.length > 0 && random.chance(0.5) ? random.pick(ofFamily(rule.destinations, 'ipv4')) : null;
    return {
      source: within(random.pick(ofFamily(group.sources, 'ipv4'))),
      destination: to === null ? 0xac10_0000 + random.below(2 ** 20) : within(to),
      destinationPort: rule.destinationPorts[0]?.low ?? 443,
      protocol: rule.protocol === 'any' ? IPPROTO.tcp : rule.protocol,
    };
  });
  const names = new AddressNames();
  for (const batch of batchesOf(flows, names)) history.add(batch, names, Date.now());
  return history.read(Date.now());
}
