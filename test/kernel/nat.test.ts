import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { formatAddress, parseIpv4Address } from '#addresses/ip-address.js';
import { firstLine, program } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import type { Program } from '#contracts/policy/program.js';
import { natBit } from '#dataplane/abi/settings.js';
import { Pins } from '#dataplane/attach/pins.js';
import { anyFlow } from '#dataplane/flows/listing/flow-filter.js';
import { hasNetfilterPrograms } from '#dataplane/loader/kernel-functions.js';
import { dataplaneStatus } from '#dataplane/status/dataplane-status.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { compile } from '#policy/compile/compile.js';
import { selfSigned } from '#service-plane/ca/signed-certificate.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { flushConntrack } from './conntrack.js';
import { datapathOptions } from './datapath-options.js';
import { ALLOWED, allowAll, DENIED, denyAll } from './policies.js';
import { topologyOfFile } from './topology-of-file.js';

/** The port of the node at which it forwards to port ALLOWED of the client. */
const PUBLIC = 9_000;
const MARK_MASK = 0x00f0_0000;
/** An address that no host has. The node forwards its port 80 to port ALLOWED of the server. */
const SERVICE = '10.99.0.1';
const MASQUERADE = `add rule ip mine post oifname "wan0" masquerade
add rule ip mine post iifname "lan0" oifname "lan0" masquerade`;
const CHAINS = `add table ip mine
delete table ip mine
add table ip mine
add chain ip mine raw { type filter hook prerouting priority -300; }
add chain ip mine pre { type nat hook prerouting priority -100; }
add chain ip mine post { type nat hook postrouting priority 100; }
add chain ip mine after { type filter hook forward priority 0; }
add counter ip mine left
add rule ip mine after meta mark & 0x00f00000 == ${natBit(MARK_MASK)} counter name left`;
const DNAT = `add rule ip mine pre ip daddr ${ADDRESSES.nodeWan} meta l4proto { tcp, udp } th dport ${PUBLIC} dnat to ${ADDRESSES.client}:${ALLOWED}
add rule ip mine pre ip daddr ${SERVICE} meta l4proto { tcp, udp } th dport 80 dnat to ${ADDRESSES.server}:${ALLOWED}`;

const topology = topologyOfFile('nat');
let datapath: LocalDatapath;
beforeAll(async () => {
  const { client, server, node } = topology;
  // The server has no route to the client: it can reply only to an address of the node.
  await server.must('ip', 'route', 'del', 'default');
  await node.must('ip', 'route', 'add', '10.99.0.0/16', 'via', ADDRESSES.server);
  const serve = [program('tour-traffic'), 'serve', String(ALLOWED), String(DENIED)];
  for (const host of [client, server]) await firstLine(host.start(process.execPath, serve));
});
beforeEach(() => translate(MASQUERADE, DNAT));
afterEach(() => {
  datapath.close();
  detach(topology.pinPath);
  flushConntrack();
});

async function translate(...rules: readonly string[]): Promise<void> {
  await topology.node.must('nft', [CHAINS, ...rules].join('\n'));
}

function police(policed: Program, more: Partial<DatapathOptions> = {}): void {
  open(more);
  enforce(policed, 1);
}

function open(more: Partial<DatapathOptions>): void {
  const options = { interfaces: ['lan0', 'wan0'], forwarding: 'auto', pickupMs: 60_000, ...more } as const;
  datapath = new LocalDatapath(datapathOptions(topology.pinPath, options));
  datapath.open();
  datapath.attach();
}

function enforce(policed: Program, generation: number): void {
  datapath.stage(policed, generation);
  datapath.flip();
}

type Host = 'client' | 'server';
type How = 'connect' | 'datagram';
const HOWS: readonly How[] = ['connect', 'datagram'];
/** Sends one message to an echo server, by TCP or UDP. Returns the lines that `tour-traffic` prints. */
async function ask(timeoutMs: number, from: Host, how: How, to: string, port: number, ...more: string[]) {
  const args = [program('tour-traffic'), how, to, String(port), '--timeout', String(timeoutMs), ...more];
  const { stdout } = await topology[from].run(process.execPath, ...args);
  return stdout.trim().split('\n');
}

type Asked = [from: Host, how: How, to: string, port: number, ...more: string[]];
async function passes(...asked: Asked): Promise<void> {
  expect(await ask(900, ...asked)).toContain('pong 1');
}
async function isDropped(...asked: Asked): Promise<void> {
  const lines = await ask(400, ...asked);
  expect([['refused ETIMEDOUT'], ['silent 1']]).toContainEqual(lines);
}

async function pings(...more: string[]): Promise<number> {
  const asked = ['-n', '-c', '2', '-i', '0.2', '-W', '1', ...more, ADDRESSES.server];
  const { stdout } = await topology.client.run('ping', ...asked);
  return Number(/(\d+) received/.exec(stdout)?.[1]);
}

