import { describe, expect, test } from 'vitest';
import {
  covers,
  familyOf,
  formatAddress,
  formatPrefix,
  lastAddress,
  mask,
  nextAddress,
  ofFamily,
  parseAddress,
  previousAddress,
} from '#addresses/ip-address.js';
import { policyDiff } from '#analysis/answer/policy-diff.js';
import { IPV4, IPV6 } from '#analysis/engine/address-space.js';
import { compare } from '#analysis/engine/comparison.js';
import { passes } from '#analysis/engine/decision-lists.js';
import { itemAt } from '#arrays/read.js';
import type { DiffEffect } from '#contracts/analysis/diff-effect.js';
import type { ImpactFlow, PolicyImpact } from '#contracts/analysis/policy-impact.js';
import { FOLDED_DESTINATION, FOLDED_SOURCE, type SeenFlows } from '#contracts/analysis/seen-flows.js';
import { wordsOf } from '#contracts/policy/address-words.js';
import {
  type Address,
  type Family,
  ICMP,
  IPPROTO,
  isIcmp,
  type Packet,
  type Policy,
} from '#contracts/policy/policy-model.js';
import { portMapKey } from '#contracts/policy/program.js';
import { VERDICT_NUMBER } from '#contracts/policy/verdict-word.js';
import { address, group, policy, rule } from '#test/policy/sample.js';
import { Random, seedOf } from '#test/seed.js';
import { ipv6PacketGenerator, packetGenerator } from '../policy/generate.js';
import { cornerOf, ipv6CornerOf } from './check-comparison.js';
import { edited, randomPolicy } from './edits.js';
import { decideIn, randomWorld, type World } from './world.js';

const PAIRS = Number(process.env.WEIR_PAIRS ?? 150);
const FLOWS = 60;
const HOUR_S = 3_600;
const NOW_S = 1_000_000 * HOUR_S;

type SeenFlow<A extends Address = Address> = Omit<Packet<A>, 'sourcePort'> & {
  readonly names: readonly string[];
  readonly count?: number;
  /** The row stands for all flows of the protocol to a network; `hasEverySource`: from a network. */
  readonly isFolded?: boolean;
  readonly hasEverySource?: boolean;
};

function serviceOf({ protocol, destinationPort, icmpType, icmpCode, isFolded, hasEverySource }: SeenFlow): number {
  const key = portMapKey(protocol, isIcmp(protocol) ? icmpType * 256 + icmpCode : destinationPort);
  const exact = isFolded === true ? portMapKey(protocol, 0) + FOLDED_DESTINATION : key;
  return exact + (hasEverySource === true ? FOLDED_SOURCE : 0);
}

