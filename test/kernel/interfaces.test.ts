import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { System } from '#actors/system.js';
import { createSystem } from '#actors/system.js';
import { ADDRESSES, createTopology, type Topology } from '#cli/topology.js';
import type { Datapath, DatapathChange } from '#dataplane/datapath.js';
import { openDatapath } from '#dataplane/kernel/datapath-thread.js';
import { detach } from '#dataplane/kernel/detach.js';
import { DEFAULT_TIMEOUTS_MS } from '#dataplane/kernel/options.js';
import { networkNamespace } from '#dataplane/kernel/ownership.js';
import { openMemoryStore } from '#store/store.js';
import { threadHere } from '#test/actors/running-system.js';
import { enterNamespace } from './namespace.js';

const INTERFACES = ['lan*', 'wan0', 'dmz0'];

let topology: Topology;
let leave: () => void;
let datapath: Datapath;
let system: System;
let changes: DatapathChange[];

beforeAll(async () => {
  topology = await createTopology('if');
  leave = enterNamespace(topology.node.name);
}, 60_000);
afterAll(async () => {
  leave();
  await topology.remove();
});

/** A node that polls next to never: what it notices, it was told. */
async function start(fallback: 'allow' | 'deny'): Promise<void> {
  datapath = openDatapath({
    interfaces: INTERFACES,
    nonIpv4: 'drop',
    reversePath: 'strict',
    pickupMs: 0,
    flowCapacity: 1_024,
    flowShare: 1,
    timeoutsMs: DEFAULT_TIMEOUTS_MS,
    policeLocal: false,
    forwarding: 'direct',
    grantCapacity: 1_024,
    markMask: 0x00f0_0000,
    pinPath: topology.pinPath,
    programCapacity: 1_024,
    watchIntervalMs: 3_600_000,
  });
  changes = [];
  datapath.watch((change) => changes.push(change));
  system = createSystem({
    store: await openMemoryStore(),
    dataplane: { datapath, interfaces: INTERFACES },
    fallback,
    activationTimeoutMs: 5_000,
    dns: null,
    servicePlane: null,
    sections: { cluster: false },
    createThread: threadHere,
  });
  await expect.poll(running, { timeout: 10_000, interval: 10 }).toBe('enforcing');
}

const running = (): string | undefined => system.readiness().checks[0]?.state;
const config = (): { state: string | undefined; detail: string | undefined } => {
  const { state, detail } = system.readiness().checks[1] ?? {};
  return { state, detail };
};
const missing = (names: string) => ({ state: 'interface_missing', detail: `no interface has this name: ${names}` });
const soon = { timeout: 1_000, interval: 1 };

const ip = (...args: string[]): Promise<string> => topology.node.must('ip', ...args);
/** Its other end is the server's. */
const addPair = (name: string): Promise<string> =>
  ip('link', 'add', name, 'type', 'veth', 'peer', 'name', `p${name}`, 'netns', topology.server.name);
async function ifindexOf(name: string): Promise<string> {
  return (await ip('-o', 'link', 'show', 'dev', name)).split(':')[0] ?? '';
}
const linkFolder = (): string => `${topology.pinPath}/links-${networkNamespace()}`;
const isLinked = (ifindex: string): boolean => existsSync(`${linkFolder()}/${ifindex}-ingress`);
const links = (): number => readdirSync(linkFolder()).filter((name) => name.endsWith('-ingress')).length;
const comings = (): DatapathChange[] => changes.filter(({ type }) => type.startsWith('interface_'));

/** The interfaces that the guard stops; none where its table sleeps. */
async function guardedBy(): Promise<string[]> {
  const { stdout } = await topology.node.run('nft', 'list', 'table', 'inet', 'weir');
  return stdout.includes('dormant') ? [] : [...stdout.matchAll(/iifname "(.*?)"/g)].map(([, name]) => name ?? '');
}

async function reaches(): Promise<boolean> {
  const { code } = await topology.client.run('ping', '-n', '-c', '1', '-W', '1', ADDRESSES.server);
  return code === 0;
}