/** Returns a policy that lets one source open connections to these addresses and ports only. */
const only = (source: string, ...to: readonly (readonly [string, number])[]): Program =>
  compile(
    policy([
      group(
        [source],
        to.map(([address, port], index) => rule({ id: `r${index}`, to: [address], ports: [String(port)] })),
      ),
    ]),
  );
const outwards = only(ADDRESSES.client, [ADDRESSES.server, ALLOWED]);

/** Returns how many forwarded packets the ingress hook has left to the forward judge (netfilter program). */
async function leftToJudge(): Promise<number> {
  const text = await topology.node.must('nft', 'list counter ip mine left');
  return Number(/packets (\d+)/.exec(text)?.[1]);
}

describe('behind masquerade, with both interfaces policed', () => {
  test('behind masquerade, the policy decides packets by the address of the client, and replies pass by TCP and UDP', async () => {
    police(outwards);
    expect(datapath.review().faults).toEqual(hasNetfilterPrograms() ? [] : [expect.stringContaining('Linux 6.4')]);
    for (const how of HOWS) {
      await passes('client', how, ADDRESSES.server, ALLOWED);
      await isDropped('client', how, ADDRESSES.server, DENIED);
      await isDropped('client', how, ADDRESSES.server, ALLOWED, '--source', ADDRESSES.clientOther);
    }
    // The ingress hook has found the flow of each reply itself.
    expect(await leftToJudge()).toBe(0);
  });

  test('behind masquerade, the list of flows has the address of the client', async () => {
    police(outwards);
    await passes('client', 'datagram', ADDRESSES.server, ALLOWED);
    const { items } = await datapath.flows({ filter: anyFlow(), after: null, limit: 10 });
    expect(
      items.map(({ source, destination, ports, packets }) => ({
        ends: [source, destination].map(formatAddress),
        port: ports?.[1],
        packets,
      })),
    ).toEqual([{ ends: [ADDRESSES.client, ADDRESSES.server], port: ALLOWED, packets: [1n, 1n] }]);
  });

  test('behind masquerade, 100 of 100 TLS connections pass beside 100 plain connections', async () => {
    police(only(ADDRESSES.client, [ADDRESSES.server, ALLOWED], [ADDRESSES.server, 8_443]));
    const serve = `require('node:tls').createServer(${JSON.stringify(selfSigned('server'))}, (s) => s.pipe(s))
      .listen(8443, '0.0.0.0', () => console.log('ready'))`;
    const server = topology.server.start(process.execPath, ['-e', serve]);
    await firstLine(server);
    const connect = `const open = (kind, port) => new Promise((resolve) => {
        const socket = require(kind).connect({ host: '${ADDRESSES.server}', port, rejectUnauthorized: false });
        socket.once('error', () => resolve(false));
        socket.once('data', () => { socket.destroy(); resolve(true); });
        socket.write('x');
      });
      const count = async (kind, port) =>
        (await Promise.all(Array.from({ length: 100 }, () => open(kind, port)))).filter(Boolean).length;
      Promise.all([count('node:tls', 8443), count('node:net', ${ALLOWED})]).then((counts) => console.log(...counts))`;
    expect((await topology.client.run(process.execPath, '-e', connect)).stdout).toBe('100 100\n');
    server.kill();
  });

  test('behind masquerade, two clients with the same source port have two flows', async () => {
    police(allowAll);
    const port = ['--source-port', '41000'];
    const words = ['connect-udp', ADDRESSES.server, String(ALLOWED), '--every', '20', '--source', ADDRESSES.client];
    const stream = topology.client.start(process.execPath, [program('tour-traffic'), ...words, ...port]);
    expect(await firstLine(stream)).toBe('pong 1');
    for (const how of HOWS) {
      await passes('client', how, ADDRESSES.server, ALLOWED, ...port, '--source', ADDRESSES.clientOther);
    }
    stream.kill();
  });

  skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test(
    'behind masquerade, ping passes according to the policy, in whole and in fragments',
    async () => {
      police(allowAll);
      expect(await pings()).toBe(2);
      expect(await pings('-s', '3000')).toBe(2);
      enforce(outwards, 2);
      expect(await pings()).toBe(0);
    },
  );

  test('behind masquerade, a policy change cuts a flow at the next packet from either side', async () => {
    police(outwards);
    // The server sends a datagram every 5 ms, from the first datagram of the client on.
    const push = `const s = require('node:dgram').createSocket('udp4');
      s.on('message', (_, from) => setInterval(() => s.send('x', from.port, from.address), 5));
      s.bind(7000, () => console.log('ready'))`;
    const listen = `const s = require('node:dgram').createSocket('udp4');
      let count = 0;
      s.on('message', () => count++);
      s.send('x', 7000, '${ADDRESSES.server}');
      process.stdin.on('data', () => console.log(count))`;
    enforce(only(ADDRESSES.client, [ADDRESSES.server, 7_000]), 2);
    const server = topology.server.start(process.execPath, ['-e', push]);
    await firstLine(server);
    const client = topology.client.start(process.execPath, ['-e', listen]);
    const received = async (): Promise<number> => {
      client.stdin?.write('?\n');
      return Number(await firstLine(client));
    };
    await expect.poll(received).toBeGreaterThan(10);
    enforce(denyAll, 3);
    await new Promise((resolve) => setTimeout(resolve, 100));
    const last = await received();
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(await received()).toBe(last);
    client.kill();
    server.kill();
  });

  test('an unsolicited packet to a port of the node with a DNAT rule is not forwarded without an allow rule', async () => {
    police(only(ADDRESSES.client, [ADDRESSES.server, ALLOWED]));
    for (const how of HOWS) await isDropped('server', how, ADDRESSES.nodeWan, PUBLIC);
    if (hasNetfilterPrograms()) expect(datapath.stats().drops.policy_deny?.packets).toBeGreaterThan(0n);
  });

  skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test(
    'in a conntrack zone other than 0, the forward judge (netfilter program) finds masqueraded flows',
    async () => {
      await translate(MASQUERADE, 'add rule ip mine raw ct zone set 7');
      police(outwards);
      for (const how of HOWS) {
        await passes('client', how, ADDRESSES.server, ALLOWED);
        await isDropped('client', how, ADDRESSES.server, DENIED);
      }
      expect(await leftToJudge()).toBeGreaterThan(3);
    },
  );

  test('masqueraded flows continue after conntrack was flushed, and the policy still applies to them', async () => {
    police(outwards);
    const args = [program('tour-traffic'), 'connect', ADDRESSES.server, String(ALLOWED), '--every', '100'];
    const child = topology.client.start(process.execPath, args);
    const lines: string[] = [];
    child.stdout?.on('data', (data: Buffer) => lines.push(...data.toString().trim().split('\n')));
    const grows = async (): Promise<void> => {
      const before = lines.length;
      await expect.poll(() => lines.length).toBeGreaterThan(before + 5);
    };
    await grows();
    // Flush while no reply is under way: a reply without a conntrack entry resets the connection.
    await new Promise((resolve) => child.stdout?.once('data', resolve));
    flushConntrack();
    await grows();
    enforce(denyAll, 2);
    await new Promise((resolve) => setTimeout(resolve, 100));
    const last = lines.length;
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(lines.length).toBe(last);
    child.kill();
  });
});

skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).describe('DNAT with both interfaces policed', () => {
  test('with DNAT, the policy decides by the server after the translation', async () => {
    police(only(ADDRESSES.server, [ADDRESSES.client, ALLOWED]));
    for (const how of HOWS) await passes('server', how, ADDRESSES.nodeWan, PUBLIC);
    enforce(only(ADDRESSES.server, [ADDRESSES.nodeWan, PUBLIC]), 2);
    for (const how of HOWS) await isDropped('server', how, ADDRESSES.nodeWan, PUBLIC);
  });

  test('with DNAT, a client reaches a host of its own network through the public address of the node', async () => {
    police(only(ADDRESSES.clientOther, [ADDRESSES.client, ALLOWED]));
    const from = ['--source', ADDRESSES.clientOther];
    for (const how of HOWS) await passes('client', how, ADDRESSES.nodeWan, PUBLIC, ...from);
    enforce(denyAll, 2);
    for (const how of HOWS) await isDropped('client', how, ADDRESSES.nodeWan, PUBLIC, ...from);
  });

  test('with DNAT of an address beyond the node, the policy must allow the address before and the server after the translation', async () => {
    const real = [ADDRESSES.server, ALLOWED] as const;
    police(only(ADDRESSES.client, real, [SERVICE, 80]));
    for (const how of HOWS) await passes('client', how, SERVICE, 80);
    enforce(only(ADDRESSES.client, real), 2);
    for (const how of HOWS) await isDropped('client', how, SERVICE, 80);
    enforce(only(ADDRESSES.client, [SERVICE, 80]), 3);
    for (const how of HOWS) await isDropped('client', how, SERVICE, 80);
  });

  test('with DNAT of an address in dataplane.translated, the policy decides by the server alone', async () => {
    const translated = [{ address: parseIpv4Address('10.99.0.0') ?? 0, length: 16 }];
    police(only(ADDRESSES.client, [ADDRESSES.server, ALLOWED]), { translated });
    for (const how of HOWS) await passes('client', how, SERVICE, 80);
    enforce(only(ADDRESSES.client, [SERVICE, 80]), 2);
    for (const how of HOWS) await isDropped('client', how, SERVICE, 80);
    // An address in `dataplane.translated` without a NAT rule is treated like any other address.
    expect(await ask(400, 'client', 'connect', '10.99.0.2', 80)).toEqual(['refused ETIMEDOUT']);
  });

  test('with a redirect of the node to itself, packets to the node pass although the policy denies all packets', async () => {
    await translate(`add rule ip mine pre tcp dport ${PUBLIC} redirect to :${ALLOWED}`);
    police(denyAll);
    const serve = topology.node.start(process.execPath, [program('tour-traffic'), 'serve', String(ALLOWED)]);
    await firstLine(serve);
    await passes('client', 'connect', ADDRESSES.nodeLan, PUBLIC);
    serve.kill();
  });
});

skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).describe('the forward judge', () => {
  const judges = (): string[] => {
    const { links } = new Pins(topology.pinPath);
    return existsSync(links) ? readdirSync(links).filter((name) => name.startsWith('forward')) : [];
  };

  test('the forward judge (netfilter program) is attached while NAT rules exist', async () => {
    await topology.node.must('nft', 'delete table ip mine');
    police(outwards);
    expect(judges()).toEqual([]);
    await translate(MASQUERADE);
    datapath.look();
    expect(judges()).toEqual(['forward-1']);
    const configured = {
      interfaces: ['lan0', 'wan0'],
      markMask: MARK_MASK,
      reversePath: 'strict',
      policeLocal: false,
      ipv6: 'drop',
    } as const;
    expect(dataplaneStatus({ pinPath: topology.pinPath, configured })).toMatchObject({
      guardStands: true,
      forwarding: { way: 'stack', reason: 'nftables chain ip mine raw' },
    });
    await passes('client', 'datagram', ADDRESSES.server, ALLOWED);
    await topology.node.must('nft', 'delete table ip mine');
    datapath.look();
    expect(judges()).toEqual([]);
  });

  test('the forward judge (netfilter program) stays in force when the process ends, and a later process replaces it while flows continue', async () => {
    police(only(ADDRESSES.server, [ADDRESSES.client, ALLOWED]));
    const args = [program('tour-traffic'), 'connect', ADDRESSES.nodeWan, String(PUBLIC), '--every', '5'];
    const child = topology.server.start(process.execPath, args);
    const lines: string[] = [];
    child.stdout?.on('data', (data: Buffer) => lines.push(...data.toString().trim().split('\n')));
    await expect.poll(() => lines.length).toBeGreaterThan(5);
    datapath.close();
    await passes('server', 'datagram', ADDRESSES.nodeWan, PUBLIC);
    police(only(ADDRESSES.server, [ADDRESSES.client, ALLOWED]));
    expect(judges()).toEqual(['forward-2']);
    await passes('server', 'connect', ADDRESSES.nodeWan, PUBLIC);
    // With other map sizes, a new datapath starts and takes over the flows.
    datapath.close();
    open({ flowCapacity: 2_048, pickupMs: 0 });
    // The guard accepts only the mark of packets for the forward judge of the earlier datapath.
    const rules = (await topology.node.must('nft', 'list', 'chain', 'inet', 'weir', 'guard')).split('\n');
    expect(rules.filter((line) => line.includes('accept') && !/iifname|policy/.test(line))).toHaveLength(1);
    await passes('server', 'datagram', ADDRESSES.nodeWan, PUBLIC);
    enforce(only(ADDRESSES.server, [ADDRESSES.client, ALLOWED]), 1);
    expect(judges()).toEqual(['forward-1']);
    const before = lines.length;
    await expect.poll(() => lines.length).toBeGreaterThan(before + 5);
    expect(lines.filter((line) => !/^(open|pong \d+)$/.test(line))).toEqual([]);
    enforce(denyAll, 3);
    await isDropped('server', 'datagram', ADDRESSES.nodeWan, PUBLIC);
    child.kill();
  });

  test('a removed pin of the forward judge (netfilter program) is reported like a loss of the nftables rules of Weir, and `attach` restores the pin', () => {
    police(outwards);
    const [name = ''] = judges();
    new Pins(topology.pinPath).remove(join(new Pins(topology.pinPath).links, name));
    expect(datapath.look()).toContainEqual({ type: 'guard_lost' });
    datapath.attach();
    expect(judges()).toEqual(['forward-1']);
  });

  test('`detach` removes the forward judge (netfilter program), and all packets pass', async () => {
    police(denyAll);
    await isDropped('server', 'datagram', ADDRESSES.nodeWan, PUBLIC);
    datapath.close();
    detach(topology.pinPath);
    expect(judges()).toEqual([]);
    for (const how of HOWS) await passes('server', how, ADDRESSES.nodeWan, PUBLIC);
  });
});
