import { describe, expect, test } from 'vitest';
import { lastAddress, ofFamily } from '#addresses/ip-address.js';
import { flowCount } from '#analysis/answer/flow-region.js';
import { type AddressSpace, IPV4, IPV6, type Point, type Span } from '#analysis/engine/address-space.js';
import { compare, type Region } from '#analysis/engine/comparison.js';
import { type Change, passes } from '#analysis/engine/decision-lists.js';
import {
  type Family,
  IPPROTO,
  type Packet,
  PORT_PROTOCOLS,
  type Policy,
  type Prefix,
} from '#contracts/policy/policy-model.js';
import { expectEqual } from '#test/expect-equal.js';
import { Random, seedOf } from '#test/seed.js';
import { cornerOf, includes, packetsOf } from './check-comparison.js';
import { edited, randomPolicy } from './edits.js';
import { decideIn, type World } from './world.js';

const PAIRS = Number(process.env.WEIR_PAIRS ?? 100);

/** Calls `check` for random policies, each with two edited versions. */
function forPolicies(
  check: (random: Random, policies: readonly [Policy, Policy, Policy]) => void,
  { pairs = PAIRS, families = ['ipv4'] }: { readonly pairs?: number; readonly families?: readonly Family[] } = {},
): void {
  const seed = seedOf(2);
  for (let pair = 0; pair < pairs; pair++) {
    const random = new Random(seed * 1_000_003 + pair);
    const first = randomPolicy(random, { families });
    const second = edited(random, first, { families });
    try {
      check(random, [first, second, edited(random, second, { families })]);
    } catch (error) {
      throw new Error(`pair ${pair} of seed ${seed}: ${String(error)}`, { cause: error });
    }
  }
}

const regionsOf = (before: Policy, after: Policy, spaces: readonly AddressSpace[] = [IPV4]) =>
  compare(before, after, { spaces }).regions;

const FAMILIES: readonly { readonly spaces: readonly AddressSpace[]; readonly families: readonly Family[] }[] = [
  { spaces: [IPV4], families: ['ipv4'] },
  { spaces: [IPV4, IPV6], families: ['ipv4', 'ipv6'] },
];

/** Returns a text that is equal for two regions with the same flows and the same outcomes. */
function keyOf({ changes, space: _, ...flows }: Region, isMirrored = false): string {
  const outcomes = changes.map(({ attribute, from, to }: Change) => {
    const sides = [from.outcome, to.outcome];
    return [attribute, ...(isMirrored ? sides.reverse() : sides)].join();
  });
  return JSON.stringify([flows, outcomes.sort()]);
}

/** Returns the number of regions that contain a packet. */
const countIn = (list: readonly Region[], packet: Packet) => list.filter((one) => includes(one, packet)).length;

