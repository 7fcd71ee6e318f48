import { bitsOf, containsEverything, parseAddress, parseCidr } from '#addresses/ip-address.js';
import { itemAt } from '#arrays/read.js';
import type { RuleConfig, RuleMatchConfig, SourceGroupConfig } from '#contracts/policy/policy-document.js';
import {
  type Action,
  type Group,
  type HostnamePattern,
  IPPROTO,
  type Mode,
  type Prefix,
  type Range,
  type Rule,
} from '#contracts/policy/policy-model.js';
import { parseHostname } from '#policy/model/names/hostname.js';
import { selectorOf } from '#policy/model/sources/selector.js';
import { parseAction, parseProtocol } from './keywords.js';
import { parsePorts } from './parse-ports.js';
import { normaliseTls } from './tls.js';

/** The default ICMP types of a rule with protocol icmp that lists neither types nor codes (D14). */
const COMMON_ICMP_TYPES: readonly number[] = [0, 3, 8, 11, 12];
/** The default types of ICMPv6 rules: the messages that a firewall must not drop (RFC 4890, 4.3.1). */
const COMMON_ICMPV6_TYPES: readonly number[] = [1, 2, 3, 4, 128, 129];

type Placed<T> = { readonly order: number; readonly value: T };

/** Returns the values sorted by ascending `order`. Values with equal `order` keep their sequence (D3). */
function walk<T>(placed: Placed<T>[]): T[] {
  for (let at = 1; at < placed.length; at++) {
    if (itemAt(placed, at).order >= itemAt(placed, at - 1).order) continue;
    placed.sort((a, b) => a.order - b.order);
    break;
  }
  return placed.map(({ value }) => value);
}

/** `ipv6`: whether the node enforces IPv6 policies. */
export type NormaliseOptions = { readonly ipv6: boolean };

/**
 * Converts a group that passed validation to the policy model. `mode` is the mode of the group, or the mode
 * of the policy record if the group has no mode.
 */
export function normaliseGroup(
  config: SourceGroupConfig,
  pointer: string,
  mode: Mode,
  options: NormaliseOptions,
): Group {
  const { cidrs, ips, kubernetes = [] } = config.sources;
  const rules = (config.rules ?? []).map((ruleConfig, index) => ({
    order: ruleConfig.priority ?? index,
    value: rule(ruleConfig, `/rules/${index}`, mode, options),
  }));
  return {
    id: config.id,
    pointer,
    mode,
    sources: prefixes(cidrs, ips),
    selectors: kubernetes.length === 0 ? NONE : kubernetes.map(selectorOf),
    rules: walk(rules),
    defaultAction: config.default_action === undefined ? undefined : normaliseAction(config.default_action),
  };
}

function rule(config: RuleConfig, pointer: string, mode: Mode, options: NormaliseOptions): Rule {
  const { match } = config;
  const protocol = parseProtocol(match.proto);
  if (protocol === undefined) throw new RangeError(`${pointer}: the value is not a protocol`);
  return {
    id: config.id,
    pointer,
    action: normaliseAction(config.action),
    mode: config.mode ?? mode,
    destinations: destinations(prefixes(match.dst_cidrs, match.dst_ips), options),
    hostname: match.dns_hostname === undefined ? undefined : hostname(match.dns_hostname),
    protocol,
    sourcePorts: ranges(match.src_ports),
    destinationPorts: ranges(match.dst_ports),
    icmpTypes: icmpTypes(match, protocol),
    icmpCodes: match.icmp_codes ?? NONE,
    tls: match.tls === undefined ? undefined : normaliseTls(match.tls),
  };
}

function icmpTypes(match: RuleMatchConfig, protocol: number | 'any'): readonly number[] {
  const { proto, icmp_types: types = NONE, icmp_codes: codes = NONE } = match;
  if (types.length > 0 || codes.length > 0) return types;
  if (protocol === IPPROTO.icmp) return COMMON_ICMP_TYPES;
  // The number 58 is also a protocol of IPv4 packets, which have no ICMPv6 types.
  return protocol === IPPROTO.icmpv6 && typeof proto === 'string' ? COMMON_ICMPV6_TYPES : types;
}

/** Returns an empty list for destinations that contain every address that the node enforces a policy for. */
function destinations(listed: readonly Prefix[], { ipv6 }: NormaliseOptions): readonly Prefix[] {
  const isEverything = containsEverything(listed, 'ipv4') && (!ipv6 || containsEverything(listed, 'ipv6'));
  return isEverything ? NONE : listed;
}

function prefixes(cidrs: readonly string[] = NONE, ips: readonly string[] = NONE): readonly Prefix[] {
  // Do not use `push`, which reserves memory for 17 elements: a large policy has a hundred thousand of these
  // lists.
  if (ips.length === 0) return cidrs.length === 0 ? NONE : cidrs.map(network);
  return cidrs.length === 0 ? ips.map(host) : [...cidrs.map(network), ...ips.map(host)];
}

function network(cidr: string): Prefix {
  const parsed = parseCidr(cidr);
  if (parsed === undefined) throw new RangeError(`normalise a policy: ${cidr} is not a network`);
  return parsed.prefix;
}

function host(ip: string): Prefix {
  const address = parseAddress(ip);
  if (address === undefined) throw new RangeError(`normalise a policy: ${ip} is not an address`);
  return { address, length: bitsOf(address) };
}

function ranges(specs: RuleMatchConfig['dst_ports'] = NONE): readonly Range[] {
  if (specs.length === 0) return NONE;
  return specs.map((spec) => {
    const parsed = parsePorts(spec);
    if ('fault' in parsed) throw new RangeError(parsed.fault);
    return parsed.range;
  });
}

function hostname(text: string): HostnamePattern {
  const parsed = parseHostname(text);
  if ('fault' in parsed) throw new RangeError(parsed.fault);
  return parsed.pattern;
}

export function normaliseAction(word: string): Action {
  const parsed = parseAction(word);
  if (parsed === undefined) throw new RangeError(`normalise a policy: ${word} is not an action`);
  return parsed;
}

const NONE: readonly never[] = [];
