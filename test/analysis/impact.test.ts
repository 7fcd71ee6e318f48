import { describe, expect, test } from 'vitest';
import { policyDiff } from '#analysis/answer/policy-diff.js';
import { IPV4 } from '#analysis/engine/address-space.js';
import { compare } from '#analysis/engine/comparison.js';
import { passes } from '#analysis/engine/decision-lists.js';
import { itemAt } from '#arrays/read.js';
import type { DiffEffect } from '#contracts/analysis/diff-effect.js';
import type { ImpactFlow, PolicyImpact } from '#contracts/analysis/policy-impact.js';
import { FOLDED, type SeenFlows } from '#contracts/analysis/seen-flows.js';
import { IPPROTO, type Packet, type Policy } from '#contracts/policy/policy-model.js';
import { portMapKey } from '#contracts/policy/program.js';
import { VERDICT_NUMBER } from '#contracts/policy/verdict-word.js';
import { formatAddress } from '#policy/model/ip-address.js';
import { address, group, policy, rule } from '#test/policy/sample.js';
import { Random, seedOf } from '#test/seed.js';
import { packetGenerator } from '../policy/generate.js';
import { cornerOf } from './check-comparison.js';
import { edited, randomPolicy } from './edits.js';
import { decideIn, randomWorld, type World } from './world.js';

const PAIRS = Number(process.env.WEIR_PAIRS ?? 150);
const FLOWS = 60;
const HOUR_S = 3_600;
const NOW_S = 1_000_000 * HOUR_S;

type SeenFlow = Omit<Packet<number>, 'sourcePort'> & {
  readonly names: readonly string[];
  readonly count?: number;
  readonly isFolded?: boolean;
};

function serviceOf({ protocol, destinationPort, icmpType, icmpCode, isFolded }: SeenFlow): number {
  if (isFolded === true) return (portMapKey(protocol, 0) | FOLDED) >>> 0;
  return portMapKey(protocol, protocol === IPPROTO.icmp ? icmpType * 256 + icmpCode : destinationPort);
}

function seenFlows(flows: readonly SeenFlow[], coverage: Partial<SeenFlows['coverage']> = {}): SeenFlows {
  const lists: (readonly string[])[] = [[], []];
  const nameLists = flows.map(({ names }) => (names.length === 0 ? 0 : lists.push(names) - 1));
  return {
    count: flows.length,
    sources: Uint32Array.from(flows, ({ source }) => source),
    destinations: Uint32Array.from(flows, ({ destination }) => destination),
    services: Uint32Array.from(flows, serviceOf),
    first: Uint32Array.from(flows, () => NOW_S - HOUR_S),
    last: Uint32Array.from(flows, () => NOW_S),
    passed: Uint32Array.from(flows, ({ count }) => count ?? 1),
    denied: Uint32Array.from(flows, () => 3),
    verdicts: Uint8Array.from(flows, () => VERDICT_NUMBER.allow),
    nameLists: Uint16Array.from(nameLists),
    names: lists,
    coverage: {
      sinceS: NOW_S - 3 * HOUR_S,
      deniedSinceS: NOW_S - 3 * HOUR_S,
      untilS: NOW_S,
      recordedS: 3 * HOUR_S,
      isRecording: true,
      folded: 0,
      lost: 0,
      unrecorded: 0,
      ...coverage,
    },
  };
}

function impactOf(before: Policy, after: Policy, flows: SeenFlows, limit = 1_000_000): PolicyImpact {
  const seen = { node: 'node-a', flows };
  const { impact } = policyDiff(before, after, { space: IPV4, limit, steps: Number.POSITIVE_INFINITY, seen });
  if (impact === null) throw new Error('the diff has no impact');
  return impact;
}

/** Decides a flow by a walk over both policies. */
function effectIn(before: Policy, after: Policy, packet: Packet<number>, world: World): DiffEffect | null {
  const [from, to] = [decideIn(before, packet, world), decideIn(after, packet, world)];
  if (passes(from.outcome) !== passes(to.outcome)) return passes(to.outcome) ? 'opens' : 'closes';
  if (from.inspected !== to.inspected) return 'inspection';
  return from.outcome === to.outcome ? null : 'audit';
}

const keyOf = ({ src_ip, dst_ip, proto, dst_port, icmp_type, icmp_code }: Omit<ImpactFlow, 'effect'>): string =>
  [src_ip, dst_ip, proto, dst_port, icmp_type, icmp_code].join(' ');

function keyOfSeen({ source, destination, protocol, destinationPort, icmpType, icmpCode }: SeenFlow): string {
  const hasPorts = [6, 17, 132, 33, 136].includes(protocol);
  const isIcmp = protocol === IPPROTO.icmp;
  return [
    ...[formatAddress(source), formatAddress(destination), protocol, hasPorts ? destinationPort : null],
    ...[isIcmp ? icmpType : null, isIcmp ? icmpCode : null],
  ].join(' ');
}

const seesAll = ({ groups }: Policy): boolean =>
  groups.every(
    ({ selectors, rules }) =>
      selectors.length === 0 && rules.every(({ tls, sourcePorts }) => tls === undefined && sourcePorts.length === 0),
  );