describe('interfaces that come and go under a running node', () => {
  beforeEach(() => start('allow'));
  afterEach(async () => {
    await system.shutdown();
    await datapath.close();
    detach(topology.pinPath);
  });

  test('an absent one is named, attached to when it appears, and named again when it vanishes', async () => {
    await expect.poll(config, soon).toEqual(missing('dmz0'));
    await addPair('dmz0');
    await expect.poll(() => config().state, soon).toBe('configured');
    expect(isLinked(await ifindexOf('dmz0'))).toBe(true);
    await ip('link', 'del', 'dmz0');
    await expect.poll(config, soon).toEqual(missing('dmz0'));
    expect(changes).toEqual([
      { type: 'interface_appeared', interface: 'dmz0' },
      { type: 'interface_vanished', interface: 'dmz0' },
    ]);
  });

  test('one that gets a policed name is policed; one that loses it is not, and readiness says what it is called', async () => {
    await addPair('spare');
    const ifindex = await ifindexOf('spare');
    await ip('link', 'set', 'spare', 'name', 'lan9');
    await expect.poll(() => isLinked(ifindex), soon).toBe(true);
    await ip('link', 'set', 'lan9', 'name', 'lan8');
    await expect.poll(() => comings().length, soon).toBe(3);
    await ip('link', 'set', 'lan8', 'name', 'dmz0');
    await expect.poll(() => config().state, soon).toBe('configured');
    expect(isLinked(ifindex)).toBe(true);
    await ip('link', 'set', 'dmz0', 'name', 'spare');
    await expect.poll(config, soon).toEqual(missing('dmz0 (is called spare now, and not policed)'));
    await expect.poll(() => isLinked(ifindex), soon).toBe(false);
    await ip('link', 'del', 'spare');
    expect(comings()).toEqual([
      { type: 'interface_appeared', interface: 'lan9' },
      { type: 'interface_renamed', interface: 'lan9', to: 'lan8', policed: true },
      { type: 'interface_appeared', interface: 'lan8' },
      { type: 'interface_renamed', interface: 'lan8', to: 'dmz0', policed: true },
      { type: 'interface_appeared', interface: 'dmz0' },
      { type: 'interface_renamed', interface: 'dmz0', to: 'spare', policed: false },
    ]);
  });

  test('one that moves to another network namespace is given up, and taken again when it comes back', async () => {
    await addPair('dmz0');
    await expect.poll(() => config().state, soon).toBe('configured');
    await ip('link', 'set', 'dmz0', 'netns', topology.server.name);
    await expect.poll(config, soon).toEqual(missing('dmz0'));
    await expect.poll(links, soon).toBe(2);
    await topology.server.must('ip', 'link', 'set', 'dmz0', 'netns', topology.node.name);
    await expect.poll(() => config().state, soon).toBe('configured');
    expect(isLinked(await ifindexOf('dmz0'))).toBe(true);
    await ip('link', 'del', 'dmz0');
    await expect.poll(config, soon).toEqual(missing('dmz0'));
  });

  test('many that appear at once are all attached to', async () => {
    const names = Array.from({ length: 20 }, (_, index) => `lan${100 + index}`);
    const all = (command: (name: string) => string) =>
      topology.node.must('sh', '-ec', `printf '${names.map((name) => `${command(name)}\\n`).join('')}' | ip -batch -`);
    await all((name) => `link add ${name} type veth peer name p${name} netns ${topology.server.name}`);
    await expect.poll(links, soon).toBe(22);
    await all((name) => `link del ${name}`);
    await expect.poll(links, soon).toBe(2);
  });

  test.each([
    ['deleted', ['delete', 'table', 'inet', 'weir']],
    ['flushed', ['flush', 'table', 'inet', 'weir']],
    ['put to sleep', ['add', 'table', 'inet', 'weir', '{ flags dormant; }']],
  ])('a guard that is %s is made again at once', async (_, command) => {
    await topology.node.must('nft', ...command);
    await expect.poll(() => changes, soon).toEqual([{ type: 'guard_lost' }]);
    await expect.poll(guardedBy, soon).toEqual(INTERFACES);
    expect(await reaches()).toBe(true);
  });
});

test('fifty interfaces re-created under load let no packet through without a verdict', async () => {
  await start('deny');
  const { node, client, server } = topology;
  await server.must('nft', 'add table inet seen; add chain inet seen in { type filter hook prerouting priority 0; }');
  await server.must('nft', 'add', 'rule', 'inet', 'seen', 'in', 'udp', 'dport', '9', 'counter', 'drop');
  // The client's side of the link stays, so that it sends from the moment that the interface is there.
  const mac = '02:00:00:00:01:01';
  await client.must(
    'sh',
    '-ec',
    `ip link del eth0; ip link add br0 type bridge; ip link set br0 up; ip addr add ${ADDRESSES.client}/24 dev br0;
     ip route add default via ${ADDRESSES.nodeLan};
     ip neigh add ${ADDRESSES.nodeLan} lladdr ${mac} dev br0 nud permanent`,
  );
  const sender = client.start(process.execPath, ['-e', SENDER]);
  const waits: number[] = [];
  try {
    await once(sender.stdout ?? sender, 'data');
    for (let round = 0; round < 50; round++) {
      const stopped = stoppedByGuard();
      const create = `ip link add lan0 up address ${mac} type veth peer name port0 netns ${client.name};
        ip addr add ${ADDRESSES.nodeLan}/24 dev lan0;
        ip -n ${client.name} link set port0 up master br0`;
      execFileSync('sh', ['-ec', create]);
      // Every fifth time this thread, which is to attach, is held up until packets have come in.
      const deadline = performance.now() + 2_000;
      while (round % 5 === 0 && stoppedByGuard() === stopped && performance.now() < deadline);
      if (round % 5 === 0) expect(stoppedByGuard()).toBeGreaterThan(stopped);
      const from = performance.now();
      const ifindex = await ifindexOf('lan0');
      await expect.poll(() => isLinked(ifindex), soon).toBe(true);
      waits.push(performance.now() - from);
      await node.must('ip', 'link', 'del', 'lan0');
      await expect.poll(config, soon).toEqual(missing('lan*, dmz0'));
    }
    const counted = await server.must('nft', 'list', 'chain', 'inet', 'seen', 'in');
    expect(counted).toContain('counter packets 0 bytes 0');
    const { drops } = await datapath.stats();
    expect(Number(drops.policy_deny?.packets)).toBeGreaterThan(1_000);
    expect(Math.max(...waits)).toBeLessThan(1_000);
  } finally {
    sender.kill('SIGKILL');
    await server.must('nft', 'delete', 'table', 'inet', 'seen');
    await system.shutdown();
    await datapath.close();
    detach(topology.pinPath);
  }
});

/** Packets, by the kernel's own count. */
function stoppedByGuard(): number {
  const counter = execFileSync('nft', ['list', 'counter', 'inet', 'weir', 'dropped'], { encoding: 'utf8' });
  return Number(/packets (\d+)/.exec(counter)?.[1]);
}

/** Sends as fast as the link takes it, and goes on where there is none. */
const SENDER = `
  const socket = require('node:dgram').createSocket('udp4');
  const payload = Buffer.alloc(64);
  console.log('sending');
  const round = () => {
    let open = 32;
    for (let i = 0; i < 32; i++) socket.send(payload, 9, '${ADDRESSES.server}', () => { if (--open === 0) setImmediate(round); });
  };
  round();
`;
