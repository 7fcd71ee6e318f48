import {
  EVERY_ADDRESS,
  foldedWord,
  lastAddress,
  mask,
  nextAddress,
  ofFamily,
  previousAddress,
} from '#addresses/ip-address.js';
import { DENY_ONLY_MEMBER, type ListedMembership } from '#contracts/kubernetes/membership.js';
import type {
  Address,
  AddressOf,
  Family,
  Grants,
  Group,
  HostnamePattern,
  Packet,
  Policy,
  Prefix,
  Range,
  Rule,
} from '#contracts/policy/policy-model.js';
import { IPPROTO, PORT_PROTOCOLS } from '#contracts/policy/policy-model.js';
import { selector } from '#test/policy/sample.js';
import type { Random } from '#test/seed.js';

export type GenerateOptions = {
  readonly groups?: number;
  readonly rules?: number;
  /**
   * Generated rules have a `tls` block only if `tls` is true, and a `hostname` only if `hostnames` is true.
   * The default of both options is true.
   */
  readonly tls?: boolean;
  readonly hostnames?: boolean;
  /** The probability that a group with sources has selectors. The default is 0.1. */
  readonly selectors?: number;
  /** The families of the prefixes. The default is IPv4 alone. */
  readonly families?: readonly Family[];
};

const SELECTORS = ['web', 'db', 'api', 'cache'].map(selector);

const ADDRESSES = [
  0x00000000, 0x0a000000, 0x0a010000, 0x0a010200, 0x0a010203, 0x0a0102ff, 0xc0a80000, 0xe0000000, 0xffffffff,
];
const LENGTHS = [0, 1, 7, 8, 8, 9, 15, 16, 16, 23, 24, 24, 25, 30, 31, 32, 32, 32];
const PROTOCOLS = [0, 1, 2, 4, 6, 17, 33, 41, 47, 50, 132, 136, 255];
const PORTS = [0, 1, 22, 53, 80, 443, 444, 1024, 8080, 32768, 65534, 65535];
const ICMP_OF_BOTH = ['any', IPPROTO.icmp, IPPROTO.icmpv6] as const;
const ICMP_NUMBERS = [0, 3, 4, 8, 11, 12, 254, 255];
const ICMPV6_TYPES = [1, 2, 3, 128, 128, 129, 139, 140];
const PATTERNS: readonly HostnamePattern[] = [
  { kind: 'exact', labels: ['api', 'example', 'com'], text: 'api.example.com' },
  { kind: 'suffix', labels: ['example', 'com'], text: '*.example.com' },
  { kind: 'any', text: '*' },
  { kind: 'regex', text: '^(www|api)[0-9]' },
];

/**
 * Returns a random policy whose groups and rules overlap often. Equal states of `random` give equal policies.
 */
export function generatePolicy(random: Random, options: GenerateOptions = {}): Policy {
  const { groups = 6, rules = 6, tls = true, hostnames = true, selectors = 0.1, families = ['ipv4'] } = options;
  return {
    groups: Array.from({ length: random.between(0, groups) }, (_, index) => {
      const pointer = `/source_groups/${index}`;
      const mode = random.pick(['audit', 'enforce'] as const);
      const sources = random.chance(0.05) ? [] : random.some(1, 3, () => generateAnyPrefix(random, families));
      return {
        id: `group-${index}`,
        pointer,
        mode,
        sources,
        selectors:
          sources.length === 0 || random.chance(selectors) ? random.some(1, 2, () => random.pick(SELECTORS)) : [],
        rules: Array.from({ length: random.between(0, rules) }, (_, rule) =>
          generateRule(random, `rule-${rule}`, `/rules/${rule}`, mode, { tls, hostnames, families }),
        ),
        defaultAction: random.chance(0.2) ? random.pick(['allow', 'deny'] as const) : undefined,
      };
    }),
    default: {
      action: random.pick(['allow', 'deny'] as const),
      mode: random.pick(['audit', 'enforce'] as const),
      from: random.pick(['default_policy', 'fallback'] as const),
    },
  };
}

