import { IPPROTO, type Policy, type Prefix, type Range, type Rule } from '#contracts/policy-model.js';
import { Random } from '#test/seed.js';
import type { FiveTuple } from './frames.js';
import { DESTINATIONS, SOURCES } from './rig.js';

/**
 * Allows a source to open flows to a destination. No two permits overlap, so that every form of the policy
 * gives equal verdicts in any order.
 */
export type Permit = {
  readonly source: Prefix;
  readonly destination: Prefix;
  readonly ports: Range;
  readonly protocol: 'udp' | 'tcp';
};
/** The permits of one source are in one array. All other flows are denied. */
export type Permits = readonly (readonly Permit[])[];

/** The default number of live flows. */
export const LIVE = 4_096;
/** The difference of a policy from groups of ten with prefixes and port ranges. */
export const SHAPES = {
  exact: 'single source, destination and port each',
  prefixes: 'one group, to /24 and longer',
  addresses: 'one group, to addresses',
} as const;

const RULES_OF_GROUP = 10;

function tile(base: number, index: number, count: number): Prefix {
  const bits = Math.min(24, Math.ceil(Math.log2(Math.max(1, count))));
  return { address: (base + index * 2 ** (24 - bits)) >>> 0, length: 8 + bits };
}

function within(random: Random, { address, length }: Prefix, longer: number): Prefix {
  return { address: (address + random.below(2 ** (longer - length)) * 2 ** (32 - longer)) >>> 0, length: longer };
}

/**
 * Groups of ten. The sources of each group are a separate prefix. The destinations of its rules, /12 to /28,
 * do not overlap.
 */
export function groupsOfTen(rules: number): Permits {
  const random = new Random(rules);
  const groups = Math.ceil(rules / RULES_OF_GROUP);
  return Array.from({ length: groups }, (_, group) => {
    const source = tile(SOURCES.base, group, groups);
    return Array.from({ length: RULES_OF_GROUP }, (_, index) => {
      const low = random.below(60_000);
      return {
        source,
        destination: within(random, tile(DESTINATIONS.base, index, RULES_OF_GROUP), random.between(12, 28)),
        ports: random.pick([
          { low: 443, high: 443 },
          { low, high: low + 2_000 },
        ]),
        protocol: 'udp',
      };
    });
  });
}

/** Groups of ten in which source, destination and port are single values, as a hash set requires. */
export function exactTriples(rules: number): Permits {
  return groupsOfTen(rules).map((permits, group) => {
    const random = new Random(group);
    const [first] = permits;
    const source = first === undefined ? tile(SOURCES.base, 0, 1) : within(random, first.source, 32);
    return permits.map(({ destination, ports }) => ({
      source,
      destination: within(random, destination, 32),
      ports: { low: ports.low, high: ports.low },
      protocol: 'udp',
    }));
  });
}

/** One group for every source, with one port. Destinations are prefixes (`length` 24) or addresses (32). */
export function oneGroup(rules: number, length: 24 | 32): Permits {
  const random = new Random(rules + length);
  return [
    Array.from({ length: rules }, (_, index) => ({
      source: { address: SOURCES.base, length: 8 },
      destination: within(
        random,
        tile(DESTINATIONS.base, index, rules),
        Math.max(length, 8 + Math.ceil(Math.log2(rules))),
      ),
      ports: { low: 443, high: 443 },
      protocol: 'udp',
    })),
  ];
}

export function policyOf(permits: Permits): Policy {
  return {
    groups: permits.map((group, index) => ({
      id: `g${index}`,
      pointer: '',
      mode: 'enforce',
      sources: group.slice(0, 1).map(({ source }) => source),
      dynamic: false,
      rules: group.map((permit, number) => ruleOf(permit, number)),
      defaultAction: undefined,
    })),
    default: { action: 'deny', mode: 'enforce', from: 'default_policy' },
  };
}

function ruleOf({ destination, ports, protocol }: Permit, index: number): Rule {
  return {
    id: `r${index}`,
    pointer: '',
    action: 'allow',
    mode: 'enforce',
    destinations: [destination],
    hostname: undefined,
    protocol: IPPROTO[protocol],
    sourcePorts: [],
    destinationPorts: [ports],
    icmpTypes: [],
    icmpCodes: [],
    tls: undefined,
  };
}

/** Distinct flows that are permitted, spread over all permits. */
export function flowsOf(permits: Permits, count: number): FiveTuple[] {
  const random = new Random(count);
  const flat = permits.flat();
  return Array.from({ length: count }, (_, index) => {
    const { source, destination, ports } = random.pick(flat);
    return {
      source: within(random, source, 32).address,
      destination: within(random, destination, 32).address,
      // Distinct even if the addresses are equal.
      sourcePort: 1_024 + (index % 64_000),
      destinationPort: random.between(ports.low, ports.high),
    };
  });
}

/** The end of the name of a row. */
export function rulesAndFlows(rules: number, flows: number, shape?: string): string {
  const words = [`${rules.toLocaleString('en')} rules`, shape, `${flows.toLocaleString('en')} flows`];
  return words.filter((word) => word !== undefined).join(', ');
}
