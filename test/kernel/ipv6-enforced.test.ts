import type { ChildProcess } from 'node:child_process';
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { parseAddress } from '#addresses/ip-address.js';
import { firstLine, program } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import type { Policy } from '#contracts/policy/policy-model.js';
import { IPV6_MAPS } from '#dataplane/object/loaded-object.js';
import { dataplaneStatus } from '#dataplane/status/dataplane-status.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { compile } from '#policy/compile/compile.js';
import { samplesOf } from '#policy/proof/proof-sample.js';
import { eventually } from '#test/eventually.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { datapathOptions } from './datapath-options.js';
import { addIpv6, IPV6 } from './ipv6.js';
import { topologyOfFile } from './topology-of-file.js';

const ALLOWED = 8_000;
const DENIED = 8_001;
const soon = { timeout: 10_000, interval: 20 };

const topology = topologyOfFile('v6enf');
const started: ChildProcess[] = [];
let datapath: LocalDatapath | undefined;

/** Runs a TCP echo server of both families on the server. */
async function serve(port: number): Promise<void> {
  const script = `require('net').createServer((s) => s.on('error', () => {}).pipe(s)).listen(${port}, '::', () => console.log('ready'))`;
  const child = topology.server.start(process.execPath, ['-e', script]);
  started.push(child);
  await firstLine(child);
}
beforeAll(async () => {
  await addIpv6(topology);
  await serve(ALLOWED);
  await serve(DENIED);
});
afterAll(() => {
  for (const child of started) child.kill('SIGKILL');
});
afterEach(() => {
  datapath?.close();
  datapath = undefined;
  detach(topology.pinPath);
});

/** Allows the client TCP to one port and ICMPv6; `more` further rules make the program larger. */
function judged(more = 0): Policy {
  const rules = [
    rule({ id: 'tcp', protocol: 6, ports: [`${ALLOWED}`] }),
    rule({ id: 'ping', protocol: 58, icmpTypes: [128] }),
    ...Array.from({ length: more }, (_, at) =>
      rule({ id: `f${at}`, to: [`198.18.${at >> 8}.${at & 255}`], protocol: 17, ports: [`${at + 1}`] }),
    ),
  ];
  const sources = [IPV6.client, ADDRESSES.client].map((text) => {
    const address = parseAddress(text) ?? 0;
    return { address, length: typeof address === 'number' ? 32 : 128 };
  });
  return policy([{ ...group([], rules), sources }]);
}

type Setting = DatapathOptions['ipv6'];
function open(ipv6: Setting, more: Partial<DatapathOptions> = {}): LocalDatapath {
  datapath?.close();
  datapath = new LocalDatapath(datapathOptions(topology.pinPath, { ipv6, ...more }));
  datapath.open();
  return datapath;
}
function putInForce(ipv6: Setting, of: Policy, generation = 1): void {
  const given = { ipv6: ipv6 === 'enforce' };
  datapath?.stage(compile(of, given), generation);
  datapath?.prove(samplesOf(of, given));
  datapath?.flip();
}
function start(ipv6: Setting, more: Partial<DatapathOptions> = {}): void {
  open(ipv6, more).attach();
  putInForce(ipv6, judged());
}

type Flow = { readonly lines: () => string[]; end(): void };

/** A TCP flow that sends a line every 20 ms. It ends in `silent` if the echo does not arrive. */
function flowTo(address: string, port = ALLOWED): Flow {
  const words = ['connect', address, `${port}`, '--every', '20', '--timeout', '4000'];
  const child = topology.client.start(process.execPath, [program('tour-traffic'), ...words]);
  started.push(child);
  let text = '';
  child.stdout?.on('data', (chunk) => (text += String(chunk)));
  return { lines: () => text.split('\n'), end: () => void child.kill('SIGKILL') };
}
async function continues(flow: Flow): Promise<void> {
  const before = flow.lines().length;
  await eventually(() => expect(flow.lines().length).toBeGreaterThan(before + 5), soon);
  expect(flow.lines().filter((line) => line.startsWith('silent') || line === 'closed')).toEqual([]);
}
async function connects(address: string, port: number): Promise<boolean> {
  const words = ['connect', address, `${port}`, '--timeout', '400'];
  const child = topology.client.start(process.execPath, [program('tour-traffic'), ...words]);
  const line = await firstLine(child);
  child.kill('SIGKILL');
  return line === 'open';
}
async function pings(from: 'client' | 'server', to: string): Promise<boolean> {
  const { code } = await topology[from].run('ping', '-6', '-n', '-c', '1', '-W', '0.5', to);
  return code === 0;
}

/** Counts connections over IPv6 that the policy denies, and that open nevertheless, until `end`. */
function attempts() {
  const script = `let open = 0, tried = 0; const net = require('net');
    const one = () => { tried++; const s = net.connect({ host: '${IPV6.server}', port: ${DENIED} });
      s.on('connect', () => { open++; s.destroy(); }); s.on('error', () => {}); setTimeout(() => s.destroy(), 300); };
    setInterval(one, 5); process.stdin.on('end', () => { console.log(JSON.stringify({ open, tried })); process.exit(0); }).resume();`;
  const child = topology.client.start(process.execPath, ['-e', script]);
  started.push(child);
  const line = firstLine(child);
  return async (): Promise<{ open: number; tried: number }> => {
    child.stdin?.end();
    return JSON.parse(await line) as { open: number; tried: number };
  };
}

