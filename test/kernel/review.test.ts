import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import type { Review } from '#contracts/datapath/datapath.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import { listInterfaces } from '#dataplane/attach/interfaces/interfaces.js';
import { listLinks } from '#dataplane/attach/interfaces/netlink-interfaces.js';
import { hasNetfilterPrograms } from '#dataplane/loader/kernel-functions.js';
import { hookPrograms } from '#dataplane/machine/machine-network.js';
import { reviewNat } from '#dataplane/review/nat.js';
import { unnamedWarnings } from '#dataplane/review/unpoliced-interfaces.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { datapathOptions } from './datapath-options.js';
import { topologyOfFile } from './topology-of-file.js';
import { compileRefusedJudge, compileXdp } from './variants.js';

const BOTH = ['lan0', 'wan0'];
const INSIDE = ['lan0'];

const topology = topologyOfFile('review');
beforeAll(() => {
  ip('link add other0 type veth peer name other1');
});

const sh = (command: string): void => void execFileSync('sh', ['-ec', command]);
const ip = (command: string): void => void execFileSync('ip', command.split(' '));
const review = (interfaces: readonly string[], more: Partial<DatapathOptions> = {}): Review =>
  new LocalDatapath(datapathOptions(topology.pinPath, { interfaces, ...more })).review();
/** The datapath refuses NAT if the policy also applies to packets of the node itself (`police_local`). */
const policeLocal = { policeLocal: true };
const nft = (rule: string, hook = 'postrouting', family = 'ip'): string =>
  `nft 'add table ${family} mine; add chain ${family} mine some { type nat hook ${hook} priority 0; }; add chain ${family} mine next; ${
    rule === '' ? '' : `add rule ${family} mine some ${rule}`
  }'`;
const CHAIN = 'nftables chain ip mine some';
/** Returns the faults of a review, each in the short form `NAT chain: interfaces`. */
const faults = (interfaces: readonly string[]): string[] =>
  review(interfaces, policeLocal).faults.map((text) =>
    text.replace(/ translates addresses at (.*), which is not .*/, ': $1'),
  );

describe('the check of a machine before the start of a node', () => {
  const check = (more: Partial<DatapathOptions>) => {
    const datapath = new LocalDatapath(datapathOptions(topology.pinPath, { interfaces: BOTH, ...more }));
    try {
      return datapath.check();
    } finally {
      datapath.close();
    }
  };

  test('the check of a machine before the start of a node finds nothing on a machine that can enforce, and attaches and pins nothing', () => {
    expect(check({})).toEqual({ missing: [], faults: [], warnings: [] });
    expect(existsSync(topology.pinPath) ? readdirSync(topology.pinPath) : []).toEqual([]);
    expect(execFileSync('ip', ['-j', '-d', 'link', 'show', 'lan0'], { encoding: 'utf8' })).not.toContain('prog');
  });

  test('the check of a machine reports the interface of which a configured name is only an alternative name', () => {
    sh('ip link property add dev lan0 altname inside0 altname inside1');
    const instead = (name: string) =>
      `${name} is an alternative name of lan0: put lan0 into dataplane.interfaces instead`;
    expect(check({ interfaces: ['inside1', 'wan0'] }).faults).toEqual([
      'no interface has this name: inside1',
      instead('inside1'),
    ]);
    expect(review(['lan0', 'inside0', 'wan0']).faults).toEqual([instead('inside0')]);
    expect(review(['inside*', 'wan0'])).toMatchObject({
      faults: [],
      warnings: [
        'lan0 is not policed: only its alternative name inside0 matches dataplane.interfaces, which must contain lan0',
        'the node forwards packets from lan0 without a policy: dataplane.interfaces does not contain it',
      ],
    });
    expect(review(['inside*', 'lan*', 'wan0'])).toEqual({ faults: [], warnings: [] });
    sh('ip link property del dev lan0 altname inside0 altname inside1');
    expect(review(['inside1', 'wan0']).faults).toEqual([]);
  });

  skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test(
    'the check of a machine reports the BPF program that the kernel refuses, and reviews nothing else then',
    () => {
      const refused = compileRefusedJudge();
      expect(check({ objectPath: refused.path }).missing).toEqual([]);
      sh(nft('oifname "wan0" masquerade'));
      const found = check({ objectPath: refused.path });
      sh('nft flush ruleset');
      refused.remove();
      expect(found).toEqual({
        missing: [
          {
            what: 'programs',
            sentence: expect.stringMatching(/^The kernel refuses the programs .*: load .*EACCES.*[.]$/),
          },
        ],
        faults: [],
        warnings: [],
      });
    },
  );
});

