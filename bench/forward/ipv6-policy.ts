import type { Policy, Prefix } from '#contracts/policy/policy-model.js';

/** The first 32 bits of all addresses: 2001:db8::/32. `frames.bpf.c` makes frames with the same addresses. */
const NETWORK = 0x2001_0db8n;
const NETWORK_BITS = 32;

/** Returns the IPv6 prefix that stands for an IPv4 prefix: A.B.C.D is 2001:db8:AB:CD::1 in IPv6. */
export function ipv6Prefix({ address, length }: Prefix<number>): Prefix<bigint> {
  return { address: ((NETWORK << 32n) | BigInt(address)) << 64n, length: NETWORK_BITS + length };
}

/** Returns a policy with the IPv6 prefixes that stand for those of a policy of IPv4. */
export function ipv6Policy(policy: Policy): Policy {
  const inIpv6 = (prefixes: readonly Prefix[]): readonly Prefix[] =>
    prefixes.map((prefix) => ipv6Prefix(prefix as Prefix<number>));
  return {
    ...policy,
    groups: policy.groups.map((group) => ({
      ...group,
      sources: inIpv6(group.sources),
      rules: group.rules.map((rule) => ({ ...rule, destinations: inIpv6(rule.destinations) })),
    })),
  };
}