test('the impact on each seen flow is what a walk over both policies decides, and only facts that are not recorded leave it open', () => {
  const seed = seedOf(2);
  const found = { certain: 0, unchanged: 0, depends: 0, allKnown: 0 };
  for (let pair = 0; pair < PAIRS; pair++) {
    const random = new Random(seed * 1_000_003 + pair);
    const isPlain = random.chance(0.5);
    const before = randomPolicy(random, isPlain ? { tls: false, selectors: 0 } : {});
    let after = edited(random, before);
    if (isPlain && !seesAll(after)) after = { ...before, groups: before.groups.slice(1) };
    const { regions } = compare(before, after, { space: IPV4 });
    const edge = packetGenerator(random, { ...before, groups: [...before.groups, ...after.groups] });
    const flows = new Map<string, SeenFlow>();
    for (let count = 0; count < FLOWS; count++) {
      const region = regions[random.below(regions.length)];
      const packet = region !== undefined && random.chance(0.6) ? cornerOf(random, region) : edge();
      const flow = { ...packet, names: randomWorld(random, []).names };
      flows.set(keyOfSeen(flow), flow);
    }
    const impact = impactOf(before, after, seenFlows([...flows.values()]));
    const listed = new Map(impact.flows.map((flow) => [keyOf(flow), flow]));
    expect(listed.size).toBe(impact.flows.length);
    const isAllKnown = seesAll(before) && seesAll(after);
    for (const [key, flow] of flows) {
      const affected = listed.get(key);
      if (affected?.depends === true) {
        found.depends++;
        if (isAllKnown) throw new Error(`pair ${pair} of seed ${seed}: ${key} is left open`);
        continue;
      }
      found[affected === undefined ? 'unchanged' : 'certain']++;
      if (isAllKnown) found.allKnown++;
      for (let tries = 0; tries < 4; tries++) {
        const world = { ...randomWorld(random, [before, after]), names: flow.names };
        const sourcePort = flow.protocol === IPPROTO.icmp ? 0 : edge().sourcePort;
        const expected = effectIn(before, after, { ...flow, sourcePort }, world);
        if (expected !== (affected?.effect ?? null))
          throw new Error(
            `pair ${pair} of seed ${seed}: ${key} ${affected?.effect}, expected ${expected} ${JSON.stringify({ names: world.names, sourcePort })}`,
          );
      }
    }
  }
  expect(Math.min(found.certain, found.unchanged, found.depends, found.allKnown)).toBeGreaterThan(PAIRS);
});

const LAN = address('10.0.0.7');
const tcp = (destination: string, destinationPort: number, more: Partial<SeenFlow> = {}): SeenFlow => ({
  ...{ source: LAN, destination: address(destination), protocol: IPPROTO.tcp, destinationPort },
  ...{ icmpType: 0, icmpCode: 0, names: [] },
  ...more,
});
const lan = (...rules: ReturnType<typeof rule>[]): Policy => policy([group(['10.0.0.0/8'], rules, { id: 'lan' })]);

describe('the impact of a change', () => {
  const all = lan(rule({ id: 'all' }));
  const without80 = lan(rule({ id: 'no', action: 'deny', ports: ['80'] }), rule({ id: 'all' }));

  test('lists closed flows first, the most frequent one first, and counts all of them', () => {
    const flows = seenFlows([
      tcp('192.0.2.1', 443, { count: 9 }),
      tcp('192.0.2.1', 80, { count: 2 }),
      tcp('192.0.2.2', 80, { count: 5, names: ['www.example.com'] }),
    ]);
    const impact = impactOf(all, without80, flows, 1);
    expect(impact.summary).toBe('closes 2 flows seen in the last 3 hours (7 connections)');
    expect(impact).toMatchObject({ node: 'node-a', effects: { closes: { flows: 2, connections: 7 } } });
    expect([impact.flows.length, impact.flows_omitted]).toEqual([1, 1]);
    expect(impact.flows[0]).toMatchObject({
      ...{ effect: 'closes', depends: false, folded: false, src_ip: '10.0.0.7', dst_ip: '192.0.2.2' },
      ...{ hostname: 'www.example.com', proto: 6, dst_port: 80, icmp_type: null, connections: 5 },
      ...{ last_verdict: 'allow', before: { rule: 'all' }, after: { rule: 'no' } },
      cause: { part: 'rule', change: 'added', source_group: 'lan', rule: 'no' },
    });
  });

  test('says how long flows were recorded if no flow changes', () => {
    const told = (coverage: Partial<SeenFlows['coverage']>) =>
      impactOf(all, without80, seenFlows([tcp('192.0.2.1', 443)], coverage)).summary;
    expect(told({})).toBe('no flow seen in the last 3 hours changes');
    expect(told({ sinceS: NOW_S - 90 })).toBe('no flow seen in the last 90 seconds changes');
    expect(told({ recordedS: HOUR_S })).toBe(
      'no flow seen in the last 3 hours changes; recorded were 60 minutes of it',
    );
    expect(told({ isRecording: false })).toBe(
      'no flow seen in the last 3 hours changes; flows are not recorded now, because performance mode is disabled',
    );
  });

  test('depends for a folded flow that only partly changes', () => {
    const folded = tcp('192.0.0.0', 0, { isFolded: true, count: 40 });
    const impact = impactOf(all, without80, seenFlows([folded]));
    expect(impact.summary).toBe('may close 1 flow seen in the last 3 hours (40 connections)');
    expect(itemAt(impact.flows, 0)).toMatchObject({
      depends: true,
      folded: true,
      dst_ip: '192.0.0.0/16',
      dst_port: null,
    });
    expect(impactOf(all, without80, seenFlows([{ ...folded, protocol: 47 }])).flows).toEqual([]);
  });
});
