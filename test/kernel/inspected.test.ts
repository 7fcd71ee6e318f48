import type { Server } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import type { Datapath } from '#contracts/datapath/datapath.js';
import { openDatapath } from '#dataplane/thread/datapath-thread.js';
import { compile } from '#policy/compile/compile.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { ProgressClock } from '#test/progress-clock.js';
import { datapathOptions } from './datapath-options.js';
import { LISTEN, openPlane, PEER_SERVER, peerClient } from './plane.js';
import { topologyOfFile } from './topology-of-file.js';

const client = (port: number): string => peerClient([ADDRESSES.client, port], [ADDRESSES.server, 443]);

const topology = topologyOfFile('inspect');
let datapath: Datapath;
let server: Server;

beforeAll(async () => {
  datapath = openDatapath(datapathOptions(topology.pinPath, { servicePlane: LISTEN }));
  await datapath.open();
  await datapath.attach();
  const listening = topology.server.start('/usr/bin/python3', ['-u', '-c', PEER_SERVER]);
  await new Promise((resolve) => listening.stdout?.once('data', resolve));
  server = await openPlane();
  await put('enforce');
});
afterAll(async () => {
  server?.close();
  await datapath?.close();
});

async function put(mode: 'enforce' | 'audit'): Promise<void> {
  const tls = rule({ protocol: 6, mode, tls: { mode: 'metadata' } });
  await datapath.stage(compile(policy([group(['0.0.0.0/0'], [tls])])), 1);
  await datapath.flip();
}

const dial = async (port: number): Promise<string> =>
  (await topology.client.run('/usr/bin/python3', '-c', client(port))).stdout.trim();

test("an inspected connection passes through sockets of the node, and both peers see each other's address and port", async () => {
  expect(await dial(41_000)).toBe(`${ADDRESSES.client}:41000 hello`);
  expect((await datapath.stats()).activeFlows).toBe(0);
});

test('a client can connect again from the same port within 900 ms after the node closed the inspected connection first', async () => {
  for (let round = 0; round < 5; round++) {
    const clock = new ProgressClock();
    expect(await dial(41_001)).toMatch(new RegExp(`^${ADDRESSES.client}:\\d+ hello$`));
    expect(clock.ms()).toBeLessThan(900);
    const { stdout } = await topology.node.run('ss', '-tan', 'state', 'time-wait');
    expect(stdout).toContain(`${ADDRESSES.client}:41001`);
  }
});

test('with SYN cookies, the ACK of an inspected connection reaches the listener of the service plane', async () => {
  const cookies = (value: number): Promise<string> =>
    topology.node.must('sysctl', '-q', '-w', `net.ipv4.tcp_syncookies=${value}`);
  await cookies(2);
  try {
    expect(await dial(41_010)).toMatch(/ hello$/);
    const { stdout } = await topology.node.run('nstat', '-asz', 'TcpExtSyncookiesRecv');
    expect(stdout).toMatch(/TcpExtSyncookiesRecv +[1-9]/);
  } finally {
    await cookies(1);
  }
});

test('an inspected connection is dropped if the service plane does not listen, or passes uninspected if the rule is in audit mode', async () => {
  await new Promise<void>((resolve) => server.close(() => resolve()));
  expect(await dial(41_003)).toBe('');
  expect((await datapath.stats()).drops.service_plane_absent?.packets).toBeGreaterThan(0n);
  await put('audit');
  expect(await dial(41_004)).toBe(`${ADDRESSES.client}:41004 hello`);
});