describe('the review of unsupported NAT', () => {
  afterEach(() => {
    sh('nft flush ruleset; iptables-legacy -t nat -F; iptables-legacy -t nat -X; ip route flush default');
  });

  test('the review of a node reports unsupported NAT on a policed outside interface as a fault with the nftables chain and the interface', () => {
    sh(nft('oifname "wan0" masquerade'));
    expect(review(BOTH).faults).toEqual([]);
    expect(review(BOTH, policeLocal).faults).toEqual([
      `${CHAIN} translates addresses at wan0, which is not supported here (dataplane.police_local is set): remove wan0 from dataplane.interfaces, or remove the rules`,
    ]);
  });

  test.each([
    [{ markMask: 0x0070_0000 }, 'dataplane.mark_mask has less than four bits'],
    [{ forwarding: 'direct' as const }, 'dataplane.forwarding is direct'],
  ])(
    'the review of a node reports NAT as a fault and names the setting that does not allow NAT: %o',
    (more, reason) => {
      sh(nft('oifname "wan0" masquerade'));
      expect(review(BOTH, more).faults).toEqual([
        `${CHAIN} translates addresses at wan0, which is not supported here (${reason}): remove wan0 from dataplane.interfaces, or remove the rules`,
      ]);
    },
  );

  test('before Linux 6.4, the review reports NAT as a fault unless it is masquerade or SNAT, which causes a warning', () => {
    const needs = 'this needs Linux 6.4 or later with CONFIG_NETFILTER_BPF_LINK';
    const policed = listInterfaces().filter(({ name }) => BOTH.includes(name));
    const support = { obstacle: null, judges: false, noSearch: null, ipv6Obstacle: null };
    sh(nft('oifname "wan0" masquerade'));
    expect(reviewNat(policed, support)).toEqual({
      faults: [],
      warnings: [
        `${CHAIN} translates sources at wan0: only replies by TCP and UDP pass, and the guard drops ICMP and fragments, because ${needs}`,
      ],
    });
    sh(`nft flush ruleset; ${nft('iifname "wan0" tcp dport 80 dnat to 10.77.1.2', 'prerouting')}`);
    expect(reviewNat(policed, support)).toEqual({
      faults: [
        `${CHAIN} translates addresses at wan0, which is not supported here (${needs}): remove wan0 from dataplane.interfaces, or remove the rules`,
      ],
      warnings: [],
    });
  });

  test('the review of a node warns about NAT on a policed outside interface if conntrack cannot be searched', () => {
    const support = { obstacle: null, judges: true, noSearch: 'the reason', ipv6Obstacle: null };
    const policed = listInterfaces().filter(({ name }) => BOTH.includes(name));
    expect(reviewNat(policed, support)).toEqual({ faults: [], warnings: [] });
    sh(nft('oifname "wan0" masquerade'));
    expect(reviewNat(policed, support)).toEqual({
      faults: [],
      warnings: [
        'replies of translated flows are decided at the forward hook, which takes longer (the reason); replies to an address that neither the node nor dataplane.translated has are dropped',
      ],
    });
  });

  test.each([
    ['masquerade at the outside', nft('oifname "wan0" masquerade'), [`${CHAIN}: wan0`]],
    ['masquerade with the interface index', nft('oif "wan0" masquerade'), [`${CHAIN}: wan0`]],
    ['masquerade with a prefix of the name', nft('oifname "wa*" masquerade'), [`${CHAIN}: wan0`]],
    ['source NAT', nft(`oifname "wan0" snat to ${ADDRESSES.nodeWan}`), [`${CHAIN}: wan0`]],
    ['a jump to another chain', nft('oifname "wan0" jump next'), [`${CHAIN}: wan0`]],
    ['a verdict map', nft('oifname "wan0" tcp dport vmap { 80 : jump next }'), [`${CHAIN}: wan0`]],
    [
      'a chain of family inet',
      nft('oifname "wan0" masquerade', 'postrouting', 'inet'),
      ['nftables chain inet mine some: wan0'],
    ],
    ['masquerade of some sources', nft('ip saddr 10.77.1.0/24 oifname "wan0" counter masquerade'), [`${CHAIN}: wan0`]],
    ['masquerade at several interfaces', nft('oifname { "wan0", "other0" } masquerade'), [`${CHAIN}: lan0, wan0`]],
    ['masquerade at any interface', nft('masquerade'), [`${CHAIN}: lan0, wan0`]],
    ['masquerade at any interface but one', nft('oifname != "lan0" masquerade'), [`${CHAIN}: lan0, wan0`]],
    ['destination NAT', nft('iifname "wan0" tcp dport 80 dnat to 10.77.1.2', 'prerouting'), [`${CHAIN}: wan0`]],
    ['a redirect', nft('udp dport 53 redirect to :5353', 'prerouting'), [`${CHAIN}: lan0, wan0`]],
    [
      'a rule of iptables-nft',
      'iptables-nft -t nat -A POSTROUTING -o wan0 -j MASQUERADE',
      ['nftables chain ip nat POSTROUTING: wan0'],
    ],
    [
      'a user-defined chain of iptables-nft',
      'iptables-nft -t nat -N MINE; iptables-nft -t nat -A PREROUTING -i wan0 -j MINE',
      ['nftables chain ip nat PREROUTING: wan0'],
    ],
    [
      'a rule of iptables-legacy',
      'iptables-legacy -t nat -A POSTROUTING -o wan0 -j MASQUERADE',
      ['table nat of iptables-legacy: lan0, wan0'],
    ],
  ])(
    'the review of a node reports unsupported NAT on a policed outside interface as a fault (NAT: %s)',
    (_, command, expected) => {
      sh(command);
      expect(faults(BOTH)).toEqual(expected);
    },
  );

  test.each([
    ['an empty chain', nft('')],
    ['a rule that translates nothing', nft('oifname "wan0" counter accept')],
    ['NAT at another interface', nft('oifname "other0" masquerade')],
    ['NAT of packets that the node sends', nft('dnat to 10.77.1.2', 'output')],
    ['NAT of packets to the node', nft('snat to 10.77.1.2', 'input')],
    ['a dormant table', `${nft('oifname "wan0" masquerade')}; nft add table ip mine '{ flags dormant; }'`],
    ['NAT of IPv6', nft('oifname "wan0" masquerade', 'postrouting', 'ip6')],
    ['empty tables of iptables-nft', 'iptables-nft -t nat -S'],
    ['empty tables of iptables-legacy', 'iptables-legacy -t nat -S'],
  ])(
    'the review of a node reports no fault on a policed outside interface for NAT tables or rules that do not concern it: %s',
    (_, command) => {
      sh(command);
      expect(faults(BOTH)).toEqual([]);
    },
  );

  test.each([
    ['masquerade', nft('oifname "wan0" masquerade')],
    ['masquerade of any interface', nft('masquerade')],
    ['a redirect on the inside', nft('iifname "lan0" udp dport 53 redirect to :5353', 'prerouting')],
    ['iptables-legacy', 'iptables-legacy -t nat -A POSTROUTING -j MASQUERADE'],
  ])('the review of a node reports no NAT fault if only the inside interface is policed (NAT: %s)', (_, command) => {
    sh(`${command}; ip route add default via ${ADDRESSES.server}`);
    expect(faults(INSIDE)).toEqual([]);
  });

  test.each([
    `ip route add default via ${ADDRESSES.server}`,
    `ip route add default nexthop via ${ADDRESSES.server} nexthop via 10.77.2.3`,
    `ip route add default via ${ADDRESSES.server} table 77; ip rule add pref 9 from 10.77.1.0/24 lookup 77`,
  ])(
    'the review of a node reports NAT without an interface as a fault on the interface of a default route (route: %s)',
    (command) => {
      sh(`${nft('masquerade')}; ${command}`);
      expect(faults(BOTH)).toEqual([`${CHAIN}: wan0`]);
      sh('ip rule flush; ip rule add pref 32766 lookup main');
    },
  );
});

