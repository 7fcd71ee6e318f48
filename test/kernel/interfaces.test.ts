import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createSystem } from '#actors/system.js';
import type { System } from '#actors/system-contract.js';
import { ADDRESSES, type Topology } from '#cli/tour/topology.js';
import type { Datapath, DatapathChange } from '#contracts/datapath/datapath.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import { networkNamespace } from '#dataplane/attach/ownership.js';
import { openDatapath } from '#dataplane/thread/datapath-thread.js';
import { detach } from '#dataplane/thread/detach.js';
import { threadHere } from '#test/actors/running-system.js';
import { eventually } from '#test/eventually.js';
import { ProgressClock } from '#test/progress-clock.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { openMemoryStore } from '#test/store/memory-store.js';
import { datapathOptions } from './datapath-options.js';
import { HAS_VLANS, HAS_VRFS } from './link-types.js';
import { STATION, SWITCHED_FRAMES } from './switched-frames.js';
import { topologyOfFile } from './topology-of-file.js';
import { Wire } from './wire.js';

const INTERFACES = ['lan*', 'wan0', 'dmz0'];

const topology = topologyOfFile('if');
let datapath: Datapath;
let system: System;
let changes: DatapathChange[];

/** Starts a node that polls once an hour, so that the node finds changes only by kernel notifications. */
async function start(fallback: 'allow' | 'deny', more: Partial<DatapathOptions> = {}): Promise<void> {
  datapath = openDatapath(
    datapathOptions(topology.pinPath, {
      interfaces: INTERFACES,
      forwarding: 'direct',
      watchIntervalMs: 3_600_000,
      ...more,
    }),
  );
  changes = [];
  datapath.watch((change) => changes.push(change));
  system = createSystem({
    store: await openMemoryStore(),
    dataplane: { datapath, interfaces: more.interfaces ?? INTERFACES },
    fallback,
    activationTimeoutMs: 5_000,
    dns: null,
    servicePlane: null,
    createThread: threadHere,
  });
  await eventually(() => expect(running()).toBe('enforcing'), { interval: 10 });
}

const running = (): string | undefined => system.readiness().checks[0]?.state;
const config = (): { state: string | undefined; detail: string | undefined } => {
  const { state, detail } = system.readiness().checks[1] ?? {};
  return { state, detail };
};
const missing = (names: string) => ({ state: 'interface_missing', detail: `no interface has this name: ${names}` });
const renamed = (from: string, to: string) => ({
  state: 'interface_renamed',
  detail: `a policed interface has a name that dataplane.interfaces does not contain: ${from} is ${to} now, and stays policed: put ${to} into dataplane.interfaces, rename the interface back, or end its policing with weir config reload --allow-unpoliced`,
});

const ip = (...args: string[]): Promise<string> => topology.node.must('ip', ...args);
/** Adds a veth pair: one end on the node, the other end in the network namespace of the server. */
const addPair = (name: string): Promise<string> =>
  ip('link', 'add', name, 'type', 'veth', 'peer', 'name', `p${name}`, 'netns', topology.server.name);
async function ifindexOf(name: string): Promise<string> {
  return (await ip('-o', 'link', 'show', 'dev', name)).split(':')[0] ?? '';
}
const linkFolder = (): string => `${topology.pinPath}/links-${networkNamespace()}`;
const isLinked = (ifindex: string): boolean => existsSync(`${linkFolder()}/${ifindex}-ingress`);
const links = (): number => readdirSync(linkFolder()).filter((name) => name.endsWith('-ingress')).length;
const comings = (): DatapathChange[] => changes.filter(({ type }) => type.startsWith('interface_'));

/**
 * Returns the names of the interfaces in the rules of the guard (the nftables table of Weir). Returns an
 * empty list while the table is dormant.
 */
async function guardedBy(): Promise<string[]> {
  const { stdout } = await topology.node.run('nft', 'list', 'table', 'inet', 'weir');
  return stdout.includes('dormant')
    ? []
    : [...stdout.matchAll(/iif(?:name)? "(.*?)" counter name/g)].map(([, name]) => name ?? '');
}

async function reaches(): Promise<boolean> {
  const { code } = await topology.client.run('ping', '-n', '-c', '1', '-W', '1', ADDRESSES.server);
  return code === 0;
}

