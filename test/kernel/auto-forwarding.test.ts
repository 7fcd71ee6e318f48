import { readFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { ADDRESSES, createTopology, type Topology } from '#cli/topology.js';
import type { Datapath, DatapathChange } from '#contracts/datapath.js';
import type { DatapathOptions } from '#contracts/datapath-options.js';
import { openDatapath } from '#dataplane/thread/datapath-thread.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { compile } from '#policy/compile/compile.js';
import { parseAddress } from '#policy/model/ipv4.js';
import { onlyFrom } from '#test/dataplane/conversation.js';
import { datapathOptions } from './datapath-options.js';
import { enterNamespace } from './namespace.js';

const PORT = 4_000;
const HEARD_MS = 1_000;
const DIRECT_FOR_MS = 3_000;
const policy = compile(onlyFrom(parseAddress(ADDRESSES.client) ?? 0));
const MASQUERADE = `add table ip mine
add chain ip mine post { type nat hook postrouting priority 100; }
add rule ip mine post oifname "wan0" masquerade
`;

let topology: Topology;
let leave: () => void;
let close: (() => void | Promise<void>) | undefined;
let endFlow: (() => void) | undefined;
beforeAll(async () => {
  topology = await createTopology('auto');
  leave = enterNamespace(topology.node.name);
}, 60_000);
afterAll(async () => {
  leave();
  await topology.remove();
});
afterEach(async () => {
  endFlow?.();
  endFlow = undefined;
  await topology.node.run('nft', 'delete', 'table', 'ip', 'mine');
  await topology.node.must('ip', 'xfrm', 'policy', 'flush');
  await close?.();
  close = undefined;
  detach(topology.pinPath);
});

const options = (more: Partial<DatapathOptions> = {}): DatapathOptions =>
  datapathOptions(topology.pinPath, { forwarding: 'auto', ...more });

/** A datapath in this thread: only the test calls `look`. */
function local(more: Partial<DatapathOptions> = {}): LocalDatapath {
  const datapath = new LocalDatapath(options(more));
  close = () => datapath.close();
  datapath.open();
  datapath.attach();
  datapath.stage(policy, 1);
  datapath.flip();
  datapath.look();
  return datapath;
}

/** A datapath in its own thread, as a node runs it: receives notifications and looks by itself. */
async function threaded(): Promise<Datapath> {
  const datapath = openDatapath(options());
  close = () => datapath.close();
  await datapath.open();
  await datapath.attach();
  await datapath.stage(policy, 1);
  await datapath.flip();
  await expect.poll(async () => (await datapath.stats()).forwarding.way, { timeout: 5_000 }).toBe('direct');
  return datapath;
}

/** The number of packets that the node's stack has forwarded. */
function forwarded(): number {
  const [names = [], values = []] = readFileSync('/proc/thread-self/net/snmp', 'utf8')
    .split('\n')
    .filter((line) => line.startsWith('Ip:'))
    .map((line) => line.split(' '));
  return Number(values[names.indexOf('ForwDatagrams')]);
}

/** Whether an echo request and its reply are forwarded by the stack: both, or neither. */
async function goesByStack(): Promise<boolean> {
  const before = forwarded();
  const { stdout } = await topology.client.run('ping', '-n', '-c', '1', '-W', '2', ADDRESSES.server);
  expect(stdout).toContain('1 received');
  const count = forwarded() - before;
  expect([0, 2]).toContain(count);
  return count === 2;
}

/**
 * Starts a flow of datagrams with replies, or a new flow every `renewedMs` milliseconds. The server records
 * the sources that it sees, and the times of changes.
 */
async function begin(port: number, source: string = ADDRESSES.client, renewedMs = 0) {
  const serve = `
    const socket = require('node:dgram').createSocket('udp4');
    let last, count = 0;
    socket.on('message', (message, from) => {
      count++;
      if (from.address !== last) console.log(JSON.stringify({ from: from.address, at: Date.now() }));
      last = from.address;
      socket.send(message, from.port, from.address);
    });
    socket.bind(${port}, () => console.log('{}'));
  `;
  const ask = `
    let socket;
    const renew = () => {
      const fresh = require('node:dgram').createSocket('udp4');
      fresh.bind(0, '${source}', () => {
        socket?.close();
        socket = fresh;
      });
    };
    renew();
    if (${renewedMs} > 0) setInterval(renew, ${renewedMs});
    setInterval(() => socket?.send('x', ${port}, '${ADDRESSES.server}'), 2);
  `;
  const server = topology.server.start(process.execPath, ['-e', serve]);
  const seen: { readonly from?: string; readonly at?: number }[] = [];
  server.stdout?.setEncoding('utf8').on('data', (text: string) => {
    seen.push(
      ...text
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line)),
    );
  });
  await expect.poll(() => seen.length, { timeout: 10_000 }).toBeGreaterThan(0);
  const client = topology.client.start(process.execPath, ['-e', ask]);
  endFlow = () => {
    client.kill('SIGKILL');
    server.kill('SIGKILL');
  };
  return {
    sources: () => seen.flatMap(({ from }) => from ?? []),
    lastChange: () => seen.at(-1)?.at ?? 0,
  };
}

