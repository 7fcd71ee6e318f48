import {
  foldedWord,
  LAST_ADDRESS,
  lastAddress,
  nextAddress,
  ofFamily,
  previousAddress,
} from '#addresses/ip-address.js';
import { itemAt, u32At } from '#arrays/read.js';
import {
  type Address,
  type Family,
  type Group,
  ICMP,
  IPPROTO,
  PORT_PROTOCOLS,
  type Prefix,
  type Range,
  type Rule,
} from '#contracts/policy/policy-model.js';
import { affectedSources } from '#policy/model/sources/rule-scope.js';
import type { ScopedGroup } from '#policy/model/sources/source-index.js';
import { lastOfFields, namedProtocols } from './proof-axes.js';
import type { OwnedSource } from './proof-owners.js';
import type { ProofPackets } from './proof-packets.js';
import { ProofRandom } from './random-numbers.js';

/**
 * `destinationOrder` sorts only lists with at least this many rules. The data of a shorter list fits into the
 * CPU caches, so its order has no effect on speed.
 */
const WORTH_IT = 1_024;

const known = new WeakMap<readonly Rule[], Uint32Array>();

/**
 * Returns a function that maps a position in the visiting order (0, 1, …) to a rule index. Rules of a list
 * with `WORTH_IT` or more rules are visited by ascending address of their first IPv4 destination. Rules of a
 * shorter list, and rules for IPv6, are visited in list order.
 */
function destinationOrder(rules: readonly Rule[], family: Family): (turn: number) => number {
  if (rules.length < WORTH_IT || family === 'ipv6') return (turn) => turn;
  const order = known.get(rules) ?? sorted(rules);
  known.set(rules, order);
  return (turn) => u32At(order, turn);
}

function sorted(rules: readonly Rule[]): Uint32Array {
  const keys = new Float64Array(rules.length);
  for (let place = 0; place < rules.length; place++) {
    keys[place] = (ofFamily(itemAt(rules, place).destinations, 'ipv4')[0]?.address ?? 0) * rules.length + place;
  }
  return Uint32Array.from(keys.sort(), (key) => key % rules.length);
}

const USUAL_PROTOCOLS: Readonly<Record<Family, readonly number[]>> = {
  ipv4: [...PORT_PROTOCOLS, IPPROTO.icmp, 0, 2, 47, 50, 255],
  ipv6: [...PORT_PROTOCOLS, IPPROTO.icmpv6, 1, 2, 47, 50, 59, 255],
};

/**
 * The number of packets that `ProofCorners` makes for each rule and purpose: one number of packets that
 * narrowly miss the rule, and the same number that combine two groups. A value below 1 is a power of two and
 * means one packet for every 1/density rules.
 */
export type Density = number;

/**
 * Parts of the random seed, one for each kind of packet: packets that match a rule, that narrowly miss a
 * rule, and that combine two groups. So each kind of packet has its own random numbers.
 */
const INSIDE = 0;
const BESIDE = 0x1_0000;
const ACROSS = 0x2_0000;

/**
 * Adds packets with field values at the bounds of rules. The random seed of a packet depends only on its
 * group, rule and kind, so an unchanged group gives the same packets in the next sample. A packet that
 * combines two groups also depends on the second group and on the number of groups.
 */
export class ProofCorners {
  readonly #random = new ProofRandom();
  readonly #groups: readonly Group[];
  readonly #stride: number;
  readonly #reachedGroups: Reached[] = [];
  // The field values of the packet under construction.
  #destination: Address;
  #protocol = 0;
  #major = 0;
  #minor = 0;

  constructor(
    readonly packets: ProofPackets,
    readonly density: Density,
  ) {
    this.#groups = packets.walk.policy.groups;
    this.#destination = LAST_ADDRESS[packets.family];
    this.#stride = Math.max(1, 1 / density);
  }

  /**
   * Adds one packet for each rule of the group. All fields of the packet are within the bounds of the rule.
   */
  addInside(group: number): void {
    const { rules } = this.#reached(group);
    const placeAt = destinationOrder(rules, this.packets.family);
    for (let turn = 0; turn < rules.length && !this.packets.exhausted; turn++) this.addInsideOf(group, placeAt(turn));
  }

  addInsideOf(group: number, place: number): void {
    const { sources, rules } = this.#reached(group);
    this.#begin(group, place, INSIDE);
    this.#makeCorner(itemAt(rules, place));
    this.#add(this.#end(sources));
  }