describe('interfaces that appear and vanish while a node runs', () => {
  beforeEach(() => start('allow'));
  afterEach(async () => {
    await system.shutdown();
    await datapath.close();
    detach(topology.pinPath);
  });

  test('readiness reports a missing interface, and the node attaches the datapath when the interface appears', async () => {
    await expect.poll(config).toEqual(missing('dmz0'));
    await addPair('dmz0');
    await expect.poll(() => config().state).toBe('configured');
    expect(isLinked(await ifindexOf('dmz0'))).toBe(true);
    await ip('link', 'del', 'dmz0');
    await expect.poll(config).toEqual(missing('dmz0'));
    expect(changes).toEqual([
      { type: 'interface_appeared', interface: 'dmz0' },
      { type: 'interface_vanished', interface: 'dmz0' },
    ]);
  });

  test('an interface that is renamed to a configured name is policed, and stays policed under each other name until a reload releases it', async () => {
    await addPair('spare');
    const ifindex = await ifindexOf('spare');
    await ip('link', 'set', 'spare', 'name', 'lan9');
    await expect.poll(() => isLinked(ifindex)).toBe(true);
    await ip('link', 'set', 'lan9', 'name', 'lan8');
    await expect.poll(() => comings().length).toBe(2);
    await ip('link', 'set', 'lan8', 'name', 'dmz0');
    await expect.poll(() => config().state).toBe('configured');
    expect(isLinked(ifindex)).toBe(true);
    await ip('link', 'set', 'dmz0', 'name', 'spare');
    await expect.poll(config).toEqual(renamed('dmz0', 'spare'));
    expect([isLinked(ifindex), await guardedBy()]).toEqual([true, [...INTERFACES, 'spare']]);
    await ip('link', 'set', 'spare', 'name', 'other');
    await expect.poll(config).toEqual(renamed('dmz0', 'other'));
    expect((await datapath.police(INTERFACES, 'keep'))?.map(({ renamedFrom }) => renamedFrom)).toContain('dmz0');
    expect(await datapath.police(INTERFACES, 'release')).toHaveLength(2);
    expect([isLinked(ifindex), await guardedBy()]).toEqual([false, INTERFACES]);
    expect(await datapath.police(INTERFACES, 'restore')).toHaveLength(3);
    expect([isLinked(ifindex), await guardedBy()]).toEqual([true, [...INTERFACES, 'other']]);
    await ip('link', 'del', 'other');
    await expect.poll(config).toEqual(missing('dmz0'));
    expect(comings()).toEqual([
      { type: 'interface_appeared', interface: 'lan9' },
      { type: 'interface_renamed', interface: 'lan9', to: 'lan8' },
      { type: 'interface_renamed', interface: 'lan8', to: 'dmz0' },
      { type: 'interface_renamed', interface: 'dmz0', to: 'spare' },
      { type: 'interface_renamed', interface: 'spare', to: 'other' },
      { type: 'interface_vanished', interface: 'other' },
    ]);
  });

  test('the datapath is detached from an interface that moves to another network namespace, and attached when the interface returns', async () => {
    await addPair('dmz0');
    await expect.poll(() => config().state).toBe('configured');
    await ip('link', 'set', 'dmz0', 'netns', topology.server.name);
    await expect.poll(config).toEqual(missing('dmz0'));
    await expect.poll(links).toBe(2);
    await topology.server.must('ip', 'link', 'set', 'dmz0', 'netns', topology.node.name);
    await expect.poll(() => config().state).toBe('configured');
    expect(isLinked(await ifindexOf('dmz0'))).toBe(true);
    await ip('link', 'del', 'dmz0');
    await expect.poll(config).toEqual(missing('dmz0'));
  });

  test('the datapath is attached to all of 20 interfaces that appear at the same time', async () => {
    const names = Array.from({ length: 20 }, (_, index) => `lan${100 + index}`);
    const all = (command: (name: string) => string) =>
      topology.node.must('sh', '-ec', `printf '${names.map((name) => `${command(name)}\\n`).join('')}' | ip -batch -`);
    await all((name) => `link add ${name} type veth peer name p${name} netns ${topology.server.name}`);
    await expect.poll(links).toBe(22);
    await all((name) => `link del ${name}`);
    await expect.poll(links).toBe(2);
  });

  test.each([
    ['deleted', ['delete', 'table', 'inet', 'weir']],
    ['flushed', ['flush', 'table', 'inet', 'weir']],
    ['made dormant', ['add', 'table', 'inet', 'weir', '{ flags dormant; }']],
  ])(
    'the node restores the guard (its nftables table) within one second after the table was %s',
    async (_, command) => {
      await topology.node.must('nft', ...command);
      await expect.poll(() => changes).toEqual([{ type: 'guard_lost' }]);
      await expect.poll(guardedBy).toEqual(INTERFACES);
      expect(await reaches()).toBe(true);
    },
  );
});

