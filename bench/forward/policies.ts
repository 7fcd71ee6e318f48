import { IPPROTO, type Policy, type Prefix, type Range, type Rule } from '#contracts/policy/policy-model.js';
import { Random } from '#test/seed.js';
import type { FiveTuple } from './frames.js';
import { DESTINATIONS, SOURCES } from './rig.js';

/**
 * Allows one source prefix to open flows to one destination prefix. Permits do not overlap. Weir and the
 * other packet filters therefore give equal verdicts, although they order their rules differently.
 */
export type Permit = {
  readonly source: Prefix<number>;
  readonly destination: Prefix<number>;
  readonly ports: Range;
  readonly protocol: 'udp' | 'tcp';
};
/**
 * The permits of a policy. All permits of one source are in one inner array. The policy denies all other
 * flows.
 */
export type Permits = readonly (readonly Permit[])[];

/** The number of flows that exist at the same time in most measurements. */
export const LIVE = 4_096;
/**
 * Words in the name of a benchmark row that describe a policy. The rows of policies from `groupsOfTen` have
 * no such words.
 */
export const SHAPES = {
  exact: 'single source, destination and port each',
  prefixes: 'one group, to /24 and longer',
  addresses: 'one group, to addresses',
} as const;

const RULES_OF_GROUP = 10;

function tile(base: number, index: number, count: number): Prefix<number> {
  const bits = Math.min(24, Math.ceil(Math.log2(Math.max(1, count))));
  return { address: (base + index * 2 ** (24 - bits)) >>> 0, length: 8 + bits };
}

function within(random: Random, { address, length }: Prefix<number>, longer: number): Prefix<number> {
  return { address: (address + random.below(2 ** (longer - length)) * 2 ** (32 - longer)) >>> 0, length: longer };
}

/**
 * Returns permits in groups of ten. Each group has another source prefix. The destinations of a group are
 * prefixes of /12 to /28, and do not overlap.
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

/**
 * Returns permits in groups of ten, each with one source address, one destination address and one port, as a
 * hash set requires.
 */
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

/**
 * Returns one group of permits with the same source prefix and port 443. `length` selects destinations that
 * are prefixes (24) or single addresses (32).
 */
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
      selectors: [],
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

/** Returns `count` flows that the policy allows, each from a randomly chosen permit. */
export function flowsOf(permits: Permits, count: number): FiveTuple[] {
  const random = new Random(count);
  const flat = permits.flat();
  return Array.from({ length: count }, (_, index) => {
    const { source, destination, ports } = random.pick(flat);
    return {
      source: within(random, source, 32).address,
      destination: within(random, destination, 32).address,
      // Consecutive flows have different source ports, so that the flows differ even if their addresses are
      // equal.
      sourcePort: 1_024 + (index % 64_000),
      destinationPort: random.between(ports.low, ports.high),
    };
  });
}

/**
 * Returns the last part of the name of a benchmark row: the number of rules and flows, and the shape of the
 * policy.
 */
export function rulesAndFlows(rules: number, flows: number, shape?: string): string {
  const words = [`${rules.toLocaleString('en')} rules`, shape, `${flows.toLocaleString('en')} flows`];
  return words.filter((word) => word !== undefined).join(', ');
}
