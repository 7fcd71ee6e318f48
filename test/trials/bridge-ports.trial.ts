import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type NodeProcess, startNode } from '#cli/tour/node-process.js';
import { ADDRESSES, createTopology, type Topology } from '#cli/tour/topology.js';
import { listenForFrames, macOf, runScapy } from './scapy.js';

let topology: Topology;
let node: NodeProcess | undefined;
let macs: { readonly client: string; readonly server: string; readonly bridge: string };

/**
 * Settings with which a bridge forwards every kind of frame. Bit 1 of `group_fwd_mask` stays 0, since the
 * kernel does not let a port forward MAC pause frames.
 */
const ALL = { snooping: 0, forwardedGroups: 0xfffd };

async function configure({ snooping, forwardedGroups }: typeof ALL): Promise<void> {
  const { node: middle } = topology;
  await middle.must('ip', 'link', 'set', 'br0', 'type', 'bridge', 'mcast_snooping', `${snooping}`);
  for (const port of ['lan0', 'wan0'])
    await middle.must('ip', 'link', 'set', port, 'type', 'bridge_slave', 'group_fwd_mask', `${forwardedGroups}`);
}

/** Client and server are in one network, which a bridge on the node connects. */
beforeAll(async () => {
  topology = await createTopology('trial-br');
  const { client, node: middle, server } = topology;
  await middle.must('ip', 'link', 'add', 'br0', 'type', 'bridge', 'stp_state', '0', 'forward_delay', '0');
  await middle.must('ip', 'link', 'set', 'br0', 'up');
  for (const port of ['lan0', 'wan0']) {
    await middle.must('ip', 'addr', 'flush', 'dev', port);
    await middle.must('ip', 'link', 'set', port, 'master', 'br0');
  }
  await configure(ALL);
  await middle.must('ip', 'addr', 'add', `${ADDRESSES.nodeLan}/16`, 'dev', 'br0');
  for (const [space, address] of [
    [client, ADDRESSES.client],
    [server, ADDRESSES.server],
  ] as const) {
    await space.must('ip', 'addr', 'flush', 'dev', 'eth0');
    await space.must('ip', 'addr', 'add', `${address}/16`, 'dev', 'eth0');
  }
  macs = {
    client: await macOf(client, 'eth0'),
    server: await macOf(server, 'eth0'),
    bridge: await macOf(middle, 'br0'),
  };
}, 60_000);
afterEach(async () => {
  await node?.remove();
  await topology.node.run('rm', '-rf', topology.pinPath);
  await topology.node.run('nft', 'flush', 'ruleset');
  node = undefined;
});
afterAll(() => topology?.remove());

/**
 * A Python function that returns all kinds of frames from one station to the station `to`, with their names.
 * Each station sends these frames from `eth0`; the payload contains the number of the kind.
 */
