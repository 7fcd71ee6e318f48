import { formatAddress, formatPrefix } from '#addresses/ip-address.js';
import type { Family, Prefix, Range } from '#contracts/policy/policy-model.js';
import { ipv6Prefix } from './ipv6-policy.js';
import type { Permit, Permits } from './policies.js';

/** A way to express a policy as rules of another packet filter. */
export type Form = {
  readonly name: string;
  /**
   * Returns the rules as text. If `tracked` is true, the first rule is `ct state established,related accept`,
   * which turns connection tracking on.
   */
  text(permits: Permits, tracked: boolean): string;
};

const prefix = (given: Prefix<number>): string =>
  given.length === 32 ? formatAddress(given.address) : formatPrefix(given);
const prefixOf: Readonly<Record<Family, (given: Prefix<number>) => string>> = {
  ipv4: prefix,
  ipv6: (given) => formatPrefix(ipv6Prefix(given)),
};
const ports = ({ low, high }: Range, between = '-'): string => (low === high ? `${low}` : `${low}${between}${high}`);

function table(tracked: boolean, rules: readonly string[], before = '', family = 'ip'): string {
  return `flush ruleset
table ${family} peer {
${before}
  chain forward {
    type filter hook forward priority filter; policy drop;
    ${tracked ? 'ct state established,related accept' : ''}
    ${rules.join('\n    ')}
  }
}
`;
}

function set(name: string, type: string, flags: string, elements: readonly string[]): string {
  return `  set ${name} { type ${type}; ${flags} elements = { ${elements.join(',\n')} }; }`;
}

const matches = ({ destination, ports: range, protocol }: Permit): string =>
  `ip daddr ${prefix(destination)} ${protocol} dport ${ports(range)} accept`;

export const linear: Form = {
  name: 'nftables, a rule each',
  text: (permits, tracked) =>
    table(
      tracked,
      permits.flat().map((permit) => `ip saddr ${prefix(permit.source)} ${matches(permit)}`),
    ),
};

/** The policy for packets of a family; see `ipv6Prefix` for the addresses of IPv6. */
export const chainsOfGroups = (family: Family): Form => ({
  name: 'nftables, verdict map to a chain a group',
  text: (permits, tracked) => {
    const ip = family === 'ipv4' ? 'ip' : 'ip6';
    const rule = ({ destination, ports: range, protocol }: Permit): string =>
      `${ip} daddr ${prefixOf[family](destination)} ${protocol} dport ${ports(range)} accept`;
    const chains = permits.map((group, index) => `  chain g${index} {\n${group.map(rule).join('\n')}\n  }`);
    const elements = permits.map(([first], index) => `${first ? prefixOf[family](first.source) : ''} : jump g${index}`);
    const map = `  map groups { type ${family}_addr : verdict; flags interval; elements = { ${elements.join(',\n')} }; }`;
    return table(tracked, [`${ip} saddr vmap @groups`], `${chains.join('\n')}\n${map}`, ip);
  },
});
export const chainOfGroup = chainsOfGroups('ipv4');

/** A policy as one nftables set of source, destination and destination port. `flags`: those of the set. */
const concatenation = (name: string, flags: string, portsOf: (given: Range) => string): Form => ({
  name,
  text: (permits, tracked) =>
    table(
      tracked,
      ['ip saddr . ip daddr . udp dport @permits accept'],
      set(
        'permits',
        'ipv4_addr . ipv4_addr . inet_service',
        flags,
        permits.flat().map((one) => `${prefix(one.source)} . ${prefix(one.destination)} . ${portsOf(one.ports)}`),
      ),
    ),
});

/** A policy for one source as one nftables set of destination addresses. `flags` are the flags of the set. */
const destinations = (name: string, flags: string): Form => ({
  name,
  text: (permits, tracked) =>
    table(
      tracked,
      ['ip daddr @destinations udp dport 443 accept'],
      set(
        'destinations',
        'ipv4_addr',
        flags,
        permits.flat().map(({ destination }) => prefix(destination)),
      ),
    ),
});

export const concatenatedRanges = concatenation('nftables, set of concatenated ranges', 'flags interval;', ports);
export const concatenatedHash = concatenation('nftables, hash set of concatenations', '', ({ low }) => `${low}`);
export const intervalSet = destinations('nftables, interval set', 'flags interval;');
export const hashSet = destinations('nftables, hash set', '');

/** Expresses the policy as input of `iptables-restore`, with one rule for each permit. */
export const iptables: Form = {
  name: 'iptables',
  text: (permits, tracked) =>
    [
      '*filter',
      ':INPUT ACCEPT [0:0]',
      ':FORWARD DROP [0:0]',
      ':OUTPUT ACCEPT [0:0]',
      ...(tracked ? ['-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT'] : []),
      ...permits
        .flat()
        .map(
          ({ source, destination, ports: range }) =>
            `-A FORWARD -s ${prefix(source)} -d ${prefix(destination)} -p udp -m udp --dport ${ports(range, ':')} -j ACCEPT`,
        ),
      'COMMIT',
      '',
    ].join('\n'),
};