  /**
   * Adds packets that narrowly miss a rule of the group: one field, or the source address, is just outside
   * its bounds.
   */
  addBeside(group: number): void {
    const { sources, rules } = this.#reached(group);
    const placeAt = destinationOrder(rules, this.packets.family);
    for (let at = this.#firstOf(group, BESIDE); at < rules.length; at += this.#stride) {
      if (this.packets.exhausted) return;
      const place = placeAt(at);
      for (let turn = 0; turn < this.density; turn++) {
        this.#begin(group, place, BESIDE + turn);
        const rule = itemAt(rules, place);
        this.#makeCorner(rule);
        if (this.#random.flip()) {
          this.#add(this.#beside(sources));
        } else {
          this.#stepOut(rule);
          this.#add(this.#end(sources));
        }
      }
    }
  }

  /**
   * Adds packets that combine a rule of the group with the sources or destinations of another group. If
   * `known` returns true for the other group, `known` has copied this packet from the previous sample, and
   * the function adds no packet.
   */
  addAcross(group: number, known: (other: number) => boolean = () => false): void {
    const own = this.#reached(group);
    for (let place = this.#firstOf(group, ACROSS); place < own.rules.length; place += this.#stride) {
      if (this.packets.exhausted) return;
      for (let turn = 0; turn < this.density; turn++) {
        this.#begin(group, place, ACROSS + turn);
        const number = this.#random.below(this.#groups.length);
        if (known(number)) continue;
        const other = this.#reached(number);
        const rule = itemAt(own.rules, place);
        this.#makeCorner(rule);
        const fromOther = other.sources.length > 0 && this.#random.flip();
        if (!fromOther || this.#random.flip()) {
          if (other.rules.length > 0) this.#destination = this.#destinationOf(this.#random.pick(other.rules));
          this.#stepOut(rule);
        }
        this.#add(this.#end(fromOther ? other.sources : own.sources));
      }
    }
  }

