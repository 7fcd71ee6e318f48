import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { parseIpv4Address } from '#addresses/ip-address.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import type { Program } from '#contracts/policy/program.js';
import { Pins } from '#dataplane/attach/pins.js';
import { hasNetfilterPrograms } from '#dataplane/loader/kernel-functions.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { compile } from '#policy/compile/compile.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { type BridgedTopology, createBridge, ipv4, reply } from './bridged.js';
import { DatapathNode } from './datapath-node.js';
import { datapathOptions } from './datapath-options.js';
import { ALLOWED, DENIED, denyAll } from './policies.js';

let node: DatapathNode;

const sh = (command: string): string => execFileSync('sh', ['-ec', command], { encoding: 'utf8' });

/** Adds rules for NAT. `pre` and `post` are chains of the type nat. */
function translate(...rules: readonly string[]): void {
  sh(`nft 'add table ip mine
    add chain ip mine pre { type nat hook prerouting priority -100; }
    add chain ip mine post { type nat hook postrouting priority 100; }
    ${rules.map((each) => `add rule ip mine ${each}`).join('\n')}'`);
}

/** Returns a policy that lets all sources send UDP and TCP to these ports of these addresses. */
const only = (...to: readonly (readonly [string, number])[]): Program =>
  compile(
    policy([
      group(
        ['0.0.0.0/0'],
        to.map(([address, port], index) => rule({ id: `r${index}`, to: [address], ports: [String(port)] })),
      ),
    ]),
  );

/** Whether the bridge gives the packets that it switches to the netfilter hooks of IPv4. */
const BRIDGE_NETFILTER = [
  { callIptables: 0 as const, bridge: 'a bridge without br_netfilter' },
  { callIptables: 1 as const, bridge: 'a bridge with br_netfilter' },
];
const callIptables = (value: 0 | 1): string => sh(`sysctl -qw net.bridge.bridge-nf-call-iptables=${value}`);

skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).describe(
  'packets between policed bridge ports on a node with NAT rules',
  () => {
    let bridged: BridgedTopology;
    const UNUSED = 'post oifname "out0" masquerade';
    /** An address that no host has. The node translates its port 80 to port 9 of the server. */
    const PUBLIC = '10.77.9.9';
    const DNAT = `pre ip daddr ${PUBLIC} udp dport 80 dnat to 10.77.2.2:9`;

    beforeAll(async () => {
      bridged = await createBridge('bridge-nat');
      node = new DatapathNode(bridged.topology);
      sh(`ip addr add 10.77.1.1/16 dev br0
      ip neigh replace 10.77.1.2 lladdr 02:00:00:00:00:0c dev br0 nud permanent
      ip neigh replace 10.77.2.2 lladdr 02:00:00:00:00:0e dev br0 nud permanent`);
    });
    afterAll(async () => {
      node.leave();
      await bridged.remove();
    });
    afterEach(() => {
      node.detach();
      sh('nft flush ruleset; ip link set br0 type bridge fdb_flush');
    });

    function police(more: Partial<DatapathOptions> = {}): void {
      node.open({ interfaces: ['lan0', 'wan0', 'lan1', 'br0'], ...more });
      const { links } = new Pins(bridged.topology.pinPath);
      // The forward judge (netfilter program) runs, so the datapath looks for translated flows.
      expect(existsSync(links) && readdirSync(links).some((name) => name.startsWith('forward'))).toBe(true);
    }

    describe.each(BRIDGE_NETFILTER)('$bridge', ({ callIptables: value }) => {
      beforeEach(() => {
        callIptables(value);
      });

      test('the policy decides switched frames by the addresses of their IPv4 header, also for an address in dataplane.translated', async () => {
        translate(UNUSED);
        police({ translated: [{ address: parseIpv4Address('10.77.8.0') ?? 0, length: 24 }] });
        node.enforce(compile(policy([group(['0.0.0.0/0'], [rule({ protocol: IPPROTO.udp, ports: ['9'] })])])));
        const service = { destination: '10.77.8.1' };
        const frames = {
          allowed: ipv4('allowed'),
          denied: ipv4('denied', { dport: 10 }),
          service: ipv4('service', service),
          other: ipv4('other', { ...service, dport: 10 }),
          first: ipv4('first', { ...service, id: 1, fragment: 0x2000 }),
          later: ipv4('later', { ...service, id: 1, fragment: 3, content: new Uint8Array(16).fill(7) }),
          unseen: ipv4('unseen', { ...service, id: 2, fragment: 3, content: new Uint8Array(16).fill(8) }),
        };
        const { server } = await bridged.send('client', frames);
        // Ignore `first`: with br_netfilter, the kernel joins and splits the fragments, so the frame differs.
        expect(server.filter((name) => name !== 'first')).toEqual(['allowed', 'service', 'later']);
        expect((await bridged.send('server', { back: reply('back', service) })).client).toEqual(['back']);
      });

      test('a policed bridge port passes replies to a host behind a port that is not policed', async () => {
        translate(UNUSED);
        // With br_netfilter, the guard of a policed bridge drops what other ports send.
        police({ interfaces: ['lan0', 'wan0', ...(value === 0 ? ['br0'] : [])] });
        node.enforce(denyAll);
        const host = { from: 'unknown', source: '10.77.3.3' } as const;
        expect((await bridged.send('third', { query: ipv4('query', host) })).server).toEqual(['query']);
        expect((await bridged.send('server', { answer: reply('answer', host) })).third).toEqual(['answer']);
        expect((await bridged.send('server', { other: reply('other', { ...host, sport: 1 }) })).third).toEqual([]);
      });
    });

    test('on a bridge without br_netfilter, the node does not translate addresses, and the policy decides by the address in the IPv4 header', async () => {
      callIptables(0);
      translate(DNAT);
      police();
      node.enforce(only([PUBLIC, 80]));
      const query = { query: ipv4('query', { destination: PUBLIC, dport: 80 }) };
      expect((await bridged.send('client', query)).server).toEqual(['query']);
      node.enforce(only(['10.77.2.2', 9]));
      expect((await bridged.send('client', query)).server).toEqual([]);
    });

    test('on a bridge with br_netfilter and DNAT, the policy must allow the addresses before and after the translation', async () => {
      callIptables(1);
      translate(DNAT);
      police();
      const send = async (sport: number) => {
        const query = { query: ipv4('query', { destination: PUBLIC, dport: 80, sport }) };
        return (await bridged.send('client', query)).server;
      };
      node.enforce(only([PUBLIC, 80], ['10.77.2.2', 9]));
      expect(await send(4_001)).toEqual(['query']);
      // The header of the reply has the address and the port of the server.
      const real = { sport: 4_001 };
      expect((await bridged.send('server', { answer: reply('answer', real) })).client).toEqual(['answer']);
      for (const [index, allowed] of [only([PUBLIC, 80]), only(['10.77.2.2', 9]), denyAll].entries()) {
        node.enforce(allowed);
        // Send a packet of the flow that is open already, and a packet that would open a new flow.
        expect([await send(4_001), await send(4_010 + index)]).toEqual([[], []]);
      }
    });

    test('DNAT on a bridge with br_netfilter is a fault if the forward judge (netfilter program) does not run', () => {
      translate(DNAT);
      const faults = (more: Partial<DatapathOptions>): readonly string[] =>
        new LocalDatapath(datapathOptions(bridged.topology.pinPath, { interfaces: ['lan0', 'br0'], ...more })).review()
          .faults;
      // The default route leads elsewhere, so neither the ports nor the bridge are outside interfaces.
      sh(
        'ip link add out0 type veth peer name out1; ip link set out1 up; ip link set out0 up; ip addr add 10.99.0.1/24 dev out0; ip route add default via 10.99.0.2',
      );
      try {
        const fault = `nftables chain ip mine pre translates addresses at lan0, which is not supported here (dataplane.police_local is set): remove lan0 from dataplane.interfaces, or remove the rules`;
        callIptables(0);
        expect(faults({ policeLocal: true })).toEqual([]);
        sh('ip link set br0 type bridge nf_call_iptables 1');
        expect(faults({ policeLocal: true })).toEqual([fault]);
        sh('ip link set br0 type bridge nf_call_iptables 0');
        callIptables(1);
        expect(faults({ policeLocal: true })).toEqual([fault]);
        expect(faults({})).toEqual([]);
      } finally {
        sh('ip link del out0');
      }
    });

    test('on a bridge with br_netfilter and SNAT, replies to the translated address are dropped', async () => {
      callIptables(1);
      translate('post ip saddr 10.77.1.2 udp dport 9 snat to 10.77.1.1');
      police();
      node.enforce(only(['10.77.2.2', 9]));
      // Use a port that no earlier test used: conntrack still has their flows.
      const sport = 4_020;
      expect((await bridged.send('client', { query: ipv4('query', { sport }) })).server).toEqual(['query']);
      const back = { source: '10.77.1.1', from: 'bridge', sport } as const;
      const { client, node: seen } = await bridged.send('server', { answer: reply('answer', back) });
      expect([client, seen]).toEqual([[], []]);
    });
  },
);

skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).describe(
  'hosts behind a policed bridge that the node routes and masquerades for',
  () => {
    beforeAll(async () => {
      node = await DatapathNode.create('bridge-masq');
      await node.topology.node.must(
        'sh',
        '-ec',
        `ip link add br0 type bridge forward_delay 0; ip addr flush dev lan0; ip link set lan0 master br0
       ip addr add ${ADDRESSES.nodeLan}/24 dev br0; ip link set br0 up; ip route add ${ADDRESSES.clientOther} dev br0`,
      );
      await node.removeReturnRoute();
      await node.serve(ALLOWED, DENIED);
    });
    afterAll(() => node.remove());
    afterEach(() => {
      node.detach();
      sh('nft flush ruleset');
    });

    const answers = async (from: 'client' | 'server', to: string, port: number): Promise<boolean[]> =>
      (await Promise.all([node.ask(from, 'connect', to, port), node.ask(from, 'datagram', to, port)])).map((lines) =>
        lines.includes('pong 1'),
      );
    const [BOTH, NEITHER] = [
      [true, true],
      [false, false],
    ];

    test.each(BRIDGE_NETFILTER)(
      'the policy decides by the untranslated client and the real server, for hosts that the node masquerades behind $bridge',
      async ({ callIptables: value }) => {
        callIptables(value);
        translate(
          'post oifname "wan0" masquerade',
          `pre iifname "wan0" tcp dport 9000 dnat to ${ADDRESSES.client}:${ALLOWED}`,
        );
        const datapath = node.open({ interfaces: ['lan0', 'br0', 'wan0'], pickupMs: 60_000 });
        expect(datapath.review().faults).toEqual([]);
        node.enforce(only([ADDRESSES.server, ALLOWED], [ADDRESSES.client, ALLOWED]));
        expect(await answers('client', ADDRESSES.server, ALLOWED)).toEqual(BOTH);
        expect(await answers('client', ADDRESSES.server, DENIED)).toEqual(NEITHER);
        expect(await node.ask('server', 'connect', ADDRESSES.nodeWan, 9_000)).toContain('pong 1');
        node.enforce(only([ADDRESSES.nodeWan, 9_000]));
        expect(await answers('client', ADDRESSES.server, ALLOWED)).toEqual(NEITHER);
        expect(await node.ask('server', 'connect', ADDRESSES.nodeWan, 9_000)).toEqual(['refused ETIMEDOUT']);
      },
    );
  },
);
