import { familyOf, formatAddress } from '#addresses/ip-address.js';
import {
  type Address,
  type Grants,
  IPPROTO,
  noGrants,
  type Packet,
  type Policy,
  type Rule,
  type Verdict,
} from '#contracts/policy/policy-model.js';
import { evaluate } from '#policy/evaluate/evaluate.js';
import { factsOfGroups } from '#policy/evaluate/rule-facts.js';
import { hasDestinationPort, hasEveryDestination, isContradictory } from '#policy/model/rules/rule-coverage.js';

/**
 * A warning. `pointer` is the JSON pointer of the TLS matchers of a deny rule. `packet` is the text of a QUIC
 * packet that passes, although the rule covers TLS on the same port.
 */
export type UncoveredQuic = { readonly pointer: string; readonly packet: string };

const COMPARISONS = 1_000_000;
const HTTPS = 443;
/**
 * The destinations of test packets for rules that match any destination. They are in ranges that no network
 * uses (RFC 5737, RFC 3849), so usually no other rule contains them.
 */
const ANY_IPV4_DESTINATION = 0xc633_64fe;
const ANY_IPV6_DESTINATION = 0x2001_0db8_ffff_0000_0000_0000_0000_00fen;

/**
 * Finds deny rules with TLS matchers on port 443 whose sources can use QUIC instead. The evidence is a packet
 * that the policy allows, from a source whose TLS connections to the same destination and port are inspected.
 * The function tests one such source for each rule, and stops after `COMPARISONS` tests of rules and sources.
 */
export function uncoveredQuic(policy: Policy): UncoveredQuic[] {
  const found: UncoveredQuic[] = [];
  const testsOfPacket = testsOf(policy);
  let comparisons = 0;
  for (const { source, rules, pointer } of groupsWith(policy, 'hasTls')) {
    const allowed = new Map<Address, boolean>();
    for (const rule of rules) {
      const isTlsDeny = rule.action === 'deny' && rule.tls !== undefined && rule.hostname === undefined;
      if (!isTlsDeny || !hasDestinationPort(rule, HTTPS) || isContradictory(rule)) continue;
      const destination = destinationOf(rule, source);
      if (destination === undefined) continue;
      const decides = (protocol: number, verdict: Verdict): boolean =>
        evaluate(policy, packetOf(protocol, source, destination), noGrants).verdict === verdict;
      if (!allowed.has(destination)) {
        comparisons += 2 * testsOfPacket;
        if (comparisons > COMPARISONS) return found;
        allowed.set(destination, decides(IPPROTO.udp, 'allow') && decides(IPPROTO.tcp, 'redirect'));
      }
      if (allowed.get(destination) !== true) continue;
      const text = `${formatAddress(source)} to ${formatAddress(destination)}`;
      found.push({ pointer: `${pointer}${rule.pointer}/match/tls`, packet: text });
    }
  }
  return found;
}

/**
 * Returns the JSON pointers of the hostnames of allow rules on port 443 that pass a connection without
 * reading its server name. For each such rule, the function tests a packet to an address that the hostname
 * matches.
 */
export function namesWithoutSni(policy: Policy): string[] {
  const found: string[] = [];
  const testsOfPacket = testsOf(policy);
  let comparisons = 0;
  for (const { index, source, rules, pointer } of groupsWith(policy, 'hasHostname')) {
    for (const [at, rule] of rules.entries()) {
      const { action, hostname, tls, destinationPorts } = rule;
      if (action !== 'allow' || hostname === undefined || hostname.kind === 'any' || tls !== undefined) continue;
      if (destinationPorts.length === 0 || !hasDestinationPort(rule, HTTPS)) continue;
      const destination = destinationOf(rule, source);
      if (destination === undefined) continue;
      comparisons += testsOfPacket;
      if (comparisons > COMPARISONS) return found;
      const grants: Grants = { has: ({ text }) => text === hostname.text };
      const { place } = evaluate(policy, packetOf(IPPROTO.tcp, source, destination), grants);
      if (place.kind !== 'rule' || place.group !== index || place.rule !== at) continue;
      found.push(`${pointer}${rule.pointer}/match/dns_hostname`);
    }
  }
  return found;
}

/** Returns the groups that have such rules and a source, each with the address of its first source. */
function groupsWith({ groups }: Policy, has: 'hasTls' | 'hasHostname') {
  const facts = factsOfGroups(groups);
  return groups.flatMap(({ sources: [first], rules, pointer }, index) =>
    first === undefined || facts[index]?.[has] !== true ? [] : [{ index, source: first.address, rules, pointer }],
  );
}

/** Returns the maximum number of tests of rules and sources in one evaluation of a packet. */
const testsOf = ({ groups }: Policy): number =>
  groups.reduce((sum, { sources, rules }) => sum + 1 + sources.length + rules.length, 0);

/** Returns a destination that a rule matches, of the family of the source; undefined if there is none. */
function destinationOf(rule: Rule, source: Address): Address | undefined {
  const family = familyOf(source);
  if (hasEveryDestination(rule, family)) return family === 'ipv4' ? ANY_IPV4_DESTINATION : ANY_IPV6_DESTINATION;
  return rule.destinations.find(({ address }) => familyOf(address) === family)?.address;
}

function packetOf(protocol: number, source: Address, destination: Address): Packet {
  const ports = { sourcePort: 50_000, destinationPort: HTTPS };
  return { source, destination, protocol, ...ports, icmpType: 0, icmpCode: 0 };
}