  /** Adds packets from a source that a Kubernetes object owns, for random rules of groups among `groups`. */
  addOwned({ source, owner }: OwnedSource, groups: readonly ScopedGroup[], count: number): void {
    const withRules = groups.map(({ group }) => itemAt(this.#groups, group).rules).filter(({ length }) => length > 0);
    this.#random.begin(Math.imul(foldedWord(source), 0x85eb_ca6b) ^ Math.imul(owner, 0xc2b2_ae35));
    for (let turn = 0; turn < count && withRules.length > 0 && !this.packets.exhausted; turn++) {
      const rule = this.#random.pick(this.#random.pick(withRules));
      this.#makeCorner(rule);
      if (this.#random.flip()) this.#stepOut(rule);
      this.packets.add(source, this.#destination, this.#protocol, this.#major, this.#minor, owner);
    }
  }

  /**
   * Returns the sources and rules of a group. Returns empty lists for a group that has no sources, so that no
   * packets are made for this group.
   */
  #reached(group: number): Reached {
    this.#reachedGroups[group] ??= this.#reachedOf(group);
    return this.#reachedGroups[group];
  }

  #reachedOf(group: number): Reached {
    const found = itemAt(this.#groups, group);
    const all = found.selectors.length === 0 ? found.sources : affectedSources(found, this.packets.walk.resolution);
    const sources = ofFamily(all, this.packets.family);
    return sources.length > 0 ? { sources, rules: found.rules } : UNREACHED;
  }

  #begin(group: number, place: number, kind: number): void {
    const { sources, rules } = this.#reached(group);
    const { address, length } = itemAt(sources, 0);
    let seed = Math.imul(foldedWord(address) + length, 0x85eb_ca6b) ^ Math.imul(rules.length, 0xc2b2_ae35);
    seed = Math.imul(seed ^ (seed >>> 15) ^ kind, 0x2545_f491);
    this.#random.begin(Math.imul(seed ^ (seed >>> 13), 0xc2b2_ae35) + Math.imul(place, 0x9e37_79b1));
  }

  /**
   * Returns the index of the first rule of a group for which packets of this kind are made. The following
   * packets are for every `#stride`th rule after this rule.
   */
  #firstOf(group: number, kind: number): number {
    if (this.#stride === 1 || this.#reached(group) === UNREACHED) return 0;
    this.#begin(group, 0, kind);
    return this.#random.below(this.#stride);
  }

  #add(source: Address): void {
    this.packets.add(source, this.#destination, this.#protocol, this.#major, this.#minor);
  }

  #destinationOf(rule: Rule): Address {
    const destinations = ofFamily(rule.destinations, this.packets.family);
    if (destinations.length === 0) return this.#destination;
    return this.#random.flip() ? this.#end(destinations) : this.#beside(destinations);
  }

  #makeCorner(rule: Rule): void {
    const random = this.#random;
    const named = namedProtocols(rule);
    this.#protocol = random.pick(named.length > 0 ? named : USUAL_PROTOCOLS[this.packets.family]);
    const destinations = ofFamily(rule.destinations, this.packets.family);
    this.#destination = destinations.length > 0 ? this.#end(destinations) : this.#anyAddress();
    const last = lastOfFields(this.#protocol, this.packets.family);
    if (this.#protocol === ICMP[this.packets.family]) {
      this.#major = this.#number(rule.icmpTypes, last);
      this.#minor = this.#number(rule.icmpCodes, last);
    } else {
      this.#major = this.#port(rule.destinationPorts, last);
      this.#minor = this.#port(rule.sourcePorts, last);
    }
  }

  /**
   * Changes one field of the packet under construction: to a value just outside the values that the rule
   * names, or to another protocol.
   */
  #stepOut(rule: Rule): void {
    const random = this.#random;
    const isIcmp = this.#protocol === ICMP[this.packets.family];
    const destinations = ofFamily(rule.destinations, this.packets.family);
    const majors = isIcmp ? rule.icmpTypes.length : rule.destinationPorts.length;
    const minors = isIcmp ? rule.icmpCodes.length : rule.sourcePorts.length;
    const last = lastOfFields(this.#protocol, this.packets.family);
    // Choose one of four fields at random. If the rule does not name this field, try the next field.
    for (let turn = random.below(4), turns = 0; turns < 4; turn = (turn + 1) & 3, turns++) {
      if (turn === 0 && destinations.length > 0) {
        this.#destination = this.#beside(destinations);
      } else if (turn === 1 && majors > 0) {
        this.#major = isIcmp
          ? this.#random.nextTo(this.#major, this.#major, last)
          : this.#past(rule.destinationPorts, last);
      } else if (turn === 2 && minors > 0) {
        this.#minor = isIcmp ? this.#random.nextTo(this.#minor, this.#minor, last) : this.#past(rule.sourcePorts, last);
      } else if (turn === 3 && namedProtocols(rule).length > 0) {
        this.#protocol = random.flip()
          ? random.pick(USUAL_PROTOCOLS[this.packets.family])
          : random.nextTo(this.#protocol, this.#protocol, 255);
      } else {
        continue;
      }
      return;
    }
  }

  #anyAddress(): Address {
    const random = this.#random;
    if (this.packets.family === 'ipv4') return random.word();
    return [0, 1, 2, 3].reduce((address) => (address << 32n) | BigInt(random.word()), 0n);
  }

  /** Returns the first or last address of a randomly chosen prefix. */
  #end(prefixes: readonly Prefix[]): Address {
    const prefix = this.#random.pick(prefixes);
    return this.#random.flip() ? prefix.address : lastAddress(prefix);
  }

  /** Returns the address just before or just after a randomly chosen prefix. */
  #beside(prefixes: readonly Prefix[]): Address {
    const prefix = this.#random.pick(prefixes);
    return this.#random.flip() ? nextAddress(lastAddress(prefix)) : previousAddress(prefix.address);
  }

  #port(ranges: readonly Range[], last: number): number {
    if (ranges.length === 0) return this.#random.within(0, last);
    const { low, high } = this.#random.pick(ranges);
    return this.#random.flip() ? low : high;
  }

  #past(ranges: readonly Range[], last: number): number {
    const { low, high } = this.#random.pick(ranges);
    return this.#random.nextTo(low, high, last);
  }

  #number(numbers: readonly number[], last: number): number {
    return numbers.length === 0 ? this.#random.within(0, last) : this.#random.pick(numbers);
  }
}

type Reached = { readonly sources: readonly Prefix[]; readonly rules: readonly Rule[] };
const UNREACHED: Reached = { sources: [], rules: [] };