describe('readiness of a node that translates addresses', () => {
  afterEach(async () => {
    await topology.node.must('nft', 'flush', 'ruleset');
    await system.shutdown();
    await datapath.close();
    detach(topology.pinPath);
  });
  const translate = () =>
    topology.node.must(
      'nft',
      'add table ip mine; add chain ip mine post { type nat hook postrouting priority 100; }; add rule ip mine post oifname "wan0" masquerade',
    );

  test('readiness fails while an unsupported NAT rule for a policed interface exists, and names the chain and the interface', async () => {
    await start('allow', { interfaces: ['lan0', 'wan0'], policeLocal: true });
    const configured = { state: 'configured', detail: 'the datapath is attached to every configured interface' };
    await expect.poll(config).toEqual(configured);
    await translate();
    await expect.poll(config).toEqual({
      state: 'refused',
      detail:
        'a configured interface cannot be policed: nftables chain ip mine post translates addresses at wan0, which is not supported here (dataplane.police_local is set): remove wan0 from dataplane.interfaces, or remove the rules',
    });
    expect(running()).toBe('enforcing');
    await topology.node.must('nft', 'delete', 'table', 'ip', 'mine');
    await expect.poll(config).toEqual(configured);
  });

  test('readiness warns about an unpoliced outside interface of a node that translates addresses, and the node forwards packets', async () => {
    await translate();
    await start('allow', { interfaces: ['lan0'] });
    await expect.poll(config).toEqual({
      state: 'configured',
      detail:
        'the datapath is attached to every configured interface; the node forwards packets from wan0 without a policy: dataplane.interfaces does not contain it',
    });
    await expect.poll(reaches).toBe(true);
  });
});