function seenFlows(flows: readonly SeenFlow[], coverage: Partial<SeenFlows['coverage']> = {}): SeenFlows {
  const lists: (readonly string[])[] = [[], []];
  const rowsOf = (family: Family) => {
    const own = flows.filter(({ source }) => familyOf(source) === family);
    const nameLists = own.map(({ names }) => (names.length === 0 ? 0 : lists.push(names) - 1));
    return {
      count: own.length,
      sources: Uint32Array.from(own.flatMap(({ source }) => wordsOf(source))),
      destinations: Uint32Array.from(own.flatMap(({ destination }) => wordsOf(destination))),
      services: Uint32Array.from(own, serviceOf),
      first: Uint32Array.from(own, () => NOW_S - HOUR_S),
      last: Uint32Array.from(own, () => NOW_S),
      passed: Uint32Array.from(own, ({ count }) => count ?? 1),
      denied: Uint32Array.from(own, () => 3),
      verdicts: Uint8Array.from(own, () => VERDICT_NUMBER.allow),
      nameLists: Uint16Array.from(nameLists),
    };
  };
  return {
    ipv4: rowsOf('ipv4'),
    ipv6: rowsOf('ipv6'),
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

function impactOf(before: Policy, after: Policy, flows: SeenFlows, limit = 1_000_000, spaces = [IPV4]): PolicyImpact {
  const seen = { node: 'node-a', flows };
  const { impact } = policyDiff(before, after, { spaces, limit, steps: Number.POSITIVE_INFINITY, seen });
  if (impact === null) throw new Error('the diff has no impact');
  return impact;
}

/** Decides a flow by a walk over both policies. */
function effectIn(before: Policy, after: Policy, packet: Packet, world: World): DiffEffect | null {
  const [from, to] = [decideIn(before, packet, world), decideIn(after, packet, world)];
  if (passes(from.outcome) !== passes(to.outcome)) return passes(to.outcome) ? 'opens' : 'closes';
  if (from.inspected !== to.inspected) return 'inspection';
  return from.outcome === to.outcome ? null : 'audit';
}

const keyOf = ({ src_ip, dst_ip, proto, dst_port, icmp_type, icmp_code }: Omit<ImpactFlow, 'effect'>): string =>
  [src_ip, dst_ip, proto, dst_port, icmp_type, icmp_code].join(' ');

function keyOfSeen(flow: SeenFlow): string {
  const { source, destination, protocol, destinationPort, icmpType, icmpCode, hasEverySource } = flow;
  const hasPorts = [6, 17, 132, 33, 136].includes(protocol);
  const hasType = protocol === ICMP[familyOf(source)];
  return [
    hasEverySource === true ? formatPrefix({ address: source, length: 64 }) : formatAddress(source),
    ...[formatAddress(destination), protocol, hasPorts ? destinationPort : null],
    ...[hasType ? icmpType : null, hasType ? icmpCode : null],
  ].join(' ');
}

const seesAll = ({ groups }: Policy): boolean =>
  groups.every(
    ({ selectors, rules }) =>
      selectors.length === 0 && rules.every(({ tls, sourcePorts }) => tls === undefined && sourcePorts.length === 0),
  );

/** Returns sources of the flows of a row: each one at a bound of a source prefix, and others. */
function sourcesOf({ source, hasEverySource }: SeenFlow, policies: readonly Policy[]): readonly Address[] {
  if (hasEverySource !== true || typeof source === 'number') return [source];
  const network = { address: source, length: 64 };
  const prefixes = policies.flatMap(({ groups }) => groups.flatMap(({ sources }) => ofFamily(sources, 'ipv6')));
  const bounds = prefixes.flatMap((prefix) => [
    ...[prefix.address, previousAddress(prefix.address)],
    ...[lastAddress(prefix), nextAddress(lastAddress(prefix))],
  ]);
  return [source, source + 77n, lastAddress(network), ...bounds.filter((bound) => covers(network, bound))];
}

test.each([
  [IPV4, 2],
  [IPV6, 3],
] as const)(
  'the impact of a policy change on each recorded $family flow equals the decisions of both policies, and is uncertain only if it depends on facts that were not recorded',
  (space, usual) => {
    const seed = seedOf(usual);
    const families = [space.family];
    const found = { certain: 0, unchanged: 0, depends: 0, allKnown: 0, everySource: 0 };
    for (let pair = 0; pair < PAIRS; pair++) {
      const random = new Random(seed * 1_000_003 + pair);
      const isPlain = random.chance(0.5);
      const before = randomPolicy(random, { families, ...(isPlain ? { tls: false, selectors: 0 } : {}) });
      let after = edited(random, before);
      if (isPlain && !seesAll(after)) after = { ...before, groups: before.groups.slice(1) };
      const { regions } = compare(before, after, { spaces: [space] });
      const ofPair = { ...before, groups: [...before.groups, ...after.groups] };
      const edge: () => Packet = space === IPV4 ? packetGenerator(random, ofPair) : ipv6PacketGenerator(random, ofPair);
      const corner = space === IPV4 ? cornerOf : ipv6CornerOf;
      const flows = new Map<string, SeenFlow>();
      for (let count = 0; count < FLOWS; count++) {
        const region = regions[random.below(regions.length)];
        const packet = region !== undefined && random.chance(0.6) ? corner(random, region) : edge();
        const exact = { ...packet, names: randomWorld(random, []).names };
        const hasEverySource = space === IPV6 && random.chance(0.4);
        const flow = hasEverySource ? { ...exact, hasEverySource, source: mask(exact.source, 64) } : exact;
        flows.set(keyOfSeen(flow), flow);
      }
      const impact = impactOf(before, after, seenFlows([...flows.values()]), undefined, [space]);
      const listed = new Map(impact.flows.map((flow) => [keyOf(flow), flow]));
      expect(listed.size).toBe(impact.flows.length);
      const isAllKnown = seesAll(before) && seesAll(after);
      for (const [key, flow] of flows) {
        const affected = listed.get(key);
        const sources = sourcesOf(flow, [before, after]);
        if (affected?.depends === true) {
          found.depends++;
          if (isAllKnown && sources.length <= 3) throw new Error(`pair ${pair} of seed ${seed}: ${key} is left open`);
          continue;
        }
        found[affected === undefined ? 'unchanged' : 'certain']++;
        if (isAllKnown) found.allKnown++;
        if (flow.hasEverySource === true && affected !== undefined) found.everySource++;
        for (let tries = 0; tries < 4 + sources.length; tries++) {
          const world = { ...randomWorld(random, [before, after]), names: flow.names };
          const sourcePort = isIcmp(flow.protocol) ? 0 : edge().sourcePort;
          const source = sources[tries % sources.length] ?? flow.source;
          const expected = effectIn(before, after, { ...flow, source, sourcePort }, world);
          if (expected !== (affected?.effect ?? null))
            throw new Error(
              `pair ${pair} of seed ${seed}: ${key} ${affected?.effect}, expected ${expected} ${JSON.stringify({ names: world.names, source: formatAddress(source), sourcePort })}`,
            );
        }
      }
    }
    expect(Math.min(found.certain, found.unchanged, found.depends, found.allKnown)).toBeGreaterThan(PAIRS);
    if (space === IPV6) expect(found.everySource).toBeGreaterThan(PAIRS);
  },
);

const LAN = address('10.0.0.7');
const LAN6 = { address: 0x2001_0db8_0000_0001_0000_0000_0000_0000n, length: 64 };
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

  test('the impact of a change on a folded flow (several flows in one record) is uncertain if the change affects only some of them', () => {
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

  test('has the flows of both families together, the most frequent one first, with one limit', () => {
    const withIpv6 = ({ groups: [own], ...others }: Policy): Policy => {
      if (own === undefined) throw new Error('the policy has no group');
      return { ...others, groups: [{ ...own, sources: [...own.sources, LAN6] }] };
    };
    const [before, after] = [withIpv6(all), withIpv6(without80)];
    const six = (destination: string, destinationPort: number, count: number): SeenFlow => ({
      ...tcp('192.0.2.1', destinationPort, { count }),
      ...{ source: LAN6.address + 7n, destination: parseAddress(destination) ?? 0n },
    });
    const flows = [tcp('192.0.2.1', 80, { count: 5 }), six('2001:db8:f::1', 80, 9), six('2001:db8:f::2', 443, 99)];
    const impact = (limit: number) => impactOf(before, after, seenFlows(flows), limit, [IPV4, IPV6]);
    const { summary, effects, flows: listed, flows_omitted: omitted, coverage } = impact(50);
    expect(summary).toBe('closes 2 flows seen in the last 3 hours (14 connections)');
    expect([effects.closes.flows, coverage.flows, omitted]).toEqual([2, 3, 0]);
    expect(listed.map(({ src_ip: from, dst_ip: to, after: { rule: by } }) => `${from} ${to} ${by}`)).toEqual([
      '2001:db8:0:1::7 2001:db8:f::1 no',
      '10.0.0.7 192.0.2.1 no',
    ]);
    const first = impact(1);
    expect([first.flows.map(({ dst_ip: to }) => to), first.flows_omitted]).toEqual([['2001:db8:f::1'], 1]);
  });

  test('is certain for a row of a /64 prefix that no rule divides, and depends if a group has a part of it', () => {
    const of = (sources: readonly string[]) => (rules: ReturnType<typeof rule>[]) =>
      policy([group(sources, rules, { id: 'lan' })]);
    const row: SeenFlow = {
      ...tcp('192.0.2.1', 80, { count: 40 }),
      ...{ source: LAN6.address, destination: parseAddress('2001:db8:f::1') ?? 0n, hasEverySource: true },
    };
    const dependsWith = (sources: readonly string[], of6: SeenFlow = row) => {
      const change = [[rule({ id: 'all' })], [rule({ id: 'no', action: 'deny', ports: ['80'] }), rule({ id: 'all' })]];
      const [before, after] = change.map(of(sources)) as [Policy, Policy];
      return impactOf(before, after, seenFlows([of6]), 50, [IPV6]).flows.map((flow) => [flow.depends, flow.src_ip]);
    };
    const network = '2001:db8:0:1::/64';
    expect(dependsWith(['2001:db8::/48'])).toEqual([[false, network]]);
    expect(dependsWith([network])).toEqual([[false, network]]);
    expect(dependsWith(['2001:db8:0:1::/65'])).toEqual([[true, network]]);
    expect(dependsWith(['2001:db8:0:1:ffff:ffff:ffff:ffff/128'])).toEqual([[true, network]]);
    expect(dependsWith(['2001:db8:0:2::/64'])).toEqual([]);
    expect(dependsWith(['2001:db8::/48'], { ...row, isFolded: true })).toEqual([[true, network]]);
  });
});