describe('the comparison of policies', () => {
  test.each(FAMILIES)(
    'the comparison of a policy with itself, and with a copy of it, finds no region: $families',
    ({ spaces, families }) => {
      forPolicies(
        (_random, [policy]) => {
          expect(regionsOf(policy, policy, spaces)).toEqual([]);
          expect(regionsOf(policy, structuredClone(policy), spaces)).toEqual([]);
        },
        { families },
      );
    },
  );

  test('the comparison in the other direction finds the same flows with exchanged outcomes', () => {
    forPolicies((random, [before, after]) => {
      const there = regionsOf(before, after);
      const back = regionsOf(after, before);
      const opens = (regions: readonly Region[], isBack: boolean) => countOf(regions, isBack);
      expect(opens(there, false)).toBe(opens(back, true));
      for (const region of there)
        for (let count = 0; count < 3; count++) {
          const packet = cornerOf(random, region);
          expectEqual(countIn(there, packet), countIn(back, packet));
        }
    });
  });

  test('each flow that changes over two successive edits of a policy changes in at least one of them', () => {
    forPolicies((random, [first, second, third]) => {
      const parts = [...regionsOf(first, second), ...regionsOf(second, third)];
      for (const region of regionsOf(first, third))
        for (let count = 0; count < 3; count++) {
          const packet = cornerOf(random, region);
          if (includes(region, packet))
            expectEqual(
              parts.some((part) => includes(part, packet)),
              true,
            );
        }
    });
  });

  test.each(FAMILIES)(
    'the comparison of two policies merges two sets of changed flows of a family that differ in one field only, leaves gaps between the intervals of a set, and states each change once: $families',
    ({ spaces, families }) => {
      forPolicies(
        (_random, [before, after]) => {
          const { regions, conditions } = compare(before, after, { spaces });
          for (const field of ['sources', 'destinations', 'keys', 'sourcePorts'] as const) {
            const others = regions.map((region) => textOf({ ...region, [field]: [] }));
            expect(new Set(others).size).toBe(regions.length);
          }
          for (const { sources, destinations, keys, sourcePorts, changes } of regions) {
            for (const set of [...[sources, destinations].map((spans) => spans.flatMap(limits)), keys, sourcePorts])
              for (const [at, value] of set.entries()) expectEqual(value > (set[at - 1] ?? -1), true);
            for (const change of changes) {
              const weaker = changes.filter(
                ({ attribute, condition, from, to }) =>
                  attribute === 'verdict' &&
                  change.attribute === attribute &&
                  condition !== change.condition &&
                  from.outcome === change.from.outcome &&
                  to.outcome === change.to.outcome &&
                  conditions.holds(condition, new Set(conditions.atomsOf(change.condition))),
              );
              expect(weaker).toEqual([]);
            }
          }
        },
        { families },
      );
    },
  );

  test.each(FAMILIES)(
    'a comparison that stops at its limit of steps is correct for all sources except those that it lists as not compared: $families',
    ({ spaces, families }) => {
      let limited = 0;
      forPolicies(
        (random, [before, after]) => {
          const whole = regionsOf(before, after, spaces);
          const { regions, left } = compare(before, after, { spaces, steps: random.pick([30, 100, 300, 1_000]) });
          if (left.length > 0) limited++;
          for (const region of [...whole, ...regions]) {
            const packet = packetsOf(random, before, region.space).corner(region);
            const isLeft = left.some(
              ({ space, spans }) =>
                space === region.space && spans.some(({ start, end }) => start <= packet.source && packet.source < end),
            );
            const [found, wanted] = [countIn(regions, packet), countIn(whole, packet)];
            if (!isLeft) expectEqual(found, wanted);
            expectEqual(found <= wanted, true);
          }
        },
        { families },
      );
      expect(limited).toBeGreaterThan(PAIRS / 4);
    },
  );

  test('the comparison finds the same regions for addresses of 128 bits', () => {
    forPolicies((_random, [before, after]) => {
      const narrow = regionsOf(before, after);
      const wide = compare(before, after, { spaces: [WIDE] }).regions;
      const widened = narrow.map((region) => ({
        ...region,
        sources: region.sources.map(widenedSpan),
        destinations: region.destinations.map(widenedSpan),
      }));
      const texts = (regions: readonly Region[]) => regions.map((region) => asText(region)).sort();
      expect(texts(wide)).toEqual(texts(widened));
    });
  });

  test('the number of flows that open and close equals an enumeration of all classes of flows', () => {
    let classes = 0;
    forPolicies(
      (_random, [before, after]) => {
        const small = { ...before, groups: before.groups.slice(0, 2) };
        const next = { ...after, groups: after.groups.slice(0, 2) };
        const counted = enumerated(small, next);
        classes += counted.classes;
        expect(countOf(regionsOf(small, next), false)).toBe(counted.opens);
        expect(countOf(regionsOf(next, small), false)).toBe(counted.closes);
      },
      { pairs: Math.ceil(PAIRS / 20) },
    );
    expect(classes).toBeGreaterThan(5_000);
  });
});

/** Returns a text that is equal for equal regions. */
const textOf = ({ space, ...region }: Region): string =>
  JSON.stringify({ family: space.family, ...region }, (_key, value: unknown) =>
    typeof value === 'bigint' ? `${value}` : value,
  );

const NOTHING_HOLDS: World = { names: [], selectors: new Map(), denyOnly: false, blocks: new Map() };

/** Returns the number of flows that open, or that close if `isBack`, while no condition holds. */
function countOf(regions: readonly Region[], isBack: boolean): bigint {
  return regions
    .filter(({ changes }) =>
      changes.some(({ attribute, condition, from, to }) => {
        const [old, next] = isBack ? [to, from] : [from, to];
        return attribute === 'verdict' && condition === 0 && !passes(old.outcome) && passes(next.outcome);
      }),
    )
    .reduce((sum, region) => sum + flowCount(region), 0n);
}