describe('an interface beside a bridge', () => {
  /**
   * A packet socket at the far end of two links of the node: `client` for lan0, and `other` for q0. `bridge`
   * is a packet socket on the bridge itself.
   */
  let wires: Record<'client' | 'other' | 'bridge', Wire>;
  const open = async (space: Topology['client'], name: string): Promise<Wire> => {
    const index = (await space.must('ip', '-o', 'link', 'show', 'dev', name)).split(':')[0];
    return new Wire(space.name, Number(index));
  };
  beforeAll(async () => {
    await ip('link', 'add', 'q0', 'type', 'veth', 'peer', 'name', 'pq0', 'netns', topology.server.name);
    await topology.server.must('ip', 'link', 'set', 'pq0', 'up');
    await topology.server.must('ip', 'link', 'set', 'eth0', 'address', STATION);
    await ip('neigh', 'flush', 'dev', 'wan0');
    await ip('link', 'set', 'q0', 'up');
    // Turn off netfilter for bridged packets, because br_netfilter may be built into this kernel but is
    // missing on other machines.
    await topology.node.run(
      'sysctl',
      '-qw',
      'net.bridge.bridge-nf-call-iptables=0',
      'net.bridge.bridge-nf-call-ip6tables=0',
    );
  });
  beforeEach(async () => {
    await ip('link', 'add', 'br0', 'type', 'bridge', 'forward_delay', '0', 'group_fwd_mask', '0x4000');
    await ip('link', 'set', 'br0', 'up');
    wires = {
      client: await open(topology.client, 'eth0'),
      other: await open(topology.server, 'pq0'),
      bridge: await open(topology.node, 'br0'),
    };
  });
  afterEach(async () => {
    for (const wire of Object.values(wires)) wire.close();
    await ip('link', 'del', 'br0');
    await system.shutdown();
    await datapath.close();
    detach(topology.pinPath);
  });
  afterAll(() => ip('link', 'del', 'q0'));

  const join = async (...ports: string[]): Promise<void> => {
    for (const port of ports) await ip('link', 'set', port, 'master', 'br0');
  };
  /**
   * Sends all attack frames from the client. Returns the names of the frames that come out at the port
   * q0.
   */
  async function crossing(): Promise<string[]> {
    // Mark the end by a frame that the bridge itself sends, which always passes. When this frame arrives, all
    // frames of the client have been handled.
    const last = SWITCHED_FRAMES.last;
    for (const wire of Object.values(wires)) wire.seen();
    for (const frame of Object.values(SWITCHED_FRAMES.attacks)) wires.client.send(frame);
    wires.bridge.send(last);
    const seen: Uint8Array[] = [];
    let ended = false;
    await expect
      .poll(() => {
        for (const frame of wires.other.seen()) {
          ended ||= Buffer.compare(frame, last) === 0;
          seen.push(frame);
        }
        return ended;
      })
      .toBe(true);
    return Object.entries(SWITCHED_FRAMES.attacks).flatMap(([name, sent]) =>
      seen.some((other) => Buffer.compare(other.subarray(-16), sent.subarray(-16)) === 0) ? [name] : [],
    );
  }

  test('an interface that is no bridge port but has a macvlan is reported as refused, also with the macvlan in another network namespace', async () => {
    await start('allow', { interfaces: ['lan0', 'wan0'] });
    await expect.poll(() => config().state).toBe('configured');
    await ip('link', 'add', 'mac0', 'link', 'lan0', 'type', 'macvlan', 'mode', 'bridge');
    const detail = 'a configured interface cannot be policed: lan0 gives frames to';
    await expect
      .poll(config)
      .toEqual({ state: 'refused', detail: `${detail} macvlan mac0 before the datapath sees them: remove it` });
    await ip('link', 'set', 'mac0', 'netns', topology.client.name);
    await expect.poll(config).toEqual({
      state: 'refused',
      detail: expect.stringMatching(`^${detail} macvlan_handle_frame.* before the datapath sees them$`),
    });
    expect(await reaches()).toBe(true);
    await topology.client.must('ip', 'link', 'del', 'mac0');
    // The kernel sends no notification when a macvlan in another network namespace vanishes, so only the
    // periodic check finds the change. Cause a check by another change.
    await datapath.attach();
    await ip('link', 'set', 'lan0', 'alias', 'looked-at');
    await expect.poll(() => config().state).toBe('configured');
  });

  test('a bridge port need not be configured if its bridge is: the bridge switches the frames, and the policy decides routed packets', async () => {
    await ip('addr', 'flush', 'dev', 'lan0');
    await ip('addr', 'add', `${ADDRESSES.nodeLan}/24`, 'dev', 'br0');
    await join('lan0', 'q0');
    try {
      await start('allow', { interfaces: ['br0', 'wan0'] });
      await expect.poll(() => config().state).toBe('configured');
      expect(await reaches()).toBe(true);
      expect(Number((await datapath.stats()).verdicts.allow.packets)).toBeGreaterThan(0);
      expect(await crossing()).toContain('IPv4 to every station');
    } finally {
      for (const address of [ADDRESSES.nodeLan, '10.77.3.1']) await ip('addr', 'add', `${address}/24`, 'dev', 'lan0');
    }
  });
});