test('with ipv6: enforce, the policy decides IPv6 packets, and a compiled policy comes into force only after it was tested with packets of both IP families (proof)', async () => {
  start('enforce');
  expect(await connects(IPV6.server, ALLOWED)).toBe(true);
  expect(await connects(IPV6.server, DENIED)).toBe(false);
  expect(await pings('client', IPV6.server)).toBe(true);
  expect(await pings('server', IPV6.client)).toBe(false);
  expect(await connects(ADDRESSES.server, ALLOWED)).toBe(true);
  datapath?.stage(compile(judged(), { ipv6: true }), 2);
  expect(() => datapath?.prove(samplesOf(judged()))).toThrow('2 families need a sample, and got 1');
  const maps = dataplaneStatus({ pinPath: topology.pinPath }).maps.map(({ name }) => name);
  expect(maps).toEqual(expect.arrayContaining(['flows', 'ipv6_programs', 'ipv6/flows', 'ipv6/sweep']));
});

test('with ipv6: enforce, a restart keeps the flows of both IP families, and the kernel enforces the policy for IPv6 while no process runs', async () => {
  start('enforce');
  const flows = [flowTo(IPV6.server), flowTo(ADDRESSES.server)];
  for (const flow of flows) await continues(flow);
  expect(readdirSync(join(topology.pinPath, 'maps-1/ipv6')).sort()).toEqual([...IPV6_MAPS].sort());
  const opened = attempts();
  datapath?.close();
  for (const flow of flows) await continues(flow);
  expect(await connects(IPV6.server, DENIED)).toBe(false);
  for (let times = 0; times < 2; times++) {
    open('enforce').attach();
    for (const flow of flows) await continues(flow);
    putInForce('enforce', judged(), 2);
    for (const flow of flows) await continues(flow);
  }
  const { open: leaked, tried } = await opened();
  expect([leaked, tried > 50]).toEqual([0, true]);
  expect(await connects(IPV6.server, ALLOWED)).toBe(true);
  for (const flow of flows) flow.end();
});

test('after a restart with ipv6: enforce and another one without it, the IPv4 flows continue, and no IPv6 packet that the policy denies passes at any time', async () => {
  start('drop');
  const ipv4 = flowTo(ADDRESSES.server);
  await continues(ipv4);
  const opened = attempts();
  for (let times = 0; times < 2; times++) {
    open('enforce').attach();
    await continues(ipv4);
    // The program in force has no tables of IPv6.
    expect(await connects(IPV6.server, ALLOWED)).toBe(false);
    putInForce('enforce', judged(), 2);
    expect(await connects(IPV6.server, ALLOWED)).toBe(true);
    const ipv6 = flowTo(IPV6.server);
    await continues(ipv6);

    open('drop').attach();
    await continues(ipv4);
    expect(existsSync(join(topology.pinPath, 'maps-1/ipv6'))).toBe(false);
    expect(await connects(IPV6.server, ALLOWED)).toBe(false);
    putInForce('drop', judged(), 3);
    await continues(ipv4);
    expect(await connects(IPV6.server, ALLOWED)).toBe(false);
    ipv6.end();
  }
  const { open: leaked, tried } = await opened();
  expect([leaked, tried > 50]).toEqual([0, true]);
  ipv4.end();
});

test('an upgrade from a build without IPv6 policies keeps the IPv4 flows, and no IPv6 packet that the policy denies passes at any time', async () => {
  start('drop');
  const ipv4 = flowTo(ADDRESSES.server);
  await continues(ipv4);
  // Such a build pins no map with programs of IPv6, so its set of maps is not used unchanged.
  rmSync(join(topology.pinPath, 'maps-1/ipv6_programs'));
  const opened = attempts();
  open('enforce').attach();
  await continues(ipv4);
  expect(await connects(IPV6.server, ALLOWED)).toBe(false);
  putInForce('enforce', judged(), 2);
  await continues(ipv4);
  expect(readdirSync(topology.pinPath).filter((name) => name.startsWith('maps-'))).toEqual(['maps-2']);
  expect(await connects(IPV6.server, ALLOWED)).toBe(true);
  const { open: leaked, tried } = await opened();
  expect([leaked, tried > 50]).toEqual([0, true]);
  ipv4.end();
});

test.each<[string, Setting, Partial<DatapathOptions>]>([
  ['from ipv6: pass', 'pass', {}],
  ['with another size of the flow tables', 'enforce', { flowCapacity: 2_048 }],
])(
  'a restart %s keeps an open IPv6 connection that the policy allows, by the pickup period',
  async (_, before, after) => {
    start(before, { pickupMs: 60_000 });
    const flows = [flowTo(IPV6.server), flowTo(ADDRESSES.server)];
    for (const flow of flows) await continues(flow);
    const opened = before === 'pass' ? null : attempts();
    open('enforce', { pickupMs: 60_000, ...after }).attach();
    putInForce('enforce', judged(), 2);
    for (const flow of flows) await continues(flow);
    if (opened !== null) expect((await opened()).open).toBe(0);
    expect(await connects(IPV6.server, DENIED)).toBe(false);
    for (const flow of flows) flow.end();
  },
);

test('with ipv6: enforce, the flows of both IP families continue when a larger policy requires larger BPF maps', async () => {
  start('enforce', { programCapacity: 65_536 });
  const flows = [flowTo(IPV6.server), flowTo(ADDRESSES.server)];
  for (const flow of flows) await continues(flow);
  const opened = attempts();
  putInForce('enforce', judged(20_000), 2);
  expect(existsSync(join(topology.pinPath, 'maps-2/ipv6/flows'))).toBe(true);
  for (const flow of flows) await continues(flow);
  expect((await opened()).open).toBe(0);
  open('enforce', { programCapacity: 65_536 }).attach();
  for (const flow of flows) await continues(flow);
  for (const flow of flows) flow.end();
});
