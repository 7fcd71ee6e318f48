import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { CapacityExceeded, type Datapath, type DatapathChange, ProofFailed } from '#contracts/datapath/datapath.js';
import { verdictWord } from '#contracts/policy/verdict-word.js';
import { FLOW_HALF_OPEN, KEY_USED } from '#dataplane/abi/flow.js';
import { imageSha256 } from '#dataplane/activate/image-digest.js';
import { type DatapathOptions, DEFAULT_TIMEOUTS_MS, openDatapath } from '#dataplane/thread/datapath-thread.js';
import { detach } from '#dataplane/thread/detach.js';
import { samplesOf } from '#policy/proof/proof-sample.js';
import { datapathOptions } from './datapath-options.js';
import { allowAll, defaultOnly, denyAll } from './policies.js';
import { topologyOfFile } from './topology-of-file.js';

const dist = fileURLToPath(new URL('../../dist/', import.meta.url));

const topology = topologyOfFile('thread');

const options = (): DatapathOptions =>
  datapathOptions(topology.pinPath, {
    interfaces: ['lan0', 'wan0'],
    timeoutsMs: { ...DEFAULT_TIMEOUTS_MS, tcp_reset: 2_000 },
    watchIntervalMs: 50,
  });

/** Returns whether the server replies to an echo request of the client. */
async function reaches(): Promise<boolean> {
  const { code } = await topology.client.run('ping', '-n', '-c', '1', '-W', '1', ADDRESSES.server);
  return code === 0;
}

describe('the datapath thread', () => {
  let datapath: Datapath;
  afterEach(async () => {
    await datapath.close();
    detach(topology.pinPath);
  });

  test('the datapath thread runs the operations of the datapath that the main thread requests, and returns their results', async () => {
    datapath = openDatapath(options());
    expect(await datapath.probe()).toEqual([]);
    expect(await datapath.open()).toEqual({ base: null, adopted: false, inForce: null });
    expect((await datapath.attach()).map((attachment) => attachment.interface).sort()).toEqual(['lan0', 'wan0']);
    expect(await datapath.stage(allowAll, 5)).toEqual({ lines: 3, capacityLines: 1_024 });
    const sample = samplesOf(defaultOnly('allow'));
    expect(await datapath.prove(sample)).toEqual({ classes: 1, checked: 6, complete: true });
    const { epoch, sinceMs } = await datapath.flip();
    expect(epoch).toBe(1);
    expect(await reaches()).toBe(true);
    await datapath.stage(denyAll, 6);
    const refused = await datapath.prove(sample).catch((failure: unknown) => failure);
    expect(refused).toEqual(
      new ProofFailed({
        packet: { source: 0, destination: 0, protocol: 0, sourcePort: 0, destinationPort: 0, icmpType: 0, icmpCode: 0 },
        expected: verdictWord(0, 'allow', false),
        found: verdictWord(0, 'deny', false),
      }),
    );
    await expect(datapath.flip()).rejects.toThrow('no compiled policy is staged: call `stage` first');
    await datapath.stage(denyAll, 6);
    await datapath.unstage();
    await expect(datapath.flip()).rejects.toThrow('no compiled policy is staged: call `stage` first');
    expect(await datapath.stats()).toEqual(expect.objectContaining({ generation: 5, activeFlows: 1 }));
    await datapath.close();
    expect(await datapath.open()).toEqual({
      base: null,
      adopted: true,
      inForce: { generation: 5, imageSha256: imageSha256(allowAll), sinceMs },
    });
  });

  test('the datapath thread rejects a policy that exceeds a capacity, and names the capacity', async () => {
    datapath = openDatapath(options());
    await datapath.open();
    const starts = Uint32Array.from({ length: 10_000 }, (_, index) => index);
    const refused = datapath.stage({ ...allowAll, sources: { starts, values: new Uint32Array(10_000) } }, 1);
    await expect(refused).rejects.toEqual(new CapacityExceeded('program', 1_337, 1_024));
  });

  test('the datapath thread reports to its watchers that the guard (nftables table of Weir) was deleted', async () => {
    datapath = openDatapath(options());
    await datapath.open();
    await datapath.attach();
    const told = new Promise<DatapathChange>((resolve) => datapath.watch(resolve));
    await topology.node.must('nft', 'delete', 'table', 'inet', 'weir');
    expect(await told).toEqual({ type: 'guard_lost' });
  });

  test('a datapath thread that ends by an error makes the pending requests fail, and notifies its watchers', async () => {
    datapath = openDatapath({ ...options(), pinPath: null as unknown as string });
    const told = new Promise<DatapathChange>((resolve) => datapath.watch(resolve));
    await expect(datapath.open()).rejects.toMatchObject({ code: 'worker_died' });
    expect(await told).toEqual({ type: 'worker_died', reason: expect.any(String) });
    datapath = openDatapath(options());
  });
});

test('after the process was killed, the BPF programs still enforce the policy, pass replies and end expired flows', async () => {
  const script = `
    import { openDatapath } from '${dist}src/dataplane/thread/datapath-thread.js';
    import { allowAll } from '${dist}test/kernel/policies.js';
    const datapath = openDatapath(${JSON.stringify(options())});
    await datapath.open();
    await datapath.attach();
    await datapath.stage(allowAll, 3);
    await datapath.flip();
    console.log('enforcing');
  `;
  const child = topology.node.start(process.execPath, ['--input-type=module', '-e', script]);
  if (child.stdout === null) throw new Error('no output');
  const [said] = await once(child.stdout, 'data');
  expect(String(said)).toBe('enforcing\n');
  child.kill('SIGKILL');
  await once(child, 'exit');

  expect(await reaches()).toBe(true);
  // No process listens on this TCP port. So the server replies with a RST, and the flow expires two seconds
  // later.
  await topology.client.run('bash', '-c', `exec 3<>/dev/tcp/${ADDRESSES.server}/9`);
  const [maps] = (await readdir(topology.pinPath)).filter((name) => name.startsWith('maps-'));
  /** Returns one element for each existing flow: whether the flow is half open. */
  const flows = async (): Promise<boolean[]> => {
    const path = `${topology.pinPath}/${maps}/flows`;
    const dumped = await topology.node.must('bpftool', '-j', 'map', 'dump', 'pinned', path);
    const lines = JSON.parse(dumped) as { formatted: { value: { key: { use: number }; flags: number } } }[];
    const used = lines.filter(({ formatted }) => formatted.value.key.use === KEY_USED);
    return used.map(({ formatted }) => (formatted.value.flags & FLOW_HALF_OPEN) !== 0);
  };
  expect((await flows()).sort()).toEqual([false, true]);
  await expect.poll(flows, { interval: 500 }).toEqual([false]);

  const datapath = openDatapath(options());
  try {
    expect(await datapath.open()).toEqual({
      base: null,
      adopted: true,
      inForce: { generation: 3, imageSha256: expect.any(String), sinceMs: expect.any(Number) },
    });
    expect(await datapath.stats()).toEqual(
      expect.objectContaining({ flowsOpened: 1n, flowsClosed: 0n, activeFlows: 1 }),
    );
  } finally {
    await datapath.close();
    detach(topology.pinPath);
  }
});