describe('denied packets during changes of interfaces', () => {
  const POLICED = { interfaces: ['lan*', 'wan0'] };
  const configured = { state: 'configured', detail: 'the datapath is attached to every configured interface' };
  let streams: Streams;
  beforeAll(async () => {
    await start('deny', POLICED);
    streams = await streamBothWays();
  });
  afterAll(async () => {
    await streams.stop();
    await system.shutdown();
    await datapath.close();
    detach(topology.pinPath);
  });
  const batch = (lines: string) => topology.node.must('sh', '-ec', lines);
  /** Runs `ip link set` for each pair of names, as fast as one process can. */
  const rename = (...pairs: readonly string[]) =>
    batch(`printf '${pairs.map((pair) => `link set ${pair.replace(' ', ' name ')}\\n`).join('')}' | ip -batch -`);
  const ADDRESSED = (name: string, address: string) => `ip addr add ${address}/24 dev ${name}; ip link set ${name} up`;

  test.each<[string, string[], [string, string], string[]]>([
    ['its inside', ['lan0 up0'], ['lan0', 'up0'], ['up0 lan0']],
    ['its outside', ['wan0 net0'], ['wan0', 'net0'], ['net0 wan0']],
    ['the inside again and again', ['lan0 up0', 'up0 lan5', 'lan5 up1'], ['lan5', 'up1'], ['up1 lan0']],
  ])(
    'no denied packet passes while an interface of the node (%s) is renamed, which fails `dataplane_config` with both names',
    async (_, to, [, now], back) => {
      await rename(...to);
      await expect.poll(config).toMatchObject({ state: 'interface_renamed' });
      expect(config().detail).toContain(` is ${now} now, and stays policed: `);
      await streams.denied();
      await rename(...back);
      await expect.poll(config).toEqual(configured);
      expect(await streams.passed()).toBe(0);
    },
  );

  test('no denied packet passes while two policed interfaces exchange their names twenty times, as udev does it', async () => {
    const exchange = ['lan0 tmp', 'wan0 lan0', 'tmp wan0'];
    await rename(...Array.from({ length: 20 }, () => exchange).flat());
    await expect.poll(config, { interval: 10 }).toEqual(configured);
    await streams.denied();
    expect(await streams.passed()).toBe(0);
  });

  const stays = async (change: string, undo: string): Promise<void> => {
    await topology.node.must('sh', '-ec', change);
    await streams.denied();
    await batch(undo);
    await expect.poll(config).toEqual(configured);
    await streams.denied();
    expect(await streams.passed()).toBe(0);
  };

  test.for<[string, string, string]>([
    ['the rules of nftables are flushed', 'nft flush ruleset', ''],
    [
      'the inside gets another altname',
      'ip link property add dev lan0 altname up0',
      'ip link property del dev lan0 altname up0',
    ],
    ['the inside is a bridge port', 'ip link add br1 up type bridge; ip link set lan0 master br1', 'ip link del br1'],
    ['a macvlan is on top', 'ip link add link lan0 name m0 up type macvlan', 'ip link del m0'],
  ])('no denied packet passes while nftables or a policed interface is changed: %s', ([, change, undo]) =>
    stays(change, undo),
  );

  skipUnless(HAS_VRFS, 'the kernel has no VRF interfaces (module vrf)').test(
    'no denied packet passes while the inside interface is a port of a VRF',
    () => stays('ip link add v1 up type vrf table 9; ip link set lan0 master v1', 'ip link del v1'),
  );

  skipUnless(HAS_VLANS, LACKS.vlans).test(
    'no denied packet passes while the inside interface has a VLAN interface on top',
    () => stays('ip link add link lan0 name v5 up type vlan id 5', 'ip link del v5'),
  );

  test('no denied packet passes while the outside interface moves to another network namespace and back', async () => {
    const { node, server } = topology;
    await batch(`ip link set wan0 netns ${server.name}`);
    await expect.poll(() => config().state).toBe('interface_missing');
    await server.must('ip', 'link', 'set', 'wan0', 'netns', node.name);
    await batch(ADDRESSED('wan0', ADDRESSES.nodeWan));
    await expect.poll(config).toEqual(configured);
    await streams.denied();
    expect(await streams.passed()).toBe(0);
  });

  test.each([
    ['TCX', false],
    ['clsact', true],
  ])(
    'no denied packet passes if an interface is renamed before the next process starts, which then reports both names (hooks of %s)',
    async (_, forceClsact) => {
      await system.shutdown();
      await datapath.close();
      await start('deny', { ...POLICED, forceClsact });
      await expect.poll(config).toEqual(configured);
      await system.shutdown();
      await datapath.close();
      await rename('lan0 up0', 'wan0 lan7', 'up0 up1');
      await start('deny', { ...POLICED, forceClsact });
      await expect.poll(config).toEqual({
        state: 'interface_renamed',
        detail: `${renamed('lan0', 'up1').detail}; no interface has this name: wan0`,
      });
      await streams.denied();
      await rename('lan7 wan0', 'up1 lan0');
      await expect.poll(config).toEqual(configured);
      expect(await streams.passed()).toBe(0);
    },
  );

  test('a renamed interface is released by the next process if its configuration has neither the former nor the present name', async () => {
    const ifindex = await ifindexOf('lan0');
    await system.shutdown();
    await datapath.close();
    await rename('lan0 up0');
    await start('deny', { interfaces: ['wan0'] });
    await expect.poll(() => config().state).toBe('configured');
    expect(isLinked(ifindex)).toBe(false);
    await rename('up0 lan0');
  });
});