async function nft(text: string): Promise<void> {
  await topology.node.must('nft', text);
}

test('address translation takes effect as soon as its chain exists, and ends when the chain is deleted', async () => {
  const datapath = await threaded();
  const changes: DatapathChange[] = [];
  datapath.watch((change) => changes.push(change));
  // The kernel does not translate a flow that it tracked before the chain was added.
  const flow = await begin(PORT, ADDRESSES.client, 100);
  await expect.poll(() => flow.sources(), { timeout: 5_000 }).toEqual([ADDRESSES.client]);
  await expect.poll(async () => (await datapath.stats()).activeFlows).toBeGreaterThan(0);

  await nft(MASQUERADE);
  const added = Date.now();
  await expect.poll(() => flow.sources(), { timeout: 5_000 }).toEqual([ADDRESSES.client, ADDRESSES.nodeWan]);
  expect(flow.lastChange() - added).toBeLessThan(HEARD_MS);

  await nft('delete table ip mine');
  const removed = Date.now();
  await expect
    .poll(() => flow.sources(), { timeout: 5_000 })
    .toEqual([ADDRESSES.client, ADDRESSES.nodeWan, ADDRESSES.client]);
  expect(flow.lastChange() - removed).toBeLessThan(HEARD_MS);
  await expect.poll(async () => (await datapath.stats()).forwarding.way).toBe('direct');
  endFlow?.();
  expect([changes.at(0), changes.at(-1)]).toEqual([
    { type: 'forwarding_changed', way: 'stack', reason: 'nftables chain ip mine post' },
    { type: 'forwarding_changed', way: 'direct', reason: 'no third-party hook' },
  ]);
});

test('a change without a notification (an IPsec policy) is found by the look of each second', async () => {
  const datapath = await threaded();
  expect(await goesByStack()).toBe(false);
  const policyOf = ['src', '10.99.0.0/24', 'dst', '10.98.0.0/24', 'dir', 'fwd'];
  await topology.node.must('ip', 'xfrm', 'policy', 'add', ...policyOf, 'action', 'block');
  await expect
    .poll(async () => (await datapath.stats()).forwarding.reason, { timeout: DIRECT_FOR_MS })
    .toContain('IPsec');
  expect(await goesByStack()).toBe(true);
  await topology.node.must('ip', 'xfrm', 'policy', 'flush');
  await expect.poll(async () => (await datapath.stats()).forwarding.way, { timeout: DIRECT_FOR_MS }).toBe('direct');
  expect(await goesByStack()).toBe(false);
});