function generateRule(
  random: Random,
  id: string,
  pointer: string,
  groupMode: 'audit' | 'enforce',
  kinds: { readonly tls: boolean; readonly hostnames: boolean; readonly families: readonly Family[] },
): Rule {
  const tls = kinds.tls && random.chance(0.1) ? {} : undefined;
  const shape =
    tls === undefined ? random.pick(['any', 'number', 'ports', 'ports', 'ports', 'icmp'] as const) : 'ports';
  const portProtocols = tls === undefined ? (['any', ...PORT_PROTOCOLS] as const) : (['any', IPPROTO.tcp] as const);
  const protocol =
    shape === 'any'
      ? 'any'
      : shape === 'number'
        ? random.pick(PROTOCOLS)
        : shape === 'ports'
          ? random.pick(portProtocols)
          : random.pick(kinds.families.includes('ipv6') ? ICMP_OF_BOTH : (['any', IPPROTO.icmp] as const));
  const sometimes = <T>(wanted: boolean, probability: number, make: () => T): T[] =>
    wanted && random.chance(probability) ? random.some(1, 3, make) : [];
  return {
    id,
    pointer,
    action: random.pick(['allow', 'deny'] as const),
    mode: random.chance(0.3) ? random.pick(['audit', 'enforce'] as const) : groupMode,
    destinations: sometimes(true, 0.6, () => generateAnyPrefix(random, kinds.families)),
    hostname: kinds.hostnames && random.chance(0.15) ? random.pick(PATTERNS) : undefined,
    protocol,
    sourcePorts: sometimes(shape === 'ports', 0.3, () => generateRange(random)),
    destinationPorts: sometimes(shape === 'ports', 0.7, () => generateRange(random)),
    icmpTypes: sometimes(shape === 'icmp', 0.7, () => random.pick(icmpTypesOf(protocol))),
    icmpCodes: sometimes(shape === 'icmp', 0.4, () => random.pick(ICMP_NUMBERS)),
    tls,
  };
}

function icmpTypesOf(protocol: number | 'any'): readonly number[] {
  return protocol === IPPROTO.icmpv6 ? ICMPV6_TYPES : ICMP_NUMBERS;
}

const IPV6_ADDRESSES = [
  0n,
  1n,
  0x2001_0db8_0000_0000_0000_0000_0000_0000n,
  0x2001_0db8_0000_0001_0000_0000_0000_0000n,
  0x2001_0db8_0000_0001_0000_0000_0000_0001n,
  0x2001_0db8_0000_0001_ffff_ffff_ffff_ffffn,
  0xfd00_0000_0000_0000_0000_0001_0000_0002n,
  (1n << 128n) - 1n,
];
const IPV6_LENGTHS = [0, 1, 16, 31, 32, 33, 48, 63, 64, 64, 64, 65, 95, 96, 97, 112, 127, 128, 128, 128];

function generateAnyPrefix(random: Random, families: readonly Family[]): Prefix {
  if (random.pick(families) === 'ipv4') return generatePrefix(random);
  const length = random.pick(IPV6_LENGTHS);
  const near =
    random.pick(IPV6_ADDRESSES) ^
    (random.chance(0.3) ? BigInt(random.below(1024)) << BigInt(random.pick([0, 30, 62, 94])) : 0n);
  return { address: mask(near, length), length };
}

function generatePrefix(random: Random): Prefix<number> {
  const length = random.pick(LENGTHS);
  const near = (random.pick(ADDRESSES) ^ (random.chance(0.3) ? random.below(1024) : 0)) >>> 0;
  return { address: mask(near, length), length };
}

function generateRange(random: Random): Range {
  const low = random.pick(PORTS);
  if (random.chance(0.5)) return { low, high: low };
  const high = random.pick(PORTS);
  return { low: Math.min(low, high), high: Math.max(low, high) };
}

/**
 * Returns a function that generates packets. Most fields have a value at a bound of the policy's matchers, or
 * one below or above the bound.
 */
export function packetGenerator(
  random: Random,
  policy: Policy,
  podNetworks: readonly Prefix[] = [],
): () => Packet<number> {
  return packetsOf(random, policy, podNetworks, 'ipv4', () => random.word());
}

/** Like `packetGenerator`, for IPv6 packets. */
export function ipv6PacketGenerator(
  random: Random,
  policy: Policy,
  podNetworks: readonly Prefix[] = [],
): () => Packet<bigint> {
  return packetsOf(random, policy, podNetworks, 'ipv6', () => randomIpv6(random));
}