describe('the review of unpoliced interfaces', () => {
  const warning = (names: string): string =>
    `the node forwards packets from ${names} without a policy: dataplane.interfaces does not contain it`;

  test('the review of a node warns about an unpoliced interface that forwards, while it is up and has an address or a route', () => {
    expect(review(BOTH).warnings).toEqual([]);
    expect(review(INSIDE).warnings).toEqual([warning('wan0')]);
    ip('link set other0 up');
    ip('link set other1 up');
    expect(review(BOTH).warnings).toEqual([]);
    ip('addr add 10.79.1.1/24 dev other0');
    expect(review(BOTH).warnings).toEqual([warning('other0')]);
    ip('route add 198.51.100.0/24 dev other1');
    expect(review(BOTH).warnings).toEqual([warning('other0, other1')]);
    sh('echo 0 > /proc/sys/net/ipv4/conf/other0/forwarding');
    expect(review(BOTH).warnings).toEqual([warning('other1')]);
    ip('link set other1 down');
    expect(review(BOTH).warnings).toEqual([]);
  });

  test('the review of a node tells that an interface without Ethernet, such as a tunnel with the default route, cannot be policed', () => {
    const reason = 'the datapath supports only Ethernet';
    sh('ip tuntap add tun7 mode tun; ip link set tun7 up; ip route add default dev tun7');
    expect(review(BOTH).warnings).toEqual([`the node forwards packets from tun7 without a policy: ${reason}`]);
    sh('ip link del tun7; ip link set other1 up; ip route add default dev other1 table 78');
    expect(review(BOTH).warnings).toEqual([warning('other1')]);
    sh('ip route del default dev other1 table 78; ip link set other1 down');
    expect(review(BOTH).warnings).toEqual([]);
  });

  test('the review of a node names the VRF of an unpoliced port in its warning', () => {
    ip('link set other1 up');
    ip('addr add 10.79.2.1/24 dev other1');
    const policed = listInterfaces().filter(({ name }) => BOTH.includes(name));
    const [found] = listLinks().filter(({ name }) => name === 'other1');
    if (found === undefined) throw new Error('other1 is missing');
    // The kernel may lack support for this type of interface.
    const links = [
      { ...found, master: 9_000 },
      { ...found, ifindex: 9_000, name: 'blue', kind: 'vrf' },
    ];
    expect(unnamedWarnings(policed, links)).toEqual([warning('blue')]);
    expect(unnamedWarnings([{ name: 'blue', ifindex: 9_000 }], links)).toEqual([]);
    ip('addr flush dev other1');
    ip('link set other1 down');
  });

  test('the review of a node names only the first five unpoliced interfaces that forward, followed by the number of the others', () => {
    for (let number = 1; number < 9; number++) {
      ip(`link add more${number} type veth peer name far${number}`);
      ip(`addr add 10.80.${number}.1/24 dev more${number}`);
      ip(`link set more${number} up`);
    }
    expect(review(BOTH).warnings).toEqual([warning('more1, more2, more3, more4, more5 and 3 more')]);
  });
});

test('the review of a node warns about an XDP program below a policed interface, which the support dump lists', () => {
  const compiled = compileXdp();
  const xdp = () => hookPrograms().filter(({ by }) => by === 'xdp');
  sh(`ip link set lan0 xdpgeneric obj ${compiled.path} sec xdp; ip link add link lan0 name macro0 type macvlan`);
  const [found] = xdp();
  expect(found).toMatchObject({ interface: 'lan0', direction: 'ingress', program: { name: 'pass' } });
  const id = found?.program?.id;
  const expected = `XDP program ${id} on lan0 sees packets before the datapath: those that it redirects or sends back pass without a policy`;
  expect(review(BOTH).warnings).toContain(expected);
  expect(review(['macro0']).warnings).toContain(expected);
  expect(review(['wan0']).warnings).not.toContain(expected);
  sh('ip link del macro0; ip link set lan0 xdpgeneric off');
  expect(review(BOTH).warnings).not.toContain(expected);
  expect(xdp()).toEqual([]);
  compiled.remove();
});