const FRAMES = `
def frames(own, to, bridge, own_ip, to_ip):
    every, mark = 'ff:ff:ff:ff:ff:ff', lambda n: Raw(b'TRIAL%04d' % n)
    udp = lambda n: UDP(sport=1000 + n, dport=2000) / mark(n)
    tcp = lambda n, f: TCP(sport=1000 + n, dport=80, flags=f) / mark(n)
    ip = lambda d, **k: IP(src=own_ip, dst=d, **k)
    e = lambda d, **k: Ether(src=own, dst=d, **k)
    link = 'fe80::aa'
    return [
        ('ARP question', lambda n: e(every) / ARP(op=1, psrc=own_ip, pdst=to_ip) / mark(n)),
        ('ARP question by unicast', lambda n: e(to) / ARP(op=1, psrc=own_ip, pdst=to_ip) / mark(n)),
        ('gratuitous ARP', lambda n: e(every) / ARP(op=2, psrc=to_ip, pdst=to_ip, hwsrc=own) / mark(n)),
        ('ARP answer', lambda n: e(to) / ARP(op=2, psrc='10.77.1.1', pdst=to_ip, hwsrc=own, hwdst=to) / mark(n)),
        ('reverse ARP', lambda n: e(every, type=0x8035) / ARP(op=3) / mark(n)),
        ('unicast UDP', lambda n: e(to) / ip(to_ip) / udp(n)),
        ('SYN', lambda n: e(to) / ip(to_ip) / tcp(n, 'S')),
        ('ACK', lambda n: e(to) / ip(to_ip) / tcp(n, 'A')),
        ('echo request', lambda n: e(to) / ip(to_ip) / ICMP() / mark(n)),
        ('echo request with a record of routes', lambda n: e(to) / IP(src=own_ip, dst=to_ip, options=[IPOption_RR(routers=['0.0.0.0'] * 4)]) / ICMP() / mark(n)),
        ('UDP to an unknown station', lambda n: e('02:00:00:00:99:%02x' % n) / ip(to_ip) / udp(n)),
        ('broadcast UDP', lambda n: e(every) / ip('255.255.255.255') / udp(n)),
        ('subnet broadcast', lambda n: e(every) / ip('10.77.255.255') / udp(n)),
        ('DHCP discover', lambda n: e(every) / IP(src='0.0.0.0', dst='255.255.255.255') / UDP(sport=68, dport=67) / BOOTP(chaddr=b'abcdef') / DHCP(options=[('message-type', 'discover'), ('hostname', b'TRIAL%04d' % n), 'end'])),
        ('mDNS', lambda n: e('01:00:5e:00:00:fb') / ip('224.0.0.251', ttl=255) / UDP(sport=5353, dport=5353) / mark(n)),
        ('SSDP', lambda n: e('01:00:5e:7f:ff:fa') / ip('239.255.255.250') / UDP(sport=1900, dport=1900) / mark(n)),
        ('VRRP', lambda n: e('01:00:5e:00:00:12') / ip('224.0.0.18', proto=112, ttl=255) / mark(n)),
        ('IGMP', lambda n: e('01:00:5e:00:00:16') / ip('224.0.0.22', proto=2, ttl=1) / mark(n)),
        ('OSPF', lambda n: e('01:00:5e:00:00:05') / ip('224.0.0.5', proto=89, ttl=1) / mark(n)),
        ('first fragment', lambda n: e(to) / ip(to_ip, flags='MF', id=n) / udp(n)),
        ('later fragment', lambda n: e(to) / ip(to_ip, frag=8, id=n, proto=17) / mark(n)),
        ('GRE', lambda n: e(to) / ip(to_ip, proto=47) / mark(n)),
        ('IP in IP', lambda n: e(to) / ip(to_ip) / IP(src=own_ip, dst=to_ip) / udp(n)),
        ('SCTP', lambda n: e(to) / ip(to_ip, proto=132) / mark(n)),
        ('unicast in a broadcast frame', lambda n: e(every) / ip(to_ip) / udp(n)),
        ('multicast in a unicast frame', lambda n: e(to) / ip('224.0.0.251') / udp(n)),
        ('forged source address', lambda n: e(to) / IP(src='10.77.1.1', dst=to_ip) / udp(n)),
        ('IPv6 unicast', lambda n: e(to) / IPv6(src=link, dst='fe80::bb') / udp(n)),
        ('neighbour solicitation', lambda n: e('33:33:ff:00:00:bb') / IPv6(src=link, dst='ff02::1:ff00:bb', hlim=255) / ICMPv6ND_NS(tgt='fe80::bb') / ICMPv6NDOptSrcLLAddr(lladdr=own) / mark(n)),
        ('neighbour advertisement', lambda n: e(to) / IPv6(src=link, dst='fe80::bb', hlim=255) / ICMPv6ND_NA(tgt=link, O=1) / mark(n)),
        ('router advertisement', lambda n: e('33:33:00:00:00:01') / IPv6(src=link, dst='ff02::1', hlim=255) / ICMPv6ND_RA() / mark(n)),
        ('router solicitation', lambda n: e('33:33:00:00:00:02') / IPv6(src=link, dst='ff02::2', hlim=255) / ICMPv6ND_RS() / mark(n)),
        ('IPv6 to all nodes', lambda n: e('33:33:00:00:00:01') / IPv6(src=link, dst='ff02::1') / udp(n)),
        ('IPv6 with a fragment header', lambda n: e(to) / IPv6(src=link, dst='fe80::bb') / IPv6ExtHdrFragment(m=1) / udp(n)),
        ('VLAN tag', lambda n: e(to) / Dot1Q(vlan=5) / ip(to_ip) / udp(n)),
        ('priority tag', lambda n: e(to) / Dot1Q(vlan=0, prio=7) / ip(to_ip) / udp(n)),
        ('two VLAN tags', lambda n: e(every, type=0x88a8) / Dot1Q(vlan=5, type=0x8100) / Dot1Q(vlan=6) / ip(to_ip) / udp(n)),
        ('ARP in a VLAN', lambda n: e(every) / Dot1Q(vlan=9) / ARP(pdst=to_ip) / mark(n)),
        ('STP', lambda n: Dot3(src=own, dst='01:80:c2:00:00:00') / LLC(dsap=0x42, ssap=0x42, ctrl=3) / STP() / mark(n)),
        ('PVST', lambda n: Dot3(src=own, dst='01:00:0c:cc:cc:cd') / LLC(dsap=0xaa, ssap=0xaa, ctrl=3) / SNAP(OUI=0xc, code=0x10b) / mark(n)),
        ('CDP', lambda n: Dot3(src=own, dst='01:00:0c:cc:cc:cc') / LLC(dsap=0xaa, ssap=0xaa, ctrl=3) / SNAP(OUI=0xc, code=0x2000) / mark(n)),
        ('LLDP', lambda n: e('01:80:c2:00:00:0e', type=0x88cc) / mark(n)),
        ('LLDP to every station', lambda n: e(every, type=0x88cc) / mark(n)),
        ('EAPOL', lambda n: e('01:80:c2:00:00:03', type=0x888e) / mark(n)),
        ('EAPOL by unicast', lambda n: e(to, type=0x888e) / mark(n)),
        ('LACP', lambda n: e('01:80:c2:00:00:02', type=0x8809) / mark(n)),
        ('PPPoE discovery', lambda n: e(every, type=0x8863) / mark(n)),
        ('PPPoE session', lambda n: e(to, type=0x8864) / mark(n)),
        ('MPLS', lambda n: e(to, type=0x8847) / Raw(b'\\x00\\x00\\x11\\xff') / ip(to_ip) / udp(n)),
        ('MACsec', lambda n: e(to, type=0x88e5) / mark(n)),
        ('ATA over Ethernet', lambda n: e(to, type=0x88a2) / mark(n)),
        ('PROFINET', lambda n: e(to, type=0x8892) / mark(n)),
        ('PTP', lambda n: e('01:1b:19:00:00:00', type=0x88f7) / mark(n)),
        ('IPX', lambda n: e(every, type=0x8137) / mark(n)),
        ('AppleTalk', lambda n: e(every, type=0x809b) / mark(n)),
        ('wake on LAN', lambda n: e(every, type=0x0842) / mark(n)),
        ('802.3 with LLC', lambda n: Dot3(src=own, dst=to) / LLC(dsap=0xe0, ssap=0xe0, ctrl=3) / mark(n)),
        ('unknown EtherType', lambda n: e(to, type=0x88b5) / mark(n)),
        # The last: the bridge then looks for the other station behind this port, and keeps what is sent to it.
        ('forged source station', lambda n: Ether(src=to, dst=every) / ip(to_ip) / udp(n)),
    ]
`;

