import type { Server } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EVERY_ADDRESS } from '#addresses/ip-address.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import type { Datapath } from '#contracts/datapath/datapath.js';
import { openDatapath } from '#dataplane/thread/datapath-thread.js';
import { compile } from '#policy/compile/compile.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { ProgressClock } from '#test/progress-clock.js';
import { datapathOptions } from './datapath-options.js';
import { addIpv6, IPV6 } from './ipv6.js';
import { LISTEN, openPlane, PEER_SERVER, peerClient } from './plane.js';
import { topologyOfFile } from './topology-of-file.js';

const topology = topologyOfFile('inspect');
let datapath: Datapath;

beforeAll(async () => {
  await addIpv6(topology);
  datapath = openDatapath(datapathOptions(topology.pinPath, { servicePlane: LISTEN, ipv6: 'enforce' }));
  await datapath.open();
  await datapath.attach();
  const listening = topology.server.start('/usr/bin/python3', ['-u', '-c', PEER_SERVER]);
  await new Promise((resolve) => listening.stdout?.once('data', resolve));
});
afterAll(() => datapath?.close());

async function put(mode: 'enforce' | 'audit'): Promise<void> {
  const tls = rule({ protocol: 6, mode, tls: { mode: 'metadata' } });
  const sources = [...EVERY_ADDRESS.ipv4, ...EVERY_ADDRESS.ipv6];
  await datapath.stage(compile(policy([{ ...group([], [tls]), sources }]), { ipv6: true }), 1);
  await datapath.flip();
}

describe.each([
  ['ipv4', ADDRESSES.client, ADDRESSES.server],
  ['ipv6', IPV6.client, IPV6.server],
] as const)('%s', (family, client, to) => {
  let server: Server;
  beforeAll(async () => {
    server = await openPlane(undefined, family);
    await put('enforce');
  });
  afterAll(() => {
    server?.close();
  });

  const dial = async (port: number): Promise<string> =>
    (await topology.client.run('/usr/bin/python3', '-c', peerClient([client, port], [to, 443]))).stdout.trim();

  test("an inspected connection passes through sockets of the node, and both peers see each other's address and port", async () => {
    const { activeFlows } = await datapath.stats();
    expect(await dial(41_000)).toBe(`${client}:41000 hello`);
    expect((await datapath.stats()).activeFlows).toBeLessThanOrEqual(activeFlows);
  });

  test('a client can connect again from the same port within 900 ms after the node closed the inspected connection first', async () => {
    for (let round = 0; round < 5; round++) {
      const clock = new ProgressClock();
      expect(await dial(41_001)).toMatch(new RegExp(`^${client}:\\d+ hello$`));
      expect(clock.ms()).toBeLessThan(900);
      const { stdout } = await topology.node.run('ss', '-tan', 'state', 'time-wait');
      expect(stdout).toContain(`${family === 'ipv6' ? `[${client}]` : client}:41001`);
    }
  });

  test('with SYN cookies, the ACK of an inspected connection reaches the listener of the service plane', async () => {
    const cookies = (value: number): Promise<string> =>
      topology.node.must('sysctl', '-q', '-w', `net.ipv4.tcp_syncookies=${value}`);
    const received = async (): Promise<number> => {
      const { stdout } = await topology.node.run('nstat', '-asz', 'TcpExtSyncookiesRecv');
      return Number(/TcpExtSyncookiesRecv +(\d+)/.exec(stdout)?.[1]);
    };
    const before = await received();
    await cookies(2);
    try {
      expect(await dial(41_010)).toMatch(/ hello$/);
      expect(await received()).toBeGreaterThan(before);
    } finally {
      await cookies(1);
    }
  });

  test('an inspected connection is dropped if the service plane does not listen, or passes uninspected if the rule is in audit mode', async () => {
    const dropped = async (): Promise<bigint> => (await datapath.stats()).drops.service_plane_absent?.packets ?? 0n;
    const before = await dropped();
    await new Promise<void>((resolve) => server.close(() => resolve()));
    expect(await dial(41_003)).toBe('');
    expect(await dropped()).toBeGreaterThan(before);
    await put('audit');
    expect(await dial(41_004)).toBe(`${client}:41004 hello`);
  });
});