/**
 * Decides one flow of each class of flows by a walk over both policies, and counts the flows of the classes.
 */
function enumerated(before: Policy, after: Policy) {
  const groups = [...before.groups, ...after.groups];
  const rules = groups.flatMap((group) => group.rules);
  const sources = cuts(
    ofFamily(
      groups.flatMap((group) => group.sources),
      'ipv4',
    ).flatMap(bounds),
    2 ** 32,
  );
  const destinations = cuts(
    ofFamily(
      rules.flatMap((rule) => rule.destinations),
      'ipv4',
    ).flatMap(bounds),
    2 ** 32,
  );
  const ports = (list: readonly { readonly low: number; readonly high: number }[]) =>
    cuts(
      list.flatMap(({ low, high }) => [low, high + 1]),
      0x1_0000,
    );
  const destinationPorts = ports(rules.flatMap((rule) => rule.destinationPorts));
  const sourcePorts = ports(rules.flatMap((rule) => rule.sourcePorts));
  const services: { readonly fields: Omit<Packet<number>, 'source' | 'destination'>; readonly flows: bigint }[] = [];
  const plain = { sourcePort: 0, destinationPort: 0, icmpType: 0, icmpCode: 0 };
  for (let protocol = 0; protocol < 256; protocol++) {
    if (PORT_PROTOCOLS.includes(protocol)) {
      for (const [destinationPort, many] of destinationPorts)
        for (const [sourcePort, more] of sourcePorts)
          services.push({ fields: { ...plain, protocol, destinationPort, sourcePort }, flows: many * more });
    } else if (protocol === IPPROTO.icmp) {
      const types = cuts(
        rules.flatMap((rule) => rule.icmpTypes).flatMap((type) => [type, type + 1]),
        256,
      );
      const codes = cuts(
        rules.flatMap((rule) => rule.icmpCodes).flatMap((code) => [code, code + 1]),
        256,
      );
      for (const [icmpType, many] of types)
        for (const [icmpCode, more] of codes)
          services.push({ fields: { ...plain, protocol, icmpType, icmpCode }, flows: many * more });
    } else services.push({ fields: { ...plain, protocol }, flows: 1n });
  }
  const found = { classes: 0, opens: 0n, closes: 0n };
  for (const [source, many] of sources)
    for (const [destination, more] of destinations)
      for (const { fields, flows } of services) {
        const packet = { ...fields, source, destination };
        const [old, next] = [before, after].map((policy) => passes(decideIn(policy, packet, NOTHING_HOLDS).outcome));
        found.classes++;
        if (old === next) continue;
        if (next === true) found.opens += many * more * flows;
        else found.closes += many * more * flows;
      }
  return found;
}

const limits = ({ start, end }: Span): Point[] => [start, end];

const bounds = (prefix: Prefix<number>): number[] => [prefix.address, lastAddress(prefix) + 1];

/** Returns the first value of each class, and the number of its values. */
function cuts(points: readonly number[], end: number): (readonly [first: number, size: bigint])[] {
  const starts = [...new Set([0, ...points])].filter((point) => point < end).sort((one, other) => one - other);
  return starts.map((start, at) => [start, BigInt((starts[at + 1] ?? end) - start)] as const);
}

const SHIFT = 96n;
const widened = (point: Point): Point => BigInt(point) << SHIFT;
const widenedSpan = ({ start, end }: Span): Span => ({ start: widened(start), end: widened(end) });

/** Addresses of 128 bits, of which the policies of the test use the first 32. */
const WIDE: AddressSpace = {
  family: 'ipv4',
  name: 'IPv4 in 128 bits',
  bits: 128,
  end: 1n << 128n,
  examples: [],
  spanOf: (prefix) => widenedSpan(IPV4.spanOf(prefix)),
  sizeOf: ({ start, end }) => BigInt(end) - BigInt(start),
  plus: (point, offset) => BigInt(point) + BigInt(offset),
  approximate: (point) => Number(BigInt(point) >> 76n),
  networksOf: () => [],
  networkAround: (span) => span,
  format: String,
};

const asText = (region: Region): string => {
  const spans = (list: readonly Span[]) => list.map(({ start, end }) => `${start}-${end}`).join();
  return [
    spans(region.sources),
    spans(region.destinations),
    region.keys.join(),
    region.sourcePorts.join(),
    keyOf({ ...region, sources: [], destinations: [] }),
  ].join(' ');
};
