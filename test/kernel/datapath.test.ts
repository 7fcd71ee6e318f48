import { execFileSync } from 'node:child_process';
import { readdirSync, rmSync } from 'node:fs';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import { imageSha256 } from '#dataplane/activate/image-digest.js';
import { networkNamespace } from '#dataplane/attach/ownership.js';
import { MAPS } from '#dataplane/loader/bpf-object.js';
import { dataplaneStatus } from '#dataplane/status/dataplane-status.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { samplesOf } from '#policy/proof/proof-sample.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { datapathOptions } from './datapath-options.js';
import { allowAll, auditAll, defaultOnly, denyAll } from './policies.js';
import { HAS_TCX } from './tcx.js';
import { topologyOfFile } from './topology-of-file.js';

const topology = topologyOfFile('dp');

let datapath: LocalDatapath;
const options = (more: Partial<DatapathOptions> = {}) => datapathOptions(topology.pinPath, more);

type BpfMap = { readonly id: number; readonly type: string; readonly pinned?: readonly string[] };
type BpfProgram = { readonly id: number; readonly map_ids?: readonly number[] };

function bpftool<T>(...args: string[]): T[] {
  return JSON.parse(execFileSync('bpftool', ['-j', '-f', ...args], { encoding: 'utf8' })) as T[];
}

/**
 * Returns the ids of the maps pinned under the node's pin path, and the ids of the BPF programs that use
 * these maps.
 */
function inKernel(): { maps: number[]; programs: number[] } {
  const pinned = bpftool<BpfMap>('map', 'list').filter(({ pinned }) =>
    pinned?.some((path) => path.startsWith(`${topology.pinPath}/`)),
  );
  const maps = pinned.map(({ id }) => id);
  const using = bpftool<BpfProgram>('prog', 'list').filter(({ map_ids }) => map_ids?.some((id) => maps.includes(id)));
  return { maps, programs: using.map(({ id }) => id) };
}

function nft(...args: string[]): string {
  return execFileSync('nft', args, { encoding: 'utf8' }).trim();
}

/** Returns whether the server replies to an echo request of the client. */
async function reaches(source: string = ADDRESSES.client, target: string = ADDRESSES.server): Promise<boolean> {
  const { code } = await topology.client.run('ping', '-n', '-c', '1', '-W', '0.4', '-I', source, target);
  return code === 0;
}

function start(more: Partial<DatapathOptions> = {}): LocalDatapath {
  datapath = new LocalDatapath(options(more));
  datapath.open();
  return datapath;
}

