import { execFileSync } from 'node:child_process';
import { readdirSync, rmSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import { IPPROTO, type Policy } from '#contracts/policy/policy-model.js';
import { networkNamespace } from '#dataplane/attach/ownership.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { compile } from '#policy/compile/compile.js';
import { TCP } from '#test/dataplane/frame.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { type BridgedTopology, createBridge, frameOf, ipv4, reply } from './bridged.js';
import { datapathOptions } from './datapath-options.js';
import { enterNamespace } from './namespace.js';
import { LISTEN, openPlane } from './plane.js';
import { defaultOnly } from './policies.js';
import { SWITCHED_FRAMES } from './switched-frames.js';
import { hooksGone } from './tcx.js';

const PORTS = ['lan0', 'wan0', 'lan1'];

let bridged: BridgedTopology;
let leave: () => void;
let datapath: LocalDatapath;
let generation = 0;

const sh = (command: string): string => execFileSync('sh', ['-ec', command], { encoding: 'utf8' });

beforeAll(async () => {
  bridged = await createBridge('bridge');
  leave = enterNamespace(bridged.topology.node.name);
});
afterAll(async () => {
  leave();
  await bridged.remove();
});

function police(options: Partial<DatapathOptions> = {}): void {
  datapath = new LocalDatapath(datapathOptions(bridged.topology.pinPath, { interfaces: PORTS, ...options }));
  datapath.open();
  datapath.attach();
}
function end(): void {
  datapath.close();
  detach(bridged.topology.pinPath);
}
function enforce(chosen: Policy): void {
  datapath.stage(compile(chosen), ++generation);
  datapath.flip();
}
/** A policy that allows UDP to port 9, DHCP and TCP to port 80 from all sources, and denies the rest. */
const someAllowed = (): Policy =>
  policy([
    group(
      ['0.0.0.0/0'],
      [rule({ protocol: IPPROTO.udp, ports: ['9', '67'] }), rule({ protocol: IPPROTO.tcp, ports: ['80'] })],
    ),
  ]);
const dropped = (reason: 'spoofed_source' | 'policy_deny' | 'guard'): number =>
  Number(datapath.stats().drops[reason]?.packets);

function resetBridge(): void {
  sh(`nft flush ruleset; ip addr flush dev br0; sysctl -qw net.ipv4.ip_forward=1
    for port in lan0 wan0 lan1; do
      ip link set $port master br0
      ip link set $port type bridge_slave hairpin off group_fwd_mask 0
    done
    ip link set br0 type bridge nf_call_iptables 0 nf_call_ip6tables 0 fdb_flush`);
}

describe.each<[string, string]>([
  ['a bridge without an address', 'true'],
  ['a bridge with an address on a node that forwards', 'ip addr add 10.77.1.1/16 dev br0'],
  [
    'a bridge with an address on a node that does not forward',
    'ip addr add 10.77.1.1/16 dev br0; sysctl -qw net.ipv4.ip_forward=0',
  ],
  ['a bridge with nf_call_iptables', 'ip link set br0 type bridge nf_call_iptables 1 nf_call_ip6tables 1'],
])('the ports of %s', (_, configure) => {
  beforeAll(() => {
    sh(configure);
    police();
  });
  afterEach(() => sh('ip link set br0 type bridge fdb_flush'));
  afterAll(() => {
    end();
    resetBridge();
  });

  test('bridge ports switch packets that the policy allows, and replies to allowed packets', async () => {
    enforce(someAllowed());
    const denied = dropped('policy_deny');
    const frames = { allowed: ipv4('allowed'), denied: ipv4('denied', { dport: 10 }) };
    expect((await bridged.send('client', frames)).server).toEqual(['allowed']);
    const back = {
      reply: reply('reply'),
      other: ipv4('other', {
        from: 'server',
        to: 'client',
        source: '10.77.2.2',
        destination: '10.77.1.2',
        sport: 10,
        dport: 4_001,
      }),
    };
    expect((await bridged.send('server', back)).client).toEqual(['reply']);
    expect(dropped('policy_deny') - denied).toBe(2);
  });

  test('bridge ports drop TCP packets that do not fit the state of their connection', async () => {
    enforce(someAllowed());
    const tcp = (name: string, flags: number, more = {}): Uint8Array => ipv4(name, { dport: 80, tcp: flags, ...more });
    expect((await bridged.send('client', { syn: tcp('syn', TCP.syn) })).server).toEqual(['syn']);
    expect((await bridged.send('server', { both: reply('both', { dport: 80, tcp: 0 }) })).client).toEqual(['both']);
    expect((await bridged.send('client', { data: tcp('data', TCP.ack) })).server).toEqual(['data']);
    // For a moment after the first policy, TCP packets without SYN may open flows (pickup). Wait for its end.
    let sport = 5_000;
    const strays = async () =>
      (await bridged.send('client', { stray: tcp('stray', TCP.ack, { sport: sport++ }) })).server;
    await expect.poll(strays).toEqual([]);
    enforce(defaultOnly('deny'));
    expect((await bridged.send('client', { more: tcp('more', TCP.ack) })).server).toEqual([]);
    expect((await bridged.send('server', { answer: reply('answer', { dport: 80, tcp: 0 }) })).client).toEqual([]);
  });

  test('bridge ports switch ARP, and drop packets with a forged source or a loopback address', async () => {
    enforce(defaultOnly('allow'));
    const { server } = await bridged.send('client', {
      ...attacks('question of ARP', 'answer of ARP', 'loopback over IPv4'),
      multicast: ipv4('multicast', { source: '224.0.0.1' }),
      zero: ipv4('zero', { source: '0.0.0.0' }),
      plain: ipv4('plain'),
    });
    expect(server.sort()).toEqual(['answer of ARP', 'plain', 'question of ARP']);
  });
});

const attacks = (...names: readonly string[]): Record<string, Uint8Array> =>
  Object.fromEntries(names.map((name) => [name, SWITCHED_FRAMES.attacks[name] ?? new Uint8Array()]));
const IPV6 = ['unicast of IPv6', 'multicast of IPv6'];
const OTHER = ['PPPoE discovery', 'MPLS unicast', 'unknown EtherType', 'LLC and SNAP'];
const NON_IPV4 = [...IPV6, ...OTHER];
const NEVER = ['loopback over IPv4', 'tag of a VLAN', 'tag of priority', 'two tags'];
const ARP = ['question of ARP', 'answer of ARP'];

describe.each([{ forceClsact: false }, { forceClsact: true }])('policed bridge ports, %o', ({ forceClsact }) => {
  afterEach(() => {
    end();
    resetBridge();
  });

  test.each<[string, 'allow' | 'deny', Partial<DatapathOptions>, (name: string) => boolean]>([
    ['an allow', 'allow', {}, (name) => ![...NON_IPV4, ...NEVER, 'LLDP neighbours'].includes(name)],
    [
      'an allow and ipv6: pass',
      'allow',
      { ipv6: 'pass' },
      (name) => ![...OTHER, ...NEVER, 'LLDP neighbours'].includes(name),
    ],
    ['an allow and non_ipv4: pass', 'allow', { nonIpv4: 'pass' }, (name) => ![...IPV6, ...NEVER].includes(name)],
    [
      'an allow, and pass for both settings',
      'allow',
      { ipv6: 'pass', nonIpv4: 'pass' },
      (name) => !NEVER.includes(name),
    ],
    ['a deny', 'deny', {}, (name) => ARP.includes(name)],
    [
      'a deny and non_ipv4: pass',
      'deny',
      { nonIpv4: 'pass' },
      (name) => [...ARP, ...OTHER, 'LLDP neighbours'].includes(name),
    ],
    ['a deny and ipv6: pass', 'deny', { ipv6: 'pass' }, (name) => [...ARP, ...IPV6].includes(name)],
    ['a deny and police_local', 'deny', { policeLocal: true }, (name) => ARP.includes(name)],
    [
      'an allow and direct forwarding',
      'allow',
      { forwarding: 'direct' },
      (name) => ![...NON_IPV4, ...NEVER, 'LLDP neighbours'].includes(name),
    ],
  ])(
    'policed bridge ports switch exactly the kinds of frames that the policy and the settings permit: %s',
    async (_, action, options, crosses) => {
      for (const port of PORTS) sh(`ip link set ${port} type bridge_slave group_fwd_mask 0x4000`);
      police({ ...options, forceClsact });
      enforce(defaultOnly(action));
      const { server, third } = await bridged.send('client', SWITCHED_FRAMES.attacks);
      const expected = Object.keys(SWITCHED_FRAMES.attacks).filter(crosses);
      expect(server).toEqual(expected);
      const groups = (names: readonly string[]): string[] =>
        names.filter((name) => (SWITCHED_FRAMES.attacks[name]?.[0] ?? 0) & 1);
      expect(groups(third)).toEqual(groups(expected));
    },
  );

  test('policed bridge ports drop all frames without BPF programs and the node process, even if a rule sets the mark of Weir', async () => {
    police({ forceClsact });
    enforce(defaultOnly('allow'));
    sh(`nft 'add table bridge mine; add chain bridge mine first { type filter hook prerouting priority 2147483647; };
      add rule bridge mine first meta mark set 0x00f00000'`);
    expect((await bridged.send('client', { one: ipv4('one') })).server).toEqual(['one']);
    datapath.close();
    if (forceClsact) for (const port of PORTS) sh(`tc qdisc del dev ${port} clsact`);
    else {
      const links = `${bridged.topology.pinPath}/links-${networkNamespace()}`;
      for (const name of readdirSync(links)) rmSync(`${links}/${name}`);
      await hooksGone(bridged.topology.node.name);
    }
    const { server, third } = await bridged.send('client', SWITCHED_FRAMES.attacks);
    expect([server, third]).toEqual([[], []]);
  });
});

describe('policed bridge ports', () => {
  afterEach(() => {
    end();
    resetBridge();
  });

  test('policed bridge ports keep enforcing without a process and without nftables', async () => {
    police();
    enforce(someAllowed());
    datapath.close();
    sh('nft flush ruleset');
    const broadcast = ipv4('broadcast', { to: 'all', destination: '10.77.255.255', dport: 10 });
    const frames = {
      ...{ allowed: ipv4('allowed'), denied: ipv4('denied', { dport: 10 }), broadcast },
      ...attacks(...NON_IPV4),
    };
    expect((await bridged.send('client', frames)).server).toEqual(['allowed']);
    police();
    expect((await bridged.send('client', { again: ipv4('again') })).server).toEqual(['again']);
    expect(datapath.look().filter(({ type }) => type === 'guard_lost')).toEqual([]);
  });

  test('policed bridge ports accept a reply at another port, and follow a station that moves to another port', async () => {
    police();
    enforce(someAllowed());
    expect((await bridged.send('client', { query: ipv4('query') })).server).toEqual(['query']);
    // The server has moved to lan1, and its MAC address with it.
    expect((await bridged.send('third', { reply: reply('moved') })).client).toEqual(['reply']);
    expect((await bridged.send('client', { next: ipv4('next') })).third).toEqual(['next']);
    expect(
      (await bridged.send('third', { other: ipv4('third', { from: 'server', to: 'client', dport: 10 }) })).client,
    ).toEqual([]);
  });

  test('policed bridge ports send a frame back by a port in hairpin mode only if the policy allows the frame', async () => {
    sh('ip link set lan0 type bridge_slave hairpin on');
    police();
    enforce(someAllowed());
    // Make the bridge learn that the server is behind the port of the client.
    const move = {
      move: ipv4('move', { from: 'server', to: 'all', source: '10.77.2.2', destination: '10.77.255.255' }),
    };
    await bridged.send('client', move);
    const before = rxPackets();
    await bridged.send('client', { allowed: ipv4('allowed'), denied: ipv4('denied', { dport: 10 }) });
    // Two frames come back: `allowed`, and the frame with which `send` marks the end.
    expect(rxPackets() - before).toBe(2);
  });

  const rxPackets = (): number =>
    Number(sh(`ip netns exec ${bridged.topology.client.name} cat /sys/class/net/eth0/statistics/rx_packets`));

  test('policed bridge ports switch spanning tree frames, and pass frames to other reserved group addresses only to the node', async () => {
    police();
    enforce(defaultOnly('deny'));
    const bpdu = frameOf('client', '01:80:c2:00:00:00', '0026', Buffer.from('424203000000', 'hex'));
    const eapol = frameOf('client', '01:80:c2:00:00:03', '888e', Buffer.alloc(8));
    // EAPOL frames reach sockets on lan0, and do not pass the bridge.
    expect(await bridged.send('client', { bpdu, eapol })).toMatchObject({ server: ['bpdu'], third: ['bpdu'] });
  });

  test('policed bridge ports pass IPv6 neighbour discovery and drop other IPv6', async () => {
    police();
    enforce(defaultOnly('allow'));
    const ipv6 = (hops: string, type: string): Uint8Array =>
      frameOf(
        'client',
        '33:33:ff:00:00:bb',
        '86dd',
        Buffer.from(
          `6000000000183a${hops}fe80${'0'.repeat(27)}1ff02${'0'.repeat(19)}1ff0000bb${type}00000000000000`,
          'hex',
        ),
      );
    const frames = { solicitation: ipv6('ff', '87'), forged: ipv6('40', '87'), echo: ipv6('ff', '80') };
    const { server, node } = await bridged.send('client', frames);
    expect(server).toEqual(['solicitation']);
    // Without police_local, the policy does not apply to the node.
    expect(node).toEqual(['solicitation', 'forged', 'echo']);
  });

  test('policed bridge ports deliver a denied broadcast only to the node, and with police_local to no host', async () => {
    const frames = {
      dhcp: ipv4('dhcp', { to: 'all', source: '0.0.0.0', destination: '255.255.255.255', sport: 68, dport: 67 }),
      denied: ipv4('denied', { to: 'all', destination: '10.77.255.255', dport: 10 }),
      mdns: ipv4('mdns', { to: '01:00:5e:00:00:fb', destination: '224.0.0.251', dport: 5_353 }),
    };
    police();
    enforce(someAllowed());
    // The guard stands before the programs are attached, and drops frames that a host sends between the two.
    const atAttach = dropped('guard');
    expect(await bridged.send('client', frames)).toMatchObject({
      server: ['dhcp'],
      third: ['dhcp'],
      node: ['dhcp', 'denied', 'mdns'],
    });
    expect([dropped('policy_deny'), dropped('guard') - atAttach]).toEqual([2, 0]);
    datapath.close();
    detach(bridged.topology.pinPath);
    police({ policeLocal: true });
    enforce(someAllowed());
    expect(await bridged.send('client', frames)).toMatchObject({ server: ['dhcp'], third: ['dhcp'], node: ['dhcp'] });
  });

  test('policed bridge ports drop later fragments of a denied datagram', async () => {
    police();
    enforce(someAllowed());
    const first = (dport: number, id: number) => ipv4(`first ${id}`, { dport, id, fragment: 0x2000 });
    const later = (id: number) => ipv4(`later ${id}`, { id, fragment: 3, content: new Uint8Array(16).fill(id) });
    const frames = { allowed: first(9, 1), more: later(1), denied: first(10, 2), rest: later(2) };
    expect((await bridged.send('client', frames)).server).toEqual(['allowed', 'more']);
  });

  test.each([
    ['strict', ['own', 'elsewhere', 'nowhere']],
    ['loose', ['own', 'nowhere']],
    ['off', ['own']],
  ] as const)(
    'policed bridge ports drop the expected forged sources with reverse_path: %s',
    async (reversePath, forged) => {
      sh(
        `ip addr add 10.77.1.1/16 dev br0; ip link add out0 type veth peer name out1; ip link set out1 up; ip addr add 10.99.0.1/24 dev out0; ip link set out0 up`,
      );
      try {
        police({ reversePath });
        enforce(defaultOnly('allow'));
        const frames = {
          own: ipv4('own', { source: '10.77.1.1' }),
          elsewhere: ipv4('elsewhere', { source: '10.99.0.7' }),
          nowhere: ipv4('nowhere', { source: '198.51.100.1' }),
          plain: ipv4('plain'),
        };
        const names = Object.keys(frames).filter((name) => !(forged as readonly string[]).includes(name));
        expect((await bridged.send('client', frames)).server).toEqual(names);
        expect(dropped('spoofed_source')).toBe(forged.length);
      } finally {
        sh('ip link del out0');
      }
    },
  );

  test('policed bridge ports of a node that does not forward drop the addresses of the bridge as a source, also a new address', async () => {
    sh('ip addr add 10.77.1.1/16 dev br0; sysctl -qw net.ipv4.ip_forward=0');
    police();
    enforce(defaultOnly('allow'));
    const own = (name: string, source: string) => ({ [name]: ipv4(name, { source }) });
    expect((await bridged.send('client', own('first', '10.77.1.1'))).server).toEqual([]);
    sh('ip addr add 10.77.1.9/16 dev br0');
    datapath.look();
    expect((await bridged.send('client', own('second', '10.77.1.9'))).server).toEqual([]);
  });

  test('frames to the bridge device are classified and counted once, by the hook of the bridge and not of its port', async () => {
    sh(
      'ip addr add 10.77.1.1/16 dev br0; ip link add out0 type veth peer name out1; ip link set out1 up; ip addr add 10.99.0.1/24 dev out0; ip link set out0 up',
    );
    try {
      police({ interfaces: [...PORTS, 'br0'] });
      enforce(someAllowed());
      const routed = (name: string, dport: number, to: 'bridge' | 'lan0') =>
        ipv4(name, { to, destination: '10.99.0.7', dport });
      const frames = {
        allowed: routed('allowed', 9, 'bridge'),
        denied: routed('denied', 10, 'bridge'),
        port: routed('port', 9, 'lan0'),
      };
      const { node, server } = await bridged.send('client', frames);
      expect([node, server]).toEqual([['allowed', 'denied', 'port'], []]);
      const { verdicts, drops } = datapath.stats();
      expect([verdicts.allow.packets, drops.policy_deny?.packets, drops.guard?.packets]).toEqual([2n, 1n, 0n]);
      expect(datapath.review().faults).toEqual([]);
    } finally {
      sh('ip link del out0');
    }
  });

  test('policed bridge ports cause a fault if the node routes packets of an unpoliced bridge, and a warning for each unpoliced port', () => {
    sh('ip addr add 10.77.1.1/16 dev br0');
    police({ interfaces: ['lan0', 'wan0'] });
    expect(datapath.review()).toEqual({
      faults: ['the node routes packets of bridge br0, whose ports are policed: add br0 to dataplane.interfaces'],
      warnings: [
        'the node forwards packets from br0 without a policy: dataplane.interfaces does not contain it',
        'lan1: a policed bridge switches its frames without a policy, because dataplane.interfaces does not contain it',
      ],
    });
    sh('sysctl -qw net.ipv4.ip_forward=0');
    expect(datapath.review().faults).toEqual([]);
  });

  test('a switched packet that matches a rule with TLS attributes is dropped, and does not reach the service plane', async () => {
    sh('ip addr add 10.77.1.1/16 dev br0');
    const plane = await openPlane();
    try {
      police({ servicePlane: LISTEN, pickupMs: 0 });
      enforce(policy([group(['0.0.0.0/0'], [rule({ protocol: IPPROTO.tcp, tls: { mode: 'metadata' } })])]));
      const tcp = (name: string, flags: number) => ipv4(name, { dport: 443, tcp: flags });
      // A bare ACK can be the answer to a SYN cookie of the service plane, if the packet is routed.
      await bridged.send('client', { syn: tcp('syn', TCP.syn), ack: tcp('ack', TCP.ack) });
      const { drops } = datapath.stats();
      expect([drops.service_plane_absent?.packets, drops.out_of_state?.packets]).toEqual([1n, 1n]);
    } finally {
      plane.close();
    }
  });

  test('an interface that joins a policed bridge becomes a policed bridge port', async () => {
    sh('ip link set wan0 nomaster');
    police();
    enforce(someAllowed());
    sh('ip link set wan0 master br0');
    datapath.look();
    const frames = { allowed: ipv4('allowed'), denied: ipv4('denied', { dport: 10 }) };
    expect((await bridged.send('client', frames)).server).toEqual(['allowed']);
  });
});