test('no packet passes without a verdict while an interface is re-created fifty times under load', async () => {
  await start('deny');
  const { node, client, server } = topology;
  await server.must('nft', 'add table inet seen; add chain inet seen in { type filter hook prerouting priority 0; }');
  await server.must('nft', 'add', 'rule', 'inet', 'seen', 'in', 'udp', 'dport', '9', 'counter', 'drop');
  // Put the client's address on a bridge of the client, which stays when the link vanishes. So the client
  // sends from the moment when the interface exists again.
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
      // In every fifth round, block this thread, which attaches the datapath, until the guard has dropped
      // packets.
      const clock = new ProgressClock();
      while (round % 5 === 0 && stoppedByGuard() === stopped && !clock.isOver(2_000));
      if (round % 5 === 0) expect(stoppedByGuard()).toBeGreaterThan(stopped);
      const waiting = new ProgressClock();
      const ifindex = await ifindexOf('lan0');
      await expect.poll(() => isLinked(ifindex)).toBe(true);
      waits.push(waiting.ms());
      await node.must('ip', 'link', 'del', 'lan0');
      await expect.poll(() => comings().at(-1)?.type).toBe('interface_vanished');
      await expect.poll(config).toEqual(missing('dmz0; no interface has a name like lan* now'));
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

type Streams = {
  /** Resolves when both interfaces have denied packets after this call. */
  readonly denied: () => Promise<void>;
  /** Returns the number of packets that have passed the node. */
  readonly passed: () => Promise<number>;
  readonly stop: () => Promise<void>;
};

/** Sends UDP packets between the client and the server, in both directions, until `stop` is called. */
async function streamBothWays(): Promise<Streams> {
  const ends = [
    { space: topology.client, to: ADDRESSES.server },
    { space: topology.server, to: ADDRESSES.client },
  ];
  for (const { space } of ends) {
    await space.must('nft', 'add table inet seen; add chain inet seen in { type filter hook prerouting priority 0; }');
    await space.must('nft', 'add', 'rule', 'inet', 'seen', 'in', 'udp', 'dport', '9', 'counter', 'drop');
  }
  const senders = ends.map(({ space, to }) => space.start(process.execPath, ['-e', steadySender(to)]));
  await Promise.all(senders.map((sender) => once(sender.stdout ?? sender, 'data')));
  const counted = async (): Promise<number> => {
    const { drops } = await datapath.stats();
    return Object.values(drops).reduce((sum, { packets }) => sum + Number(packets), 0);
  };
  return {
    denied: async () => {
      const before = await counted();
      await expect.poll(counted, { interval: 10 }).toBeGreaterThan(before + 200);
    },
    passed: async () => {
      const chains = await Promise.all(
        ends.map(({ space }) => space.must('nft', 'list', 'chain', 'inet', 'seen', 'in')),
      );
      return chains.reduce((sum, chain) => sum + Number(/counter packets (\d+)/.exec(chain)?.[1]), 0);
    },
    stop: async () => {
      for (const sender of senders) sender.kill('SIGKILL');
      for (const { space } of ends) await space.must('nft', 'delete', 'table', 'inet', 'seen');
    },
  };
}

/** A script that sends some packets each millisecond, also while there is no route. */
const steadySender = (to: string): string => `
  const socket = require('node:dgram').createSocket('udp4');
  const payload = Buffer.alloc(64);
  console.log('sending');
  setInterval(() => { for (let i = 0; i < 4; i++) socket.send(payload, 9, '${to}', () => {}); }, 1);
`;

/** Returns the number of packets that the guard (the nftables table of Weir) has dropped. */
function stoppedByGuard(): number {
  const counter = execFileSync('nft', ['list', 'counter', 'inet', 'weir', 'dropped'], { encoding: 'utf8' });
  return Number(/packets (\d+)/.exec(counter)?.[1]);
}

/** A script that sends UDP packets to the server as fast as possible, even while the link is missing. */
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
