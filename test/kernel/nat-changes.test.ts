import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { parseIpv4Address } from '#addresses/ip-address.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { PRIORITY } from '#contracts/datapath/datapath-numbers.js';
import { Pins } from '#dataplane/attach/pins.js';
import { closeFd, detachLink, openPinned } from '#dataplane/loader/bpf-fd.js';
import { hasNetfilterPrograms } from '#dataplane/loader/kernel-functions.js';
import { StateMigration } from '#dataplane/upgrade/state-migration.js';
import { compile } from '#policy/compile/compile.js';
import { MAX_FRAME, TCP, writeIpv6Frame } from '#test/dataplane/frame.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { flushConntrack } from './conntrack.js';
import { addIpv6 } from './ipv6.js';
import { parts } from './nat-frames.js';
import { NatNode, only, tcp, udp } from './nat-node.js';
import { allowAll, denyAll } from './policies.js';
import { hooksGone } from './tcx.js';
import { claimOtherLayout, compileRefusedJudge } from './variants.js';

const { client, clientOther, nodeWan, server } = ADDRESSES;
const PORT = 8_000;
/** The node forwards this port of its address to PORT of the client. */
const PUBLIC = 9_000;
/** An address to which the node translates sources. No interface has it. */
const POOL = '10.88.0.1';
/** A service address. The node forwards its port 80 to PORT of the server. */
const SERVICE = '10.99.0.1';
const MASQUERADE = 'add rule ip mine post oifname "wan0" masquerade';
const TO_POOL = `add rule ip mine post oifname "wan0" snat to ${POOL}`;
const dnat = (to: string): string =>
  `add rule ip mine pre ip daddr ${nodeWan} meta l4proto { tcp, udp } th dport ${PUBLIC} dnat to ${to}:${PORT}`;
const outwards = only(client, [server, PORT]);
const inwards = only(server, [client, PORT]);

let node: NatNode;
/** The source port of the flows of one test. */
let port = 5_000;
beforeAll(async () => {
  node = await NatNode.create('nat-changes');
  // An upstream router would send packets for the pool to the node, which has a route for it too.
  await node.topology.node.must('ip', 'route', 'add', `${POOL}/32`, 'via', client);
  await node.topology.node.must('ip', 'route', 'add', `${SERVICE}/32`, 'via', server);
});
beforeEach(async () => {
  port++;
  await node.begin(MASQUERADE, dnat(client));
});
afterAll(() => node?.remove());

describe('sources that the node translates to an address of another host', () => {
  const request = () => udp([client, port], [server, PORT]);
  const reply = () => udp([server, PORT], [POOL, port]);

  skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test(
    'replies to a source that the node translates to an address of another host are decided by the address of the client',
    async () => {
      await node.translate(TO_POOL, 'add rule ip mine raw ct zone set 7');
      const toPool = group([server], [rule({ id: 'pool', to: [POOL] })]);
      const out = group([client], [rule({ id: 'out', to: [server], ports: [String(PORT)] })]);
      node.police(compile(policy([out, toPool])));
      await node.passes('client', request(), 'server', `udp ${POOL}:${port} > ${server}:${PORT}`);
      await node.passes('server', reply(), 'client', `udp ${server}:${PORT} > ${client}:${port}`);
      node.enforce(compile(policy([toPool])));
      await node.isDropped('server', reply(), 'policy_deny');
    },
  );

  test('a packet from outside with the translated source address of a client is dropped as forged', async () => {
    await node.translate(TO_POOL);
    node.police(outwards);
    await node.passes('client', request(), 'server', `udp ${POOL}:${port} > ${server}:${PORT}`);
    await node.passes('server', reply(), 'client', `udp ${server}:${PORT} > ${client}:${port}`);
    await node.passes('server', reply(), 'client', `udp ${server}:${PORT} > ${client}:${port}`);
    await node.isDropped('server', udp([POOL, port], [server, PORT]), 'spoofed_source');
  });
});

skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test(
  'a new connection is decided by its own translation, although the ingress hook still knows an older translation',
  async () => {
    node.police(inwards);
    const request = udp([server, port], [nodeWan, PUBLIC]);
    for (let count = 0; count < 3; count++) {
      await node.passes('server', request, 'client', `udp ${server}:${port} > ${client}:${PORT}`);
    }
    await node.translate(dnat(clientOther));
    flushConntrack();
    await node.isDropped('server', request, 'policy_deny');
  },
);

skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test(
  'a fragmented datagram to a service address that the node translates reaches the server',
  async () => {
    await node.translate(MASQUERADE, `add rule ip mine pre ip daddr ${SERVICE} udp dport 80 dnat to ${server}:${PORT}`);
    node.police(outwards, { translated: [{ address: parseIpv4Address('10.99.0.0') ?? 0, length: 16 }] });
    const whole = udp([client, port], [SERVICE, 80]);
    const texts = [`udp ${nodeWan}:${port} > ${server}:${PORT} fragment`, `${nodeWan} > ${server} later fragment`];
    await node.passes('client', parts(whole, port), 'server', ...texts);
  },
);

skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test(
  'a connection that the forward judge (netfilter program) of the earlier build has opened at the end of an upgrade continues',
  async () => {
    node.police(inwards);
    claimOtherLayout(node.topology.pinPath);
    node.open({ flowCapacity: 2_048 });
    const original: (this: StateMigration) => void = Reflect.get(StateMigration.prototype, 'migrateEntries');
    const migrate = vi.spyOn(StateMigration.prototype, 'migrateEntries').mockImplementation(function (
      this: StateMigration,
    ) {
      original.call(this);
      node.send('server', tcp([server, port], [nodeWan, PUBLIC], TCP.syn));
      const until = performance.now() + 3_000;
      let received: string[] = [];
      while (received.length === 0 && performance.now() < until) received = node.received('client');
      expect(received).toEqual([`tcp ${server}:${port} > ${client}:${PORT} syn`]);
    });
    node.enforce(inwards);
    expect(migrate).toHaveBeenCalledTimes(1);
    migrate.mockRestore();
    const answer = tcp([client, PORT], [server, port], TCP.syn | TCP.ack);
    await node.passes('client', answer, 'server', `tcp ${nodeWan}:${PUBLIC} > ${server}:${port} syn+ack`);
  },
);

skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).describe('the guard', () => {
  const refusedJudge = compileRefusedJudge();
  afterAll(() => refusedJudge.remove());
  const incoming = () => udp([server, port], [nodeWan, PUBLIC]);
  const outgoing = () => udp([client, port], [server, PORT]);

  test('the guard (nftables rules of Weir) drops packets that only the forward judge (netfilter program) can decide, while a process with another mark mask starts', async () => {
    node.police(denyAll);
    await node.isDropped('server', incoming(), 'policy_deny');
    claimOtherLayout(node.topology.pinPath);
    node.open({ markMask: 0x0f00_0000 });
    await node.isDropped('server', incoming(), 'guard');
    node.enforce(inwards);
    await node.passes('server', incoming(), 'client', `udp ${server}:${port} > ${client}:${PORT}`);
  });

  test('the guard (nftables rules of Weir) drops packets that only the forward judge (netfilter program) can decide, if the kernel refuses this program', async () => {
    await node.topology.node.must('nft', 'delete table ip mine');
    node.police(outwards, { objectPath: refusedJudge.path });
    await node.passes('client', outgoing(), 'server', `udp ${client}:${port} > ${server}:${PORT}`);
    await node.translate(dnat(client));
    node.datapath.look();
    expect(node.datapath.review().faults.join()).toMatch(/the kernel refuses the forward judge: load .*EACCES/);
    node.enforce(allowAll);
    await node.isDropped('server', incoming(), 'guard');
    node.datapath.attach();
    await node.isDropped('server', incoming(), 'guard');
  });

  test('the guard (nftables rules of Weir) leaves packets to the forward judge (netfilter program) in force, if the kernel refuses this program of an upgrade', async () => {
    const passes = () => node.passes('server', incoming(), 'client', `udp ${server}:${port} > ${client}:${PORT}`);
    node.police(inwards);
    claimOtherLayout(node.topology.pinPath);
    expect(() => node.open({ objectPath: refusedJudge.path })).toThrow(/^load .*EACCES/);
    await passes();
    expect(() => node.enforce(denyAll)).toThrow(/^load .*EACCES/);
    port++;
    await passes();
  });

  test('the guard (nftables rules of Weir) drops IPv6 packets whose mark sends them to the forward judge (netfilter program)', async () => {
    await addIpv6(node.topology);
    node.police(allowAll);
    for (const name of readdirSync(new Pins(node.topology.pinPath).links)) {
      if (!name.startsWith('forward')) rmSync(join(new Pins(node.topology.pinPath).links, name));
    }
    await hooksGone(node.topology.node.name);
    const pending = `0x${PRIORITY.pending.toString(16)}`;
    await node.topology.node.must(
      'nft',
      `add table netdev wan
add chain netdev wan in { type filter hook ingress device "lan0" priority 0; }
add rule netdev wan in meta protocol ip6 meta priority set ${pending}`,
    );
    const frame = new Uint8Array(MAX_FRAME);
    const address = (net: number): number[] => [0xfd, 0x77, 0, net, ...new Array<number>(11).fill(0), 2];
    const [source, destination] = [address(1), address(2)];
    const length = writeIpv6Frame(frame, { nextHeader: 17, source, destination });
    const dropped = () => node.datapath.stats().drops.guard?.packets ?? 0n;
    const before = dropped();
    node.wires.server.seen();
    node.wires.client.send(frame.subarray(0, length));
    await expect.poll(dropped, { interval: 5 }).toBe(before + 1n);
    await node.topology.node.must('nft', 'delete table netdev wan');
    node.detach();
  });
});

skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test(
  'a detached link of the forward judge (netfilter program) is reported like a loss of the nftables rules of Weir, and `attach` creates another link',
  async () => {
    node.police(denyAll);
    const { links } = new Pins(node.topology.pinPath);
    const judges = (): string[] => readdirSync(links).filter((name) => name.startsWith('forward'));
    const link = openPinned(join(links, judges()[0] ?? ''));
    detachLink(link);
    closeFd(link);
    expect(judges()).toHaveLength(1);
    expect(node.datapath.look()).toContainEqual({ type: 'guard_lost' });
    node.datapath.attach();
    expect(judges()).toHaveLength(1);
    await node.isDropped('server', udp([server, port], [nodeWan, PUBLIC]), 'policy_deny');
  },
);
