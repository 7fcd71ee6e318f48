import {
  addressAfter,
  ascending as ascendingAddresses,
  EVERY_ADDRESS,
  LAST_ADDRESS,
  ofFamily,
  previousAddress,
} from '#addresses/ip-address.js';
import {
  type Address,
  type Family,
  ICMP,
  IPPROTO,
  icmpOf,
  PORT_PROTOCOLS,
  type Prefix,
  type Range,
  type Rule,
} from '#contracts/policy/policy-model.js';

/**
 * The first value of each interval of a packet field, ascending and beginning with 0. Within an interval,
 * each rule matches either all values or no value.
 */
export type Axis = readonly number[];

/**
 * A range of IP protocols that all rules treat alike, from `low` to `high` (included). `major` and `minor`
 * are the intervals of the other fields of these protocols: ports, or ICMP type and code.
 */
export type KeyAxes = {
  readonly low: number;
  readonly high: number;
  /** The intervals of the destination port, or of the ICMP type. */
  readonly major: Axis;
  /** The intervals of the source port, or of the ICMP code. */
  readonly minor: Axis;
};

export function hasPorts(protocol: number): boolean {
  return PORT_PROTOCOLS.includes(protocol);
}

/**
 * Returns the largest value of a port, or of an ICMP type or code. Returns 0 for a protocol without such
 * fields in packets of the family.
 */
export function lastOfFields(protocol: number, family: Family): number {
  if (hasPorts(protocol)) return 0xffff;
  return protocol === ICMP[family] ? 255 : 0;
}

/** A range of addresses from `first` to `last` (included). All addresses in it are in the same prefixes. */
export type AddressInterval = { readonly first: Address; readonly last: Address };

/** Divides the addresses of a family at the bounds of its prefixes. Returns the intervals, ascending. */
export function addressIntervals(prefixes: readonly Prefix[], family: Family): readonly AddressInterval[] {
  const starts = new Set(EVERY_ADDRESS[family].map(({ address }) => address));
  for (const prefix of ofFamily(prefixes, family)) {
    starts.add(prefix.address);
    const after = addressAfter(prefix);
    if (after !== undefined) starts.add(after);
  }
  const sorted = ascendingAddresses([...starts]);
  return sorted.map((first, at) => {
    const next = sorted[at + 1];
    return { first, last: next === undefined ? LAST_ADDRESS[family] : previousAddress(next) };
  });
}

/**
 * Returns the last value of the interval with index `at` on the axis. `last` is the last value of the packet
 * field.
 */
export function endOf(axis: Axis, at: number, last: number): number {
  return (axis[at + 1] ?? last + 1) - 1;
}

/**
 * Returns the ranges of IP protocols that the rules distinguish, with the intervals of the other fields of
 * each range.
 */
export function keyAxes(rules: readonly Rule[], family: Family): readonly KeyAxes[] {
  const starts = new Set([0]);
  for (const rule of rules) for (const protocol of namedProtocols(rule)) add(starts, protocol, protocol, 255);
  const protocols = ascending(starts);
  return protocols.map((low, at) => {
    const high = endOf(protocols, at, 255);
    if (low !== high || lastOfFields(low, family) === 0) return { low, high, major: [0], minor: [0] };
    const concerned = rules.filter(({ protocol }) => protocol === 'any' || protocol === low);
    const [major, minor] = hasPorts(low)
      ? [concerned.map(({ destinationPorts }) => destinationPorts), concerned.map(({ sourcePorts }) => sourcePorts)]
      : [concerned.map(({ icmpTypes }) => rangesOf(icmpTypes)), concerned.map(({ icmpCodes }) => rangesOf(icmpCodes))];
    const last = lastOfFields(low, family);
    return { low, high, major: rangeAxis(major, last), minor: rangeAxis(minor, last) };
  });
}

/** Returns the protocols that a rule names, or that its ports, ICMP types or TLS matchers imply. */
export function namedProtocols(rule: Rule): readonly number[] {
  if (rule.protocol !== 'any') return [rule.protocol];
  if (rule.tls !== undefined) return [IPPROTO.tcp];
  if (rule.sourcePorts.length > 0 || rule.destinationPorts.length > 0) return PORT_PROTOCOLS;
  return rule.icmpTypes.length > 0 || rule.icmpCodes.length > 0 ? [icmpOf(rule)] : [];
}

function rangeAxis(lists: readonly (readonly Range[])[], last: number): Axis {
  const starts = new Set([0]);
  for (const ranges of lists) for (const { low, high } of ranges) add(starts, low, high, last);
  return ascending(starts);
}

function rangesOf(numbers: readonly number[]): readonly Range[] {
  return numbers.map((number) => ({ low: number, high: number }));
}

function add(starts: Set<number>, first: number, last: number, end: number): void {
  starts.add(first);
  if (last < end) starts.add(last + 1);
}

function ascending(starts: ReadonlySet<number>): Axis {
  return [...starts].sort((left, right) => left - right);
}
