import { execFileSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import { attachTcx } from '#dataplane/attach/attach-program.js';
import { listInterfaces } from '#dataplane/attach/interfaces/interfaces.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { loadForTest } from '#test/dataplane/loaded.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { datapathOptions } from './datapath-options.js';
import { HAS_TCX } from './tcx.js';
import { topologyOfFile } from './topology-of-file.js';

const topology = topologyOfFile('others');
let datapath: LocalDatapath;
beforeAll(() => {
  start();
});
afterAll(() => {
  datapath.close();
});

/**
 * Opens and attaches a datapath with `forwarding: auto`. Most tests of this file use the datapath that was
 * started before the first test.
 */
function start(more: Partial<DatapathOptions> = {}): void {
  datapath = new LocalDatapath(datapathOptions(topology.pinPath, { forwarding: 'auto', ...more }));
  datapath.open();
  datapath.attach();
}
const sh = (command: string): void => void execFileSync('sh', ['-ec', command]);
/**
 * Checks for third-party hooks. Returns the resulting way of forwarding and the reason for it. Omits the
 * names of kernel modules, which differ between kernels.
 */
function reason(): string {
  datapath.look();
  const { forwarding } = datapath.stats();
  return `${forwarding.way}: ${forwarding.reason}`.replace(/ \[\w+\]/g, '');
}

const ALONE = 'direct: no third-party hook';
const chain = (table: string, definition: string): string =>
  `nft 'add table ${table}; add chain ${table} some { ${definition} ; }'`;
const NETDEV = 'netdev mine';

test('with forwarding: auto, the node forwards directly while only the guard (nftables rules of Weir) is on netfilter hooks', () => {
  expect(reason()).toBe(ALONE);
});

test.each([
  [
    'a chain on the forward hook',
    chain('inet mine', 'type filter hook forward priority 10'),
    'nft delete table inet mine',
    'nftables chain inet mine some',
  ],
  [
    'a chain that runs before all other chains',
    chain('ip mine', 'type filter hook prerouting priority -300'),
    'nft delete table ip mine',
    'nftables chain ip mine some',
  ],
  [
    'a chain with the guard’s name in another table',
    `nft 'add table ip mine; add chain ip mine guard { type filter hook forward priority 0 ; }'`,
    'nft delete table ip mine',
    'nftables chain ip mine guard',
  ],
  [
    'a chain of a filter beside address translation',
    `${chain('ip mine', 'type nat hook postrouting priority 100')}; nft add rule ip mine some oifname wan0 masquerade
    ${chain('ip other', 'type filter hook forward priority 10')}`,
    'nft delete table ip mine; nft delete table ip other',
    'nftables chain ip other some',
  ],
  [
    'connection tracking of the node’s own packets',
    `${chain('inet mine', 'type filter hook input priority 0')}; nft add rule inet mine some ct state new accept`,
    'nft delete table inet mine',
    "stack: ipv4_conntrack_defrag of netfilter's prerouting",
  ],
  [
    'a chain on ingress',
    chain(NETDEV, 'type filter hook ingress device lan0 priority 0'),
    `nft delete table ${NETDEV}`,
    'nftables chain netdev mine some on ingress of lan0',
  ],
  [
    'a chain on egress of any interface',
    `ip link add other0 type veth peer name other1; ${chain(NETDEV, 'type filter hook egress device other0 priority 0')}`,
    `nft delete table ${NETDEV}; ip link del other0`,
    'nftables chain netdev mine some on egress of other0',
  ],
  [
    'an IPsec policy',
    'ip xfrm policy add src 10.77.1.0/24 dst 10.77.2.0/24 dir out tmpl src 10.77.2.1 dst 10.77.2.2 proto esp mode tunnel',
    'ip xfrm policy flush',
    'IPsec: 1 policies',
  ],
  [
    'IPsec that blocks packets without a policy',
    'ip xfrm policy setdefault fwd block',
    'ip xfrm policy setdefault fwd accept',
    'IPsec, which blocks by default',
  ],
  ['an ip rule that matches a mark', 'ip rule add fwmark 7 table 77 pref 100', 'ip rule del pref 100', 'ip rule 100'],
  [
    'a tc filter on ingress',
    'tc qdisc add dev lan0 clsact; tc filter add dev lan0 ingress u32 match u32 0 0 flowid 1:1',
    'tc qdisc del dev lan0 clsact',
    'a tc filter (u32) on ingress of lan0',
  ],
  [
    'a bridge over a policed interface',
    'ip link add wan7 type veth peer name far7; ip link add br7 type bridge; ip link set wan7 master br7',
    'ip link del br7; ip link del wan7',
    'br_handle_frame, which receives the packets of wan7',
  ],
  [
    'a macvlan on a policed interface',
    'ip link add mac7 link lan0 type macvlan',
    'ip link del mac7',
    'macvlan_handle_frame, which receives the packets of lan0',
  ],
  [
    'a tunnel that is up',
    'ip tuntap add dev tun7 mode tun; ip link set tun7 up',
    'ip link del tun7',
    'interface tun7, which is not Ethernet',
  ],
  [
    'the sysctl ip_forward_update_priority=0',
    'echo 0 > /proc/sys/net/ipv4/ip_forward_update_priority',
    'echo 1 > /proc/sys/net/ipv4/ip_forward_update_priority',
    'net.ipv4.ip_forward_update_priority is 0',
  ],
])(
  'with forwarding: auto, a third-party hook or setting (%s) makes packets go through the network stack until its removal',
  (_, come, go, expected) => {
    expect(reason()).toBe(ALONE);
    sh(come);
    try {
      expect(reason()).toContain(expected);
      expect(reason()).toMatch(/^stack: /);
    } finally {
      sh(go);
    }
    expect(reason()).toBe(ALONE);
  },
);

test.each([
  ['an ip rule that matches addresses', 'ip rule add from 10.77.1.0/24 table 77 pref 100', 'ip rule del pref 100'],
  [
    'a bridge without policed interfaces',
    'ip link add other0 type veth peer name other1; ip link add br7 type bridge; ip link set other0 master br7',
    'ip link del br7; ip link del other0',
  ],
  [
    'a chain on ingress of an interface that is not policed',
    `ip link add other0 type veth peer name other1; ${chain(NETDEV, 'type filter hook ingress device other0 priority 0')}`,
    `nft delete table ${NETDEV}; ip link del other0`,
  ],
  [
    'a chain for the node’s own packets',
    chain('inet mine', 'type filter hook input priority 0'),
    'nft delete table inet mine',
  ],
  [
    'a chain that is on no netfilter hook',
    `nft 'add table inet mine; add chain inet mine some'`,
    'nft delete table inet mine',
  ],
  [
    'a filter on egress',
    'tc qdisc add dev lan0 clsact; tc filter add dev lan0 egress u32 match u32 0 0 flowid 1:1',
    'tc qdisc del dev lan0 clsact',
  ],
  ['a tunnel that is down', 'ip tuntap add dev tun7 mode tun', 'ip link del tun7'],
])(
  'with forwarding: auto, a hook or setting that does not affect forwarded packets (%s) does not end direct forwarding',
  (_, come, go) => {
    sh(come);
    try {
      expect(reason()).toBe(ALONE);
    } finally {
      sh(go);
    }
  },
);

skipUnless(HAS_TCX, LACKS.tcx).test(
  'with forwarding: auto, a third-party BPF program on the hook ends direct forwarding',
  async () => {
    const { ifindex } = listInterfaces().find(({ name }) => name === 'wan0') ?? { ifindex: 0 };
    const other = loadForTest();
    const pin = `${topology.pinPath}-other`;
    try {
      attachTcx(other.object.programFd('weir_egress'), ifindex, 'ingress', pin);
      expect(reason()).toMatch(/^stack: BPF program \d+ on ingress of wan0$/);
    } finally {
      rmSync(pin);
      other.close();
    }
    // Poll, because the kernel detaches a link some time after its last pin was removed.
    await expect.poll(reason).toBe(ALONE);
  },
);

test('with forwarding: auto, the node forwards by the network stack if rp_filter is stricter than reverse_path', () => {
  datapath.close();
  start({ reversePath: 'off' });
  sh('echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter; echo 0 > /proc/sys/net/ipv4/conf/lan0/rp_filter');
  expect(reason()).toBe(
    'stack: the network stack drops packets from its own addresses on lan0, and reverse_path: off would pass them',
  );
  datapath.close();
  start({ reversePath: 'loose' });
  sh('echo 1 > /proc/sys/net/ipv4/conf/lan0/rp_filter');
  expect(reason()).toContain('stack: rp_filter 1 of lan0');
  sh('echo 2 > /proc/sys/net/ipv4/conf/lan0/rp_filter; echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter');
  expect(reason()).toBe(ALONE);
});

test("with forwarding: auto, the node forwards directly if only Weir's own BPF programs are attached by clsact", () => {
  datapath.close();
  detach(topology.pinPath);
  start({ forceClsact: true });
  expect(reason()).toBe(ALONE);
});

test('with forwarding: auto, the node forwards by the network stack while the guard (nftables rules) is missing', () => {
  sh('nft delete table inet weir');
  expect(reason()).toBe('stack: the guard is missing');
  datapath.attach();
  expect(reason()).toBe(ALONE);
});

// This test must stay the last in the file: the hooks that iptables-legacy registers stay in the network
// namespace.
test('with forwarding: auto, a check finds tables of iptables-legacy, which cause no kernel notification', () => {
  sh('iptables-legacy -A FORWARD -j ACCEPT');
  expect(reason()).toBe('stack: iptables, table filter');
});