function packetsOf<F extends Family>(
  random: Random,
  policy: Policy,
  podNetworks: readonly Prefix[],
  family: F,
  anyAddress: () => AddressOf<F>,
): () => Packet<AddressOf<F>> {
  const rules = policy.groups.flatMap((group) => group.rules);
  const sources = edges([...policy.groups.flatMap((group) => group.sources), ...podNetworks], family);
  const destinations = edges(
    rules.flatMap((rule) => rule.destinations),
    family,
  );
  const sourcePorts = rangeEdges(rules.flatMap((rule) => rule.sourcePorts));
  const destinationPorts = rangeEdges(rules.flatMap((rule) => rule.destinationPorts));
  const named = rules.flatMap(({ protocol }) => (protocol === 'any' ? [] : [protocol]));
  const icmp = family === 'ipv4' ? IPPROTO.icmp : IPPROTO.icmpv6;
  const protocols = [...named, ...PORT_PROTOCOLS, IPPROTO.tcp, icmp, icmp];
  const icmpTypes = [...icmpTypesOf(icmp), ...rules.flatMap((rule) => rule.icmpTypes)];
  const icmpCodes = [...ICMP_NUMBERS, ...rules.flatMap((rule) => rule.icmpCodes)];
  return () => {
    const protocol = random.chance(0.1) ? random.below(256) : random.pick(protocols);
    const hasPorts = PORT_PROTOCOLS.includes(protocol);
    const isIcmp = protocol === icmp;
    return {
      source: random.chance(0.05) ? anyAddress() : random.pick(sources),
      destination: random.chance(0.05) ? anyAddress() : random.pick(destinations),
      protocol,
      sourcePort: hasPorts ? random.pick(sourcePorts) : 0,
      destinationPort: hasPorts ? random.pick(destinationPorts) : 0,
      icmpType: isIcmp ? random.pick(icmpTypes) : 0,
      icmpCode: isIcmp ? random.pick(icmpCodes) : 0,
    };
  };
}

/** Returns the first and last addresses of the prefixes and of the family, and their neighbours. */
function edges<F extends Family>(prefixes: readonly Prefix[], family: F): AddressOf<F>[] {
  const all = [...ofFamily(prefixes, family), ...ofFamily(EVERY_ADDRESS[family], family)];
  return all.flatMap((prefix) => [
    prefix.address,
    lastAddress(prefix),
    previousAddress(prefix.address),
    nextAddress(lastAddress(prefix)),
  ]);
}

function randomIpv6(random: Random): bigint {
  return [0, 1, 2, 3].reduce((address) => (address << 32n) | BigInt(random.word()), 0n);
}

function rangeEdges(ranges: readonly Range[]): number[] {
  const wanted = ranges.flatMap(({ low, high }) => [low - 1, low, high, high + 1]);
  return [0, 0xffff, ...wanted.filter((port) => port >= 0 && port <= 0xffff)];
}

/**
 * Returns a random membership: some selectors are resolved, some networks are of pods, and some
 * of the sources that `packetGenerator` uses have an owner.
 */
export function generateMembership(
  random: Random,
  policy: Policy,
  families: readonly Family[] = ['ipv4'],
): ListedMembership {
  const keys = SELECTORS.map(({ key }) => key);
  const all = random.chance(0.5);
  const resolved = new Set(keys.filter(() => all || random.chance(0.6)));
  const podNetworks = random.chance(0.7) ? random.some(1, 3, () => generateAnyPrefix(random, families)) : [];
  const networks = new Map(
    [...resolved].flatMap((key) => (random.chance(0.1) ? [[key, [generateAnyPrefix(random, families)]]] : [])),
  );
  const added = Array.from({ length: random.between(1, 6) }, (_, at) => ({
    number: at + 1,
    keys: keys.filter(() => random.chance(0.4)),
  }));
  const prefixes = [
    ...policy.groups.flatMap((group) => group.sources),
    ...podNetworks,
    ...[...networks.values()].flat(),
  ];
  const sources = new Set<Address>(families.flatMap((family): readonly Address[] => edges(prefixes, family)));
  const addresses = [...sources].filter(() => random.chance(0.5));
  const former = [...sources].filter((source) => !addresses.includes(source) && random.chance(0.2));
  return {
    scope: { resolved, podNetworks, networks },
    former: {
      addresses: [...former],
      sets: Uint32Array.from(former, () => random.between(1, added.length)),
    },
    list: {
      added,
      dropped: [],
      addresses: [...addresses],
      sets: Uint32Array.from(addresses, () =>
        random.chance(0.1) ? DENY_ONLY_MEMBER.number : random.between(1, added.length),
      ),
    },
  };
}