type Direction = readonly [from: 'client' | 'server', to: 'client' | 'server'];
const DIRECTIONS: readonly Direction[] = [
  ['client', 'server'],
  ['server', 'client'],
];

type Crossed = {
  readonly kinds: readonly string[];
  /** The kinds of frames that arrived at the other station. */
  readonly through: readonly string[];
};

/**
 * Sends each kind of frame three times from one station to the other. Returns all kinds, and the kinds that
 * arrived.
 */
async function crossed([from, to]: Direction): Promise<Crossed> {
  const end = await listenForFrames(topology[to]);
  const names = JSON.parse(
    await runScapy(
      topology[from],
      `${FRAMES}
kinds = frames('${macs[from]}', '${macs[to]}', '${macs.bridge}', '${ADDRESSES[from]}', '${ADDRESSES[to]}')
s = conf.L2socket(iface='eth0')
for number, (name, frame) in enumerate(kinds):
    for _ in range(3): s.send(frame(number))
print(json.dumps([name for name, _ in kinds]))`,
    ),
  ) as string[];
  const seen = await end();
  return { kinds: names, through: seen.map((number) => names[number] ?? `${number}`) };
}

/**
 * The kinds of frames that a bridge with the default kernel settings does not forward: the group addresses
 * 01-80-C2-00-00-02, -03 and -0E (IEEE 802.1Q, 8.6.3), and invalid IGMP, which IGMP snooping drops. With STP
 * off, the bridge forwards frames to 01-80-C2-00-00-00.
 */