describe('the datapath of a node between client and server', () => {
  afterEach(async () => {
    const { maps, programs } = inKernel();
    expect(maps.length % MAPS.length).toBe(0);
    datapath.close();
    detach(topology.pinPath);
    const left = () => ({
      // Ignore maps of type prog_array: if bpftool holds such a map while the kernel clears the pins, the
      // kernel keeps the map.
      maps: bpftool<BpfMap>('map', 'list').filter(({ id, type }) => maps.includes(id) && type !== 'prog_array'),
      programs: bpftool<BpfProgram>('prog', 'list').filter(({ id }) => programs.includes(id)),
      pins: readdirSync('/sys/fs/bpf').filter((name) => topology.pinPath.endsWith(`/${name}`)),
      tables: nft('list', 'tables'),
    });
    // Poll, because the kernel frees maps and BPF programs some time after their last use.
    await expect.poll(left).toEqual({ maps: [], programs: [], pins: [], tables: '' });
  });

  test.each([
    [HAS_TCX ? 'tcx' : 'clsact', false],
    ['clsact', true],
  ] as const)(
    'the datapath allows, drops and audits packets by the policy in force, with BPF programs attached by %s',
    async (by, forceClsact) => {
      start({ forceClsact });
      const attachments = datapath.attach().map((attachment) => [attachment.interface, attachment.by]);
      expect(attachments.sort()).toEqual([
        ['lan0', by],
        ['wan0', by],
      ]);
      expect(await reaches()).toBe(false);
      datapath.stage(allowAll, 1);
      expect(datapath.flip().epoch).toBe(1);
      expect(await reaches()).toBe(true);
      datapath.stage(denyAll, 2);
      expect(datapath.flip().epoch).toBe(2);
      expect(await reaches()).toBe(false);
      datapath.stage(auditAll, 3);
      datapath.flip();
      expect(await reaches()).toBe(true);

      const stats = datapath.stats();
      const { drops } = stats;
      expect({
        generation: stats.generation,
        verdicts: Object.values(stats.verdicts).map(({ packets }) => packets),
        drops: Object.entries(drops).flatMap(([name, { packets }]) => (packets === 0n ? [] : [[name, packets]])),
        flows: [stats.activeFlows, stats.flowsOpened, stats.flowsClosed],
      }).toEqual({
        generation: 3,
        verdicts: [2n, 1n, 2n],
        drops: [
          ['no_policy', 1n],
          ['policy_deny', 1n],
        ],
        flows: [2, 2n, 0n],
      });
    },
  );

  test('the datapath passes packets to the node itself although the policy denies all packets', async () => {
    start().attach();
    datapath.stage(denyAll, 1);
    datapath.flip();
    expect(await reaches(ADDRESSES.client, ADDRESSES.nodeLan)).toBe(true);
  });

  test('the datapath drops a packet if the route to its source does not lead through the interface that the packet came in by', async () => {
    start().attach();
    datapath.stage(allowAll, 1);
    datapath.flip();
    await topology.client.must('ip', 'addr', 'add', '10.99.0.1/32', 'dev', 'eth0');
    await topology.client.must('ip', 'addr', 'add', '10.77.2.9/32', 'dev', 'eth0');
    expect([await reaches('10.99.0.1'), await reaches('10.77.2.9'), await reaches()]).toEqual([false, false, true]);
    expect(datapath.stats().drops.spoofed_source?.packets).toBe(2n);
    await topology.client.must('ip', 'addr', 'del', '10.99.0.1/32', 'dev', 'eth0');
    await topology.client.must('ip', 'addr', 'del', '10.77.2.9/32', 'dev', 'eth0');
  });

  test('the guard (nftables rules of Weir) drops and counts forwarded packets while no BPF program is attached', async () => {
    start().attach();
    datapath.stage(allowAll, 1);
    datapath.flip();
    expect(await reaches()).toBe(true);
    rmSync(`${topology.pinPath}/links-${networkNamespace()}`, { recursive: true });
    // Poll, because the kernel detaches a link some time after its last pin was removed.
    await expect.poll(() => reaches()).toBe(false);
    const { packets = 0n } = datapath.stats().drops.guard ?? {};
    expect(packets).toBeGreaterThan(0n);
    datapath.attach();
    expect(await reaches()).toBe(true);
    expect(datapath.stats().drops.guard?.packets).toBe(packets);
  });

  test('the datapath enforces the policy while no process runs, and the next process takes over the policy and the flows', async () => {
    start().attach();
    datapath.stage(allowAll, 7);
    const { sinceMs } = datapath.flip();
    expect(await reaches()).toBe(true);
    datapath.close();
    expect(await reaches()).toBe(true);

    const second = new LocalDatapath(options());
    expect(second.open()).toEqual({
      base: null,
      adopted: true,
      inForce: { generation: 7, imageSha256: imageSha256(allowAll), sinceMs },
    });
    expect(second.stats().activeFlows).toBe(2);
    second.attach();
    expect(await reaches()).toBe(true);
    expect(second.stats().verdicts.allow.packets).toBe(6n);
    second.close();
  });

  test('the datapath reports the time since which the kernel enforces a policy generation, until another generation is in force', () => {
    start().attach();
    const before = Date.now();
    datapath.stage(allowAll, 7);
    const { sinceMs } = datapath.flip();
    expect(sinceMs).toBeGreaterThanOrEqual(before);
    expect(sinceMs).toBeLessThanOrEqual(Date.now());
    datapath.close();

    vi.useFakeTimers({ toFake: ['Date'], now: sinceMs + 60_000 });
    try {
      start().attach();
      datapath.stage(allowAll, 7);
      expect(datapath.flip()).toEqual({ epoch: 2, sinceMs, uncompiled: 0 });
      expect(dataplaneStatus({ pinPath: topology.pinPath }).inForce?.since).toBe(new Date(sinceMs).toISOString());
      datapath.stage(allowAll, 8);
      expect(datapath.flip()).toEqual({ epoch: 3, sinceMs: sinceMs + 60_000, uncompiled: 0 });
    } finally {
      vi.useRealTimers();
    }
  });

  test('the datapath can be opened and detached only by one process at a time', async () => {
    start().attach();
    const second = new LocalDatapath(options());
    const elsewhere = new LocalDatapath(options({ pinPath: `${topology.pinPath}-other` }));
    for (const refused of [() => second.open(), () => detach(topology.pinPath), () => elsewhere.open()]) {
      expect(refused).toThrow(
        /^process \d+ \(.*\) polices this network namespace: stop that process first \(kill \d+\)$/,
      );
    }
    rmSync(`${topology.pinPath}-other`, { recursive: true, force: true });
    datapath.close();
    second.open();
    second.close();
  });

  test('the datapath cannot be opened on interfaces that are policed under another pin path, and the error names that pin path', async () => {
    start().attach();
    datapath.stage(allowAll, 1);
    datapath.flip();
    datapath.close();
    const elsewhere = new LocalDatapath(options({ pinPath: `${topology.pinPath}-other` }));
    expect(() => elsewhere.open()).toThrow(
      `lan0 is policed by the datapath of another node, pinned in ${topology.pinPath}: set dataplane.pin_path to that folder, or remove the datapath with weir dataplane detach --pin-path ${topology.pinPath}`,
    );
    detach(topology.pinPath);
    expect(elsewhere.open()).toEqual({ base: null, adopted: false, inForce: null });
    elsewhere.close();
    detach(`${topology.pinPath}-other`);
    start().attach();
  });

  test('the datapath loses no packet while a restarted process takes over the BPF maps and programs', async () => {
    start().attach();
    datapath.stage(allowAll, 1);
    datapath.flip();
    const pings = topology.client.run('ping', '-n', '-c', '400', '-i', '0.005', '-W', '1', ADDRESSES.server);
    for (let round = 0; round < 10; round++) {
      datapath.close();
      start().attach();
      await reaches();
    }
    expect((await pings).stdout).toContain('400 packets transmitted, 400 received');
  });

  skipUnless(HAS_TCX, LACKS.tcx).test(
    'the datapath changes from clsact to TCX and back, and forwards packets after each change',
    async () => {
      start({ forceClsact: true }).attach();
      datapath.stage(allowAll, 1);
      datapath.flip();
      datapath.close();
      expect(
        start()
          .attach()
          .map(({ by }) => by),
      ).toEqual(['tcx', 'tcx']);
      expect(await reaches()).toBe(true);
      datapath.close();
      expect(
        start({ forceClsact: true })
          .attach()
          .map(({ by }) => by),
      ).toEqual(['clsact', 'clsact']);
      expect(await reaches()).toBe(true);
      const filters = execFileSync('tc', ['filter', 'show', 'dev', 'lan0', 'ingress'], { encoding: 'utf8' });
      expect(filters.match(/handle 0x57e1/g)?.length).toBe(1);
    },
  );

  test('the datapath refuses a policy whose verdicts in the kernel differ from the expected verdicts of the test packets, and keeps the earlier policy in force', async () => {
    start().attach();
    const allow = samplesOf(defaultOnly('allow'));
    expect(() => datapath.prove(allow)).toThrow('no compiled policy is staged: call `stage` first');
    datapath.stage(allowAll, 1);
    expect(datapath.prove(allow)).toEqual({ classes: 1, checked: 6, complete: true });
    datapath.flip();
    datapath.stage(denyAll, 2);
    expect(() => datapath.prove(allow)).toThrow(expect.objectContaining({ code: 'proof_failed' }));
    expect(() => datapath.flip()).toThrow('no compiled policy is staged: call `stage` first');
    expect(await reaches()).toBe(true);
    expect(datapath.stats().generation).toBe(1);
  });

  test('the datapath refuses a policy whose compiled form is larger than its place in the kernel (program slot), and keeps the earlier policy in force', () => {
    start({ programCapacity: 3 }).attach();
    datapath.stage(allowAll, 1);
    datapath.flip();
    const big = { ...allowAll, lists: { ...allowAll.lists } };
    const starts = Uint32Array.from({ length: 100 }, (_, index) => index);
    expect(() => datapath.stage({ ...big, sources: { starts, values: new Uint32Array(100) } }, 2)).toThrow(
      expect.objectContaining({ code: 'capacity_exceeded', table: 'program', need: 16, limit: 3 }),
    );
    const { generation, maps } = datapath.stats();
    expect([generation, maps.program, maps.rank_hits?.entries]).toEqual([1, { entries: 3, capacity: 3 }, 1]);
  });

  test('the datapath reports new and removed interfaces, removed BPF links, and removed nftables rules of Weir', async () => {
    start().attach();
    expect(datapath.look()).toEqual([]);
    rmSync(`${topology.pinPath}/links-${networkNamespace()}`, { recursive: true });
    nft('delete', 'table', 'inet', 'weir');
    await topology.node.must('ip', 'link', 'add', 'wan7', 'type', 'veth', 'peer', 'name', 'other7');
    const seen = datapath.look();
    expect(seen).toEqual(
      expect.arrayContaining([
        { type: 'link_lost', interface: 'lan0' },
        { type: 'link_lost', interface: 'wan0' },
        { type: 'interface_appeared', interface: 'wan7' },
        { type: 'guard_lost' },
      ]),
    );
    expect(seen).toHaveLength(4);
    expect(datapath.look()).toEqual([]);
    expect(datapath.attach()).toHaveLength(3);
    await topology.node.must('ip', 'link', 'del', 'wan7');
    expect(datapath.look()).toEqual([{ type: 'interface_vanished', interface: 'wan7' }]);
    expect(datapath.look()).toEqual([]);
  });

  test('the datapath drops packets of a re-created interface until the datapath is attached to that interface', async () => {
    start().attach();
    datapath.stage(allowAll, 1);
    datapath.flip();
    expect(await reaches()).toBe(true);
    const { node, client } = topology;
    await node.must('ip', 'link', 'del', 'lan0');
    await node.must('ip', 'link', 'add', 'lan0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', client.name);
    await node.must('ip', 'addr', 'add', `${ADDRESSES.nodeLan}/24`, 'dev', 'lan0');
    await client.must('ip', 'addr', 'add', `${ADDRESSES.client}/24`, 'dev', 'eth0');
    await node.must('ip', 'link', 'set', 'lan0', 'up');
    await client.must('ip', 'link', 'set', 'eth0', 'up');
    await client.must('ip', 'route', 'add', 'default', 'via', ADDRESSES.nodeLan);
    expect(await reaches()).toBe(false);
    expect(datapath.stats().drops.guard?.packets).toBe(1n);
    expect(datapath.look()).toEqual([
      { type: 'interface_vanished', interface: 'lan0' },
      { type: 'interface_appeared', interface: 'lan0' },
    ]);
    datapath.attach();
    expect(await reaches()).toBe(true);
  });

  test('the datapath refuses an interface that is not Ethernet, and polices the other interfaces', async () => {
    start({ interfaces: ['lo', 'lan0', 'wan0'] });
    expect(() => datapath.attach()).toThrow(
      expect.objectContaining({ code: 'unsupported_interface', interfaceName: 'lo' }),
    );
    datapath.stage(allowAll, 1);
    datapath.flip();
    expect(await reaches()).toBe(true);
  });

  test('the datapath reports no missing kernel feature on this machine', () => {
    start();
    expect(datapath.probe()).toEqual([]);
  });
});