/** Returns pseudo-random grants. Equal salts give equal grants. */
export function generateGrants(salt: number): Grants {
  return {
    has(pattern, address) {
      let mixed = Math.imul(foldedWord(address) ^ salt, 0x9e3779b1);
      for (let at = 0; at < pattern.text.length; at++)
        mixed = Math.imul(mixed ^ pattern.text.charCodeAt(at), 0x01000193);
      return ((mixed ^ (mixed >>> 15)) & 1) === 1;
    },
  };
}

export type Case = { readonly policy: Policy; readonly packet: Packet };

/**
 * Returns the smallest policy and packet found for which `fails` is still true. The function calls `fails`
 * with each smaller candidate.
 */
export function shrink(policy: Policy, packet: Packet, fails: (policy: Policy, packet: Packet) => boolean): Case {
  let smallest: Case = { policy, packet };
  for (let smaller: Case | undefined = smallest; smaller !== undefined; ) {
    smallest = smaller;
    smaller = undefined;
    for (const candidate of smallerCases(smallest)) {
      if (!fails(candidate.policy, candidate.packet)) continue;
      smaller = candidate;
      break;
    }
  }
  return smallest;
}

function* smallerCases({ policy, packet }: Case): Generator<Case> {
  for (const groups of without(policy.groups)) yield { policy: { ...policy, groups }, packet };
  for (const [index, group] of policy.groups.entries()) {
    for (const smaller of smallerGroups(group)) {
      yield { policy: { ...policy, groups: policy.groups.with(index, smaller) }, packet };
    }
  }
  for (const key of ['sourcePort', 'destinationPort', 'icmpType', 'icmpCode'] as const) {
    if (packet[key] !== 0) yield { policy, packet: { ...packet, [key]: 0 } };
  }
  for (const key of ['destination', 'source'] as const) {
    const first = typeof packet[key] === 'number' ? 0 : 0n;
    if (packet[key] !== first) yield { policy, packet: { ...packet, [key]: first } };
  }
}

function* smallerGroups(group: Group): Generator<Group> {
  for (const rules of without(group.rules)) yield { ...group, rules };
  for (const sources of without(group.sources)) yield { ...group, sources };
  if (group.defaultAction !== undefined) yield { ...group, defaultAction: undefined };
  for (const [index, rule] of group.rules.entries()) {
    for (const smaller of smallerRules(rule)) yield { ...group, rules: group.rules.with(index, smaller) };
  }
}

function* smallerRules(rule: Rule): Generator<Rule> {
  if (rule.hostname !== undefined) yield { ...rule, hostname: undefined };
  if (rule.tls !== undefined) yield { ...rule, tls: undefined };
  for (const destinations of without(rule.destinations)) yield { ...rule, destinations };
  for (const sourcePorts of without(rule.sourcePorts)) yield { ...rule, sourcePorts };
  for (const destinationPorts of without(rule.destinationPorts)) yield { ...rule, destinationPorts };
  for (const icmpTypes of without(rule.icmpTypes)) yield { ...rule, icmpTypes };
  for (const icmpCodes of without(rule.icmpCodes)) yield { ...rule, icmpCodes };
  if (rule.protocol !== 'any') yield { ...rule, protocol: 'any' };
}

/**
 * Yields `list` without its first half, `list` without its second half, and then `list` without each single
 * element.
 */
function* without<T>(list: readonly T[]): Generator<readonly T[]> {
  if (list.length > 2) {
    const middle = list.length >>> 1;
    yield list.slice(middle);
    yield list.slice(0, middle);
  }
  for (const index of list.keys()) yield list.toSpliced(index, 1);
}
