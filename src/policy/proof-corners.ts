import { lastAddress } from './ipv4.js';
import { IPPROTO, PORT_PROTOCOLS, type Prefix, type Range, type Rule } from './model.js';
import { LAST_ADDRESS, lastOfFields, namedProtocols } from './proof-axes.js';
import type { ProofPackets } from './proof-packets.js';
import type { ProofRandom } from './proof-random.js';

/** Neighbours are taken together, since they lie together in memory; and every so many of these runs in one round. */
const RUN = 8;
const ROUNDS = 64;

const USUAL_PROTOCOLS: readonly number[] = [...PORT_PROTOCOLS, IPPROTO.icmp, 0, 2, 47, 50, 255];

/**
 * Adds packets at the corners of rules, for sources at the ends of their groups: one inside of each rule; and others
 * just outside of one field, from just outside of the group, or from sources of another group. The same policy
 * gives the same packets.
 */
export class ProofCorners {
  readonly #random: ProofRandom;
  readonly #rules: readonly Rule[];
  /** Per rule, its group. */
  readonly #groups: Uint32Array;
  // The corner that was made last.
  #destination = 0;
  #protocol = 0;
  #major = 0;
  #minor = 0;

  constructor(
    readonly packets: ProofPackets,
    random: ProofRandom,
  ) {
    const { groups } = packets.policy;
    this.#random = random;
    const reached = groups.map(({ sources, rules }) => (sources.length > 0 ? rules : []));
    this.#rules = reached.flat();
    this.#groups = new Uint32Array(this.#rules.length);
    let at = 0;
    for (const [group, { length }] of reached.entries()) {
      this.#groups.fill(group, at, at + length);
      at += length;
    }
  }

  /** One inside of each rule; where that takes too long, of rules from everywhere. */
  addInside(): void {
    const { length } = this.#rules;
    for (let round = 0; round < ROUNDS; round++) {
      for (let first = round * RUN; first < length; first += ROUNDS * RUN) {
        if (this.packets.exhausted) return;
        for (let at = first; at < Math.min(first + RUN, length); at++) {
          this.#makeCorner(this.#rules[at] as Rule);
          this.#add(this.#end(this.#sources(at)));
        }
      }
    }
  }

  /** `count` of them, beside rules by chance. */
  addBeside(count: number): void {
    const { length } = this.#rules;
    let at = 0;
    for (let done = 0; done < count && length > 0 && !this.packets.exhausted; done++) {
      at = done % RUN === 0 ? this.#random.below(length) : (at + 1) % length;
      const rule = this.#rules[at] as Rule;
      this.#makeCorner(rule);
      switch (this.#random.below(4)) {
        case 0:
          this.#add(this.#beside(this.#sources(at)));
          break;
        case 1:
          this.#stepOut(rule);
          this.#add(this.#end(this.#sources(at)));
          break;
        case 2:
          this.#add(this.#end(this.#sources(this.#random.below(length))));
          break;
        default: {
          const { destinations } = this.#rules[this.#random.below(length)] as Rule;
          if (destinations.length > 0)
            this.#destination = this.#random.flip() ? this.#end(destinations) : this.#beside(destinations);
          this.#stepOut(rule);
          this.#add(this.#end(this.#sources(this.#random.below(length))));
        }
      }
    }
  }

  #sources(rule: number): readonly Prefix[] {
    return this.packets.policy.groups[this.#groups[rule] as number]?.sources ?? [];
  }

  #add(source: number): void {
    this.packets.add(source, this.#destination, this.#protocol, this.#major, this.#minor);
  }

  #makeCorner(rule: Rule): void {
    const random = this.#random;
    const named = namedProtocols(rule);
    this.#protocol = random.pick(named.length > 0 ? named : USUAL_PROTOCOLS);
    this.#destination = rule.destinations.length > 0 ? this.#end(rule.destinations) : random.word();
    const last = lastOfFields(this.#protocol);
    if (this.#protocol === IPPROTO.icmp) {
      this.#major = this.#number(rule.icmpTypes, last);
      this.#minor = this.#number(rule.icmpCodes, last);
    } else {
      this.#major = this.#port(rule.destinationPorts, last);
      this.#minor = this.#port(rule.sourcePorts, last);
    }
  }

  /** Moves the corner past an end of one field, of those that the rule names. */
  #stepOut(rule: Rule): void {
    const random = this.#random;
    const isIcmp = this.#protocol === IPPROTO.icmp;
    const majors = isIcmp ? rule.icmpTypes.length : rule.destinationPorts.length;
    const minors = isIcmp ? rule.icmpCodes.length : rule.sourcePorts.length;
    const last = lastOfFields(this.#protocol);
    // Four fields; one that the rule does not name gives its turn to the next.
    for (let turn = random.below(4), turns = 0; turns < 4; turn = (turn + 1) & 3, turns++) {
      if (turn === 0 && rule.destinations.length > 0) {
        this.#destination = this.#beside(rule.destinations);
      } else if (turn === 1 && majors > 0) {
        this.#major = isIcmp
          ? this.#random.nextTo(this.#major, this.#major, last)
          : this.#past(rule.destinationPorts, last);
      } else if (turn === 2 && minors > 0) {
        this.#minor = isIcmp ? this.#random.nextTo(this.#minor, this.#minor, last) : this.#past(rule.sourcePorts, last);
      } else if (turn === 3 && namedProtocols(rule).length > 0) {
        this.#protocol = random.flip()
          ? random.pick(USUAL_PROTOCOLS)
          : random.nextTo(this.#protocol, this.#protocol, 255);
      } else {
        continue;
      }
      return;
    }
  }

  /** An end of one of the prefixes. */
  #end(prefixes: readonly Prefix[]): number {
    const prefix = this.#random.pick(prefixes);
    return this.#random.flip() ? prefix.address : lastAddress(prefix);
  }

  /** The address before or behind one of the prefixes. */
  #beside(prefixes: readonly Prefix[]): number {
    const prefix = this.#random.pick(prefixes);
    return this.#random.nextTo(prefix.address, lastAddress(prefix), LAST_ADDRESS);
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
