import type { EnvelopeMode, Form, PolicyConfig } from '#contracts/policy-document.js';
import type { Action, Group, Packet, Policy, Prefix, Range, Rule } from '#contracts/policy-model.js';
import { partsOf, policyOf } from '#policy/check/policy-parts.js';

/** `10.0.0.1` as a number. */
export function address(text: string): number {
  return text.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
}

/** `10.0.0.0/8`, or a bare address. */
function prefix(text: string): Prefix {
  const [first = '', length = '32'] = text.split('/');
  return { address: address(first), length: Number(length) };
}

/** `443`, or `80-90`. */
function range(text: string): Range {
  const [low = '', high = low] = text.split('-');
  return { low: Number(low), high: Number(high) };
}

type SampleRule = Partial<Rule> & {
  readonly to?: readonly string[];
  readonly from?: readonly string[];
  readonly ports?: readonly string[];
};

/**
 * A rule that allows everything, with the given fields replaced. `from` are source ports, `ports` destination
 * ports.
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

/** An enforcing group of the given sources and rules. */
export function group(sources: readonly string[], rules: readonly Rule[], given: Partial<Group> = {}): Group {
  return {
    id: 'group',
    pointer: '',
    mode: 'enforce',
    sources: sources.map(prefix),
    dynamic: false,
    rules,
    defaultAction: undefined,
    ...given,
  };
}

/** A policy whose default is an enforced deny. */
export function policy(groups: readonly Group[], given: Partial<Policy['default']> = {}): Policy {
  return { groups, default: { action: 'deny', mode: 'enforce', from: 'fallback', ...given } };
}

/** A TCP packet from 10.0.0.1 port 40000 to 192.0.2.1 port 443, with the given fields replaced. */
export function packet(
  given: Partial<Omit<Packet, 'source' | 'destination'>> & { source?: string; destination?: string } = {},
): Packet {
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

/** An ICMP packet from 10.0.0.1 to 192.0.2.1. */
export function icmp(icmpType: number, icmpCode = 0): Packet {
  return packet({ protocol: 1, sourcePort: 0, destinationPort: 0, icmpType, icmpCode });
}

/** The model of a valid document. */
export function normalise(
  document: PolicyConfig,
  { form, mode, fallback }: { readonly form: Form; readonly mode: EnvelopeMode; readonly fallback: Action },
): Policy {
  const context = { dns: true, servicePlane: true, resolves: () => true };
  return policyOf(partsOf(document, { form, mode, context }), fallback);
}