const KEPT = ['EAPOL', 'IGMP', 'LACP', 'LLDP'];

test('a bridge without Weir forwards all kinds of frames, and a bridge with the default kernel settings all kinds but four', async () => {
  for (const direction of DIRECTIONS) {
    const { kinds, through } = await crossed(direction);
    expect(kinds).toHaveLength(59);
    expect({ direction, kept: kinds.filter((kind) => !through.includes(kind)) }).toEqual({ direction, kept: [] });
  }
  await configure({ snooping: 1, forwardedGroups: 0 });
  for (const direction of DIRECTIONS) {
    const { kinds, through } = await crossed(direction);
    expect({ direction, kept: kinds.filter((kind) => !through.includes(kind)).sort() }).toEqual({
      direction,
      kept: KEPT,
    });
  }
  await configure(ALL);
  // The forged ARP replies have changed the ARP caches, and no later reply corrects the caches. The test
  // therefore flushes the caches.
  for (const space of [topology.client, topology.node, topology.server])
    await space.must('ip', 'neigh', 'flush', 'all');
  const { stdout } = await topology.client.run('arping', '-c', '2', '-w', '2', '-I', 'eth0', ADDRESSES.server);
  expect(stdout).toMatch(/ 0% (unanswered|packet loss)/);
});

/** The kinds of frames that cross the bridge whatever the policy decides. */
const ALWAYS = [
  ...['ARP question', 'ARP question by unicast', 'gratuitous ARP', 'ARP answer'],
  ...['neighbour solicitation', 'neighbour advertisement', 'router advertisement', 'router solicitation', 'STP'],
];
/** The kinds that never cross: tagged frames, a fragment without a first fragment, an address of the node. */
const NEVER = [
  ...['VLAN tag', 'priority tag', 'two VLAN tags', 'ARP in a VLAN'],
  ...['later fragment', 'forged source address'],
];

describe.each(
  (['strict', 'loose', 'off'] as const).flatMap((reversePath) =>
    (['stack', 'direct', 'auto'] as const).map((forwarding) => [reversePath, forwarding] as const),
  ),
)('a node with reverse_path %s and forwarding %s', (reversePath, forwarding) => {
  test.each([
    ['drop', 'deny', (kind: string) => ALWAYS.includes(kind)],
    ['pass', 'allow', (kind: string) => !NEVER.includes(kind)],
  ] as const)(
    'a node switches exactly the expected kinds of frames between bridge ports with the settings ipv6 and non_ipv4 "%s" and default_policy "%s"',
    async (unpoliced, action, crosses) => {
      const interfaces = ['lan0', 'wan0', 'br0'];
      const others = { ipv6: unpoliced, non_ipv4: unpoliced };
      const dataplane = { interfaces, reverse_path: reversePath, forwarding, ...others, police_local: false };
      node = await startNode(topology, { dataplane });
      await node.ready({ except: ['policy_ready'] });
      await node.request('PUT', '/api/v1/policy', { default_policy: action });
      await node.ready();
      for (const direction of DIRECTIONS) {
        const { kinds, through } = await crossed(direction);
        expect({ direction, through: through.toSorted() }).toEqual({
          direction,
          through: kinds.filter(crosses).toSorted(),
        });
      }
      // After the attack, the node must still answer a ping to its own address.
      for (const space of [topology.client, topology.node, topology.server])
        await space.must('ip', 'neigh', 'flush', 'all');
      expect((await topology.client.run('ping', '-n', '-c', '1', '-W', '1', ADDRESSES.nodeLan)).code).toBe(0);
    },
  );
});
