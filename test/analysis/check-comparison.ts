import { inspect } from 'node:util';
import { familyOf } from '#addresses/ip-address.js';
import { type AddressSpace, IPV4, type Span } from '#analysis/engine/address-space.js';
import { type Compared, type CompareOptions, compare, type Region } from '#analysis/engine/comparison.js';
import type { Atom } from '#analysis/engine/conditions.js';
import { DeciderFinder } from '#analysis/engine/decider.js';
import type { Change } from '#analysis/engine/decision-lists.js';
import type { ValueSet } from '#analysis/engine/pieces.js';
import { itemAt } from '#arrays/read.js';
import {
  type Address,
  type Family,
  ICMP,
  isIcmp,
  type Packet,
  PORT_PROTOCOLS,
  type Policy,
} from '#contracts/policy/policy-model.js';
import { portMapKey } from '#contracts/policy/program.js';
import type { Random } from '#test/seed.js';
import { ipv6PacketGenerator, packetGenerator } from '../policy/generate.js';
import { decideIn, holdsIn, randomWorld, type World } from './world.js';

function keyOfPacket({ protocol, destinationPort, icmpType, icmpCode }: Packet): number {
  return portMapKey(protocol, isIcmp(protocol) ? icmpType * 256 + icmpCode : destinationPort);
}

export function includes({ space, sources, destinations, keys, sourcePorts }: Region, packet: Packet): boolean {
  return (
    space.family === familyOf(packet.source) &&
    inSpans(sources, packet.source) &&
    inSpans(destinations, packet.destination) &&
    inSet(keys, keyOfPacket(packet)) &&
    inSet(sourcePorts, packet.sourcePort)
  );
}

const inSpans = (spans: readonly Span[], point: Address): boolean =>
  spans.some(({ start, end }) => start <= point && point < end);

function inSet(set: ValueSet, value: number): boolean {
  for (let at = 0; at < set.length; at += 2) if (itemAt(set, at) <= value && value < itemAt(set, at + 1)) return true;
  return false;
}

/** Returns a packet at a corner of a region, or undefined if the key has no packet. */
export function cornerOf(random: Random, region: Region): Packet<number> {
  const pickSpan = (spans: readonly Span[]) => {
    const { start, end } = random.pick(spans);
    return (Number(random.chance(0.5) ? start : end) - (random.chance(0.5) ? 0 : 1)) >>> 0;
  };
  return cornerIn(random, region, 'ipv4', pickSpan);
}

/** Returns an IPv6 packet at a corner of a region. */
export function ipv6CornerOf(random: Random, region: Region): Packet<bigint> {
  const pickSpan = (spans: readonly Span[]) => {
    const { start, end } = random.pick(spans);
    return BigInt.asUintN(128, BigInt(random.chance(0.5) ? start : end) - (random.chance(0.5) ? 0n : 1n));
  };
  return cornerIn(random, region, 'ipv6', pickSpan);
}

function cornerIn<A extends Address>(
  random: Random,
  { sources, destinations, keys, sourcePorts }: Region,
  family: Family,
  pickSpan: (spans: readonly Span[]) => A,
): Packet<A> {
  const pickValue = (set: ValueSet, size: number) => {
    const at = 2 * random.below(set.length / 2);
    const value = random.chance(0.5) ? itemAt(set, at) : itemAt(set, at + 1) - 1;
    return Math.min(Math.max(value - (random.chance(0.2) ? 1 : 0), 0), size - 1);
  };
  const key = pickValue(keys, 2 ** 24);
  const protocol = key >>> 16;
  const hasPorts = PORT_PROTOCOLS.includes(protocol);
  const hasType = protocol === ICMP[family];
  return {
    source: pickSpan(sources),
    destination: pickSpan(destinations),
    protocol,
    sourcePort: hasPorts ? pickValue(sourcePorts, 0x1_0000) : 0,
    destinationPort: hasPorts ? key & 0xffff : 0,
    icmpType: hasType ? (key >>> 8) & 255 : 0,
    icmpCode: hasType ? key & 255 : 0,
  };
}

/** The counts of `checkPair`. */
export type Checked = { packets: number; inside: number; changes: number };

/**
 * Compares two policies by the engine, and checks packets inside, at the edges and outside of the regions
 * against a walk over both policies. Throws an error that names the first contradiction.
 */
export function checkPair(
  random: Random,
  before: Policy,
  after: Policy,
  packets: number,
  options: CompareOptions = { spaces: [IPV4] },
): Checked {
  const { spaces } = options;
  const compared = compare(before, after, options);
  const ofPair: Policy = { ...before, groups: [...before.groups, ...after.groups] };
  const families = spaces.map((space) => ({
    space,
    regions: compared.regions.filter((region) => region.space === space),
    finders: [before, after].map((policy) => new DeciderFinder(policy, space, compared.conditions)),
    ...packetsOf(random, ofPair, space),
  }));
  const found: Checked = { packets: 0, inside: 0, changes: 0 };
  for (let count = 0; count < packets; count++) {
    const { regions, finders, corner, edge } = random.pick(families);
    const region = regions[random.below(regions.length)];
    const packet = region !== undefined && random.chance(0.6) ? corner(region) : edge();
    const world = randomWorld(random, [before, after]);
    checkPacket(before, after, compared, finders, packet, world, found);
  }
  return found;
}

