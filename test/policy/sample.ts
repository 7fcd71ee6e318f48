import { parseAddress, parseCidr } from '#addresses/ip-address.js';
import type { EnvelopeMode, Form, PolicyConfig } from '#contracts/policy/policy-document.js';
import type { Action, Group, Packet, Policy, Prefix, Range, Rule, Selector } from '#contracts/policy/policy-model.js';
import { partsOf, policyOf } from '#policy/check/policy-parts.js';
import { selectorOf } from '#policy/model/sources/selector.js';

/** Converts an IPv4 address such as `10.0.0.1` to a 32-bit number. */
export function address(text: string): number {
  return text.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
}

/** Parses a prefix such as `10.0.0.0/8` or `2001:db8::/32`. An address without a length is one address. */
function prefix(text: string): Prefix {
  const parsed = parseCidr(text);
  if (parsed === undefined) throw new RangeError(`not a prefix: ${text}`);
  return parsed.prefix;
}

/** Parses a port such as `443`, or a range of ports such as `80-90`. */
function range(text: string): Range {
  const [low = '', high = low] = text.split('-');
  return { low: Number(low), high: Number(high) };
}

/** Returns a selector of the pods with the label `app` of this value. */
export function selector(app: string): Selector {
  return selectorOf({ integration: 'prod', pod_selector: { match_labels: { app } } });
}

type SampleRule = Partial<Rule> & {
  readonly to?: readonly string[];
  readonly from?: readonly string[];
  readonly ports?: readonly string[];
};

/**
 * Returns a rule that allows every packet, with the fields in `given` replaced. `from` has the source ports,
 * `ports` the destination ports, `to` the destinations.
 */
export function rule(given: SampleRule = {}): Rule {
  const { to = [], from = [], ports = [], ...rest } = given;
  return {
    id: 'rule',
    pointer: '',
    action: 'allow',
    mode: 'enforce',
    destinations: to.map(prefix),
    hostname: undefined,
    protocol: 'any',
    sourcePorts: from.map(range),
    destinationPorts: ports.map(range),
    icmpTypes: [],
    icmpCodes: [],
    tls: undefined,
    ...rest,
  };
}

/** Returns a group in enforce mode with the given sources and rules. */
export function group(sources: readonly string[], rules: readonly Rule[], given: Partial<Group> = {}): Group {
  return {
    id: 'group',
    pointer: '',
    mode: 'enforce',
    sources: sources.map(prefix),
    selectors: [],
    rules,
    defaultAction: undefined,
    ...given,
  };
}

/** Returns a policy whose default is deny in enforce mode. */
export function policy(groups: readonly Group[], given: Partial<Policy['default']> = {}): Policy {
  return { groups, default: { action: 'deny', mode: 'enforce', from: 'fallback', ...given } };
}

/** Returns a TCP packet from 10.0.0.1:40000 to 192.0.2.1:443, with the fields in `given` replaced. */
export function packet(
  given: Partial<Omit<Packet<number>, 'source' | 'destination'>> & { source?: string; destination?: string } = {},
): Packet<number> {
  const { source = '10.0.0.1', destination = '192.0.2.1', ...rest } = given;
  return {
    protocol: 6,
    sourcePort: 40_000,
    destinationPort: 443,
    icmpType: 0,
    icmpCode: 0,
    ...rest,
    source: address(source),
    destination: address(destination),
  };
}

/**
 * Returns a TCP packet from [2001:db8::1]:40000 to [2001:db8:1::1]:443, with the fields in `given` replaced.
 */
export function ipv6Packet(
  given: Partial<Omit<Packet, 'source' | 'destination'>> & { source?: string; destination?: string } = {},
): Packet {
  const { source = '2001:db8::1', destination = '2001:db8:1::1', ...rest } = given;
  const [from, to] = [parseAddress(source), parseAddress(destination)];
  if (from === undefined || to === undefined) throw new RangeError(`not an address: ${source} or ${destination}`);
  return { ...packet(), ...rest, source: from, destination: to };
}

/** Returns an ICMP packet from 10.0.0.1 to 192.0.2.1. */
export function icmp(icmpType: number, icmpCode = 0): Packet<number> {
  return packet({ protocol: 1, sourcePort: 0, destinationPort: 0, icmpType, icmpCode });
}

/** Converts a policy document, which must be valid, to the policy model. */
export function normalise(
  document: PolicyConfig,
  {
    form,
    mode,
    fallback,
    ipv6 = false,
  }: {
    readonly form: Form;
    readonly mode: EnvelopeMode;
    readonly fallback: Action;
    readonly ipv6?: boolean;
  },
): Policy {
  const context = { dns: true, servicePlane: true, ipv6, resolves: () => true };
  return policyOf(partsOf(document, { form, mode, context }), fallback);
}
