import { containsEverything, containsPrefix } from '#addresses/ip-address.js';
import {
  type Family,
  IPPROTO,
  icmpOf,
  PORT_PROTOCOLS,
  type Prefix,
  type Range,
  type Rule,
} from '#contracts/policy/policy-model.js';

/**
 * Whether `earlier` matches and decides every packet that `later` matches. The function returns true only if
 * this is certain. It may return false for a rule that is covered, so callers may miss covered rules.
 */
export function covers(earlier: Rule, later: Rule): boolean {
  return (
    earlier.tls === undefined &&
    coversProtocol(earlier, later) &&
    (earlier.hostname === undefined || earlier.hostname.text === later.hostname?.text) &&
    coversRanges(earlier.destinationPorts, later.destinationPorts) &&
    coversRanges(earlier.sourcePorts, later.sourcePorts) &&
    coversNumbers(earlier.icmpTypes, later.icmpTypes) &&
    coversNumbers(earlier.icmpCodes, later.icmpCodes) &&
    coversDestinations(earlier, later)
  );
}

/** Whether each prefix in `inner` is contained in a single prefix of `outer`. */
export function containsAll(outer: readonly Prefix[], inner: readonly Prefix[]): boolean {
  return inner.every((prefix) => outer.some((candidate) => containsPrefix(candidate, prefix)));
}

/**
 * Whether both rules can match the same packet. Returns false for rules with different hostnames, because the
 * addresses that their hostnames resolve to are unknown.
 */
export function overlaps(a: Rule, b: Rule): boolean {
  return (
    a.hostname?.text === b.hostname?.text &&
    overlapProtocols(a, b) &&
    overlapRanges(a.destinationPorts, b.destinationPorts) &&
    overlapRanges(a.sourcePorts, b.sourcePorts) &&
    overlapNumbers(a.icmpTypes, b.icmpTypes) &&
    overlapNumbers(a.icmpCodes, b.icmpCodes) &&
    (hasAnyDestination(a) || hasAnyDestination(b) || overlapPrefixes(a.destinations, b.destinations))
  );
}

export function overlapPrefixes(a: readonly Prefix[], b: readonly Prefix[]): boolean {
  return a.some((one) => b.some((other) => containsPrefix(one, other) || containsPrefix(other, one)));
}

/**
 * Whether a rule restricts the destination in no way. A list with every address that the node enforces a
 * policy for is normalised to an empty list (normalise.ts).
 */
export function hasAnyDestination({ destinations }: Rule): boolean {
  return destinations.length === 0;
}

/** Whether a rule matches every destination of a family. */
export function hasEveryDestination({ destinations }: Rule, family: Family): boolean {
  return destinations.length === 0 || containsEverything(destinations, family);
}

/** Whether a rule matches every destination of at least one family. */
export function hasEveryDestinationOfAFamily(rule: Rule): boolean {
  return hasEveryDestination(rule, 'ipv4') || hasEveryDestination(rule, 'ipv6');
}

export function hasDestinationPort({ destinationPorts }: Rule, port: number): boolean {
  return destinationPorts.length === 0 || destinationPorts.some(({ low, high }) => low <= port && port <= high);
}

/** Whether a rule matches every packet and decides it without the service plane (TLS and HTTP inspection). */
export function isCatchAll(rule: Rule): boolean {
  return rule.tls === undefined && rule.hostname === undefined && hasAnyDestination(rule) && !isNarrow(rule);
}

/** Whether the matchers of a rule contradict each other, so that the rule matches no packet. */
export function isContradictory(rule: Rule): boolean {
  const possible = protocolsOf(rule);
  return typeof possible !== 'string' && possible.length === 0;
}

/**
 * Whether `earlier` decides all DNS lookups that `later` would decide (D11). This check is separate from
 * `covers`, because a rule that no packet reaches can still decide lookups.
 */
export function decidesLookupsOf(earlier: Rule, later: Rule): boolean {
  if (isCatchAll(earlier) || !takesPartInLookups(later)) return true;
  if (earlier.hostname !== undefined) return earlier.action === 'allow' || later.action === 'deny';
  return earlier.action === 'allow' && hasEveryDestinationOfAFamily(earlier) && admitsLookups(earlier);
}

function takesPartInLookups(rule: Rule): boolean {
  if (rule.hostname !== undefined) return true;
  if (!hasEveryDestinationOfAFamily(rule)) return false;
  return rule.action === 'allow' ? admitsLookups(rule) : rule.tls !== undefined || isCatchAll(rule);
}

function admitsLookups(rule: Rule): boolean {
  const { protocol } = rule;
  return protocol === 'any' || protocol === IPPROTO.tcp || (protocol === IPPROTO.udp && hasDestinationPort(rule, 53));
}

function isNarrow(rule: Rule): boolean {
  return rule.protocol !== 'any' || hasPorts(rule) || rule.icmpTypes.length > 0 || rule.icmpCodes.length > 0;
}

function hasPorts({ sourcePorts, destinationPorts }: Rule): boolean {
  return sourcePorts.length > 0 || destinationPorts.length > 0;
}

function protocolsOf(rule: Rule): readonly number[] | 'any' {
  if (rule.protocol === 'any' && rule.tls === undefined && !isNarrow(rule)) return 'any';
  let found: readonly number[] | 'any' = rule.protocol === 'any' ? 'any' : [rule.protocol];
  if (rule.tls !== undefined) found = only(found, [IPPROTO.tcp]);
  if (hasPorts(rule)) found = only(found, PORT_PROTOCOLS);
  if (rule.icmpTypes.length > 0 || rule.icmpCodes.length > 0) found = only(found, [icmpOf(rule)]);
  return found;
}

function only(found: readonly number[] | 'any', wanted: readonly number[]): readonly number[] {
  return found === 'any' ? wanted : found.filter((protocol) => wanted.includes(protocol));
}

function coversProtocol(earlier: Rule, later: Rule): boolean {
  if (earlier.protocol === later.protocol && typeof later.protocol === 'number') return true;
  const outer = protocolsOf(earlier);
  if (outer === 'any') return true;
  const inner = protocolsOf(later);
  return inner !== 'any' && inner.every((protocol) => outer.includes(protocol));
}

function coversDestinations(earlier: Rule, later: Rule): boolean {
  if (hasAnyDestination(earlier)) return true;
  return later.destinations.length > 0 && containsAll(earlier.destinations, later.destinations);
}

function coversRanges(outer: readonly Range[], inner: readonly Range[]): boolean {
  if (outer.length === 0) return true;
  return (
    inner.length > 0 && inner.every(({ low, high }) => outer.some((range) => range.low <= low && high <= range.high))
  );
}

function coversNumbers(outer: readonly number[], inner: readonly number[]): boolean {
  if (outer.length === 0) return true;
  return inner.length > 0 && inner.every((number) => outer.includes(number));
}

function overlapProtocols(a: Rule, b: Rule): boolean {
  const left = protocolsOf(a);
  const right = protocolsOf(b);
  return left === 'any' || right === 'any' || left.some((protocol) => right.includes(protocol));
}

function overlapRanges(a: readonly Range[], b: readonly Range[]): boolean {
  if (a.length === 0 || b.length === 0) return true;
  return a.some((one) => b.some((other) => one.low <= other.high && other.low <= one.high));
}

function overlapNumbers(a: readonly number[], b: readonly number[]): boolean {
  return a.length === 0 || b.length === 0 || a.some((number) => b.includes(number));
}