test('forwarding: auto · packets that an IPsec policy blocks are not forwarded', async () => {
  const datapath = local();
  expect(await goesByStack()).toBe(false);
  const forbidden = ['src', ADDRESSES.client, 'dst', ADDRESSES.server, 'dir', 'fwd', 'action', 'block'];
  await topology.node.must('ip', 'xfrm', 'policy', 'add', ...forbidden);
  datapath.look();
  const { stdout } = await topology.client.run('ping', '-n', '-c', '1', '-W', '0.5', ADDRESSES.server);
  await topology.node.must('ip', 'xfrm', 'policy', 'flush');
  expect(stdout).toContain('0 received');
});

test('forwarding: auto · packets go by the stack after three seconds without a look for third-party hooks', async () => {
  const datapath = local();
  expect(await goesByStack()).toBe(false);
  await expect.poll(goesByStack, { timeout: DIRECT_FOR_MS + 2_000, interval: 200 }).toBe(true);
  datapath.look();
  expect(await goesByStack()).toBe(false);
});

test('forwarding: auto · packets go by the stack after the node was stopped', async () => {
  const datapath = local();
  expect(await goesByStack()).toBe(false);
  datapath.close();
  expect(await goesByStack()).toBe(true);
});

test('forwarding: auto · a restarted node looks for third-party hooks before it forwards directly', async () => {
  local({ forwarding: 'direct' }).close();
  expect(await goesByStack()).toBe(false);
  await nft(MASQUERADE);
  const datapath = new LocalDatapath(options());
  close = () => datapath.close();
  expect(datapath.open().adopted).toBe(true);
  expect(datapath.stats().forwarding).toEqual({ way: 'stack', reason: 'nftables chain ip mine post' });
  await nft('delete table ip mine');
  expect(await goesByStack()).toBe(true);
  datapath.look();
  expect(await goesByStack()).toBe(false);
});

test('a restart with another setting of `forwarding` keeps the policy in force', async () => {
  for (const forwarding of ['stack', 'auto', 'direct', 'auto', 'stack'] as const) {
    const datapath = local({ forwarding });
    expect(await goesByStack()).toBe(forwarding === 'stack');
    datapath.close();
  }
});

test.each([
  ['stack', true],
  ['direct', false],
] as const)('forwarding: %s · stays as configured although a third-party chain exists', async (forwarding, byStack) => {
  const datapath = local({ forwarding });
  expect(await goesByStack()).toBe(byStack);
  await nft('add table ip mine; add chain ip mine some { type filter hook forward priority 10; }');
  datapath.look();
  expect(await goesByStack()).toBe(byStack);
  expect(datapath.stats().forwarding).toEqual({ way: forwarding, reason: 'as configured' });
});

test('while the way of forwarding changes, no denied packet passes and no allowed packet is lost', async () => {
  const datapath = local();
  const denied = await begin(PORT + 1, ADDRESSES.clientOther);
  const allowed = topology.client.start('ping', ['-n', '-i', '0.002', '-c', '1000', ADDRESSES.server]);
  let said = '';
  allowed.stdout?.setEncoding('utf8').on('data', (text: string) => {
    said += text;
  });
  const ways: string[] = [];
  while (!said.includes('transmitted')) {
    await nft('add table ip mine; add chain ip mine some { type filter hook forward priority 10; }');
    datapath.look();
    ways.push(datapath.stats().forwarding.way);
    await nft('delete table ip mine');
    datapath.look();
    ways.push(datapath.stats().forwarding.way);
  }
  expect(said).toContain('1000 received');
  expect(ways.length).toBeGreaterThan(8);
  expect(ways.filter((way, index) => way !== (index % 2 === 0 ? 'stack' : 'direct'))).toEqual([]);
  expect(denied.sources()).toEqual([]);
  expect(datapath.stats().drops.policy_deny?.packets).toBeGreaterThan(100n);
}, 30_000);