/** Returns generators of packets of one family: at a corner of a region, and at a bound of a matcher. */
export function packetsOf(
  random: Random,
  policy: Policy,
  { family }: AddressSpace,
): { readonly corner: (region: Region) => Packet; readonly edge: () => Packet } {
  if (family === 'ipv4') return { corner: (region) => cornerOf(random, region), edge: packetGenerator(random, policy) };
  return { corner: (region) => ipv6CornerOf(random, region), edge: ipv6PacketGenerator(random, policy) };
}

function checkPacket(
  before: Policy,
  after: Policy,
  { regions, conditions }: Compared,
  finders: readonly DeciderFinder[],
  packet: Packet,
  world: World,
  found: Checked,
): void {
  const decided = [decideIn(before, packet, world), decideIn(after, packet, world)] as const;
  const inside = regions.filter((region) => includes(region, packet));
  found.packets++;
  found.inside += inside.length;
  const fail = (why: string): never => {
    const { names, denyOnly, selectors, blocks } = world;
    throw new Error(`${why}: ${inspect({ packet, names, denyOnly, selectors, blocks, decided }, { depth: null })}`);
  };
  if (inside.length > 1) fail('two regions contain the packet');
  const changes = inside[0]?.changes ?? [];
  for (const attribute of ['verdict', 'inspection'] as const) {
    const [from, to] = decided.map((one) => (attribute === 'verdict' ? one.outcome : one.inspected));
    const isStated = changes.some(
      (change) =>
        change.attribute === attribute &&
        conditions.describe(change.condition).every((atom) => holdsIn(world, atom)) &&
        stateOf(change, change.from, conditions) === from &&
        stateOf(change, change.to, conditions) === to,
    );
    if (from !== to && !isStated) fail(`a change of the ${attribute} is missed`);
  }
  for (const change of changes) {
    // Interception sees every certificate.
    if (conditions.describe(change.condition).some((atom) => isHidden(atom) && atom.tls.mode === 'intercept'))
      fail('a certificate is hidden from an interception');
    const exact = worldOf(conditions.describe(change.condition));
    if (exact === undefined) continue;
    found.changes++;
    const real = [before, after].map((policy) => decideIn(policy, packet, exact));
    const stated = [change.from, change.to].map((entry) => stateOf(change, entry, conditions));
    for (const [side, one] of real.entries())
      if ((change.attribute === 'verdict' ? one.outcome : one.inspected) !== stated[side])
        fail(`a stated change is wrong (${JSON.stringify({ change, names: exact.names, real })})`);
    const holding =
      conditions.closure(conditions.atomsOf(change.condition)) ??
      fail('the condition of a stated change holds for no flow');
    const flow = { ...packet, key: keyOfPacket(packet) };
    for (const [side, finder] of finders.entries()) {
      const { outcome, inspected } = finder.decide(flow, holding);
      if (outcome !== real[side]?.outcome || inspected !== real[side]?.inspected) fail('the decider is wrong');
    }
    for (const exception of change.unless) {
      const undone = worldOf([...conditions.describe(change.condition), ...conditions.describe(exception)]);
      if (undone === undefined) continue;
      const [one, other] = [before, after].map((policy) => decideIn(policy, packet, undone));
      const isUndone =
        change.attribute === 'verdict' ? one?.outcome === other?.outcome : one?.inspected === other?.inspected;
      if (!isUndone) fail(`an exception does not undo the change (${JSON.stringify(change)})`);
    }
  }
}

const isHidden = (atom: Atom): atom is Extract<Atom, { kind: 'tls' }> => atom.kind === 'tls' && atom.state === 'hidden';

function stateOf(change: Change, entry: Change['from'], conditions: Compared['conditions']) {
  return change.attribute === 'verdict' ? entry.outcome : conditions.isTls(entry.condition);
}

/**
 * Returns the world in which exactly the condition of a change holds; undefined if no such world is known.
 */
export function worldOf(atoms: ReturnType<Compared['conditions']['describe']>): World | undefined {
  const names: string[] = [];
  const selectors = new Map<string, 'selected' | 'unresolved'>();
  const blocks = new Map<string, 'matches' | 'unknown' | 'hidden'>();
  let denyOnly = false;
  for (const atom of atoms) {
    if (atom.kind === 'name') {
      if (atom.pattern.kind === 'exact') names.push(atom.pattern.text);
      else if (atom.pattern.kind === 'suffix') names.push(`zz.${atom.pattern.labels.join('.')}`);
      else if (atom.pattern.kind === 'any') names.push('zz.invalid');
      else return undefined;
    } else if (atom.kind === 'deny_only') denyOnly = true;
    else if (atom.kind === 'tls') {
      const state = atom.state === 'may_match' ? 'unknown' : atom.state;
      if (blocks.get(atom.block) !== 'matches') blocks.set(atom.block, state);
    } else selectors.set(atom.key, atom.kind);
  }
  return { names, selectors, blocks, denyOnly };
}
