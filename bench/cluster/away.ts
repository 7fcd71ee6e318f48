import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { firstValueFrom } from 'rxjs';
import type { Cluster } from '#cluster/cluster.js';
import { etagOf } from '#contracts/policy/policy-record.js';
import { createPolicyThread, type PolicyThread } from '#policies/thread/policy-thread.js';
import { storedText } from '#policies/thread/stored-text.js';
import { openStore, type Store } from '#store/store.js';
import type { EtcdCluster } from '#test/cluster/etcd-cluster.js';
import type { Row } from '../bench.js';
import { manyRules } from '../policy-write.js';
import { clusterOn, SimulatedNode } from './simulated-node.js';

const RULES = 100_000;
/** The number of writes of one group while the node is away. etcd is compacted after each 100 of them. */
const WRITES = 1_000;
const COMPACT_EVERY = 100;

/**
 * Measures how long a node takes to catch up after it missed `WRITES` writes of a policy of `RULES` rules.
 * The node has a real store and a real policy thread.
 */
export async function away(etcd: EtcdCluster): Promise<Row[]> {
  const folder = await mkdtemp(join(tmpdir(), 'weir-bench-'));
  let cluster = null as Cluster | null;
  const store = await openStore(
    folder,
    () => {},
    undefined,
    null,
    (kv) => {
      cluster = clusterOn(kv, 'away', etcd.options);
      return { kv: cluster.kv, store: cluster.store, commits: cluster.commits, seals: false };
    },
  );
  if (cluster === null) throw new Error('the store was opened without a client of etcd');
  const writer = await SimulatedNode.create('writer', etcd.options);
  const thread = createPolicyThread();
  try {
    writer.start();
    await writer.cluster.init(false);
    await writer.takesPart(1);
    const body = Buffer.from(JSON.stringify(manyRules(RULES, 10, 1_000)));
    await writer.write((record) => ({ record, body }), false);
    await caughtUp(cluster, store);
    const from = body.indexOf('[1000]') + 1;
    for (let write = 1; write <= WRITES; write++) {
      const edit = { from, to: from + 4, text: Buffer.from(String(1_000 + write)) };
      await writer.write((record) => ({ record, edit: { ...edit, revision: record.revision - 1 } }), false);
      if (write % COMPACT_EVERY === 0) await etcd.compact();
    }
    const { applied, followed } = await caughtUp(cluster, store);
    const generation = await store.policies.generation();
    if (generation !== (await writer.store.policies.generation()))
      throw new Error('the node has caught up, but its generation differs from that of the writer');
    const compile = await compiled(thread, store);
    return [
      { what: `away for ${WRITES} writes: until the newest policy is read`, value: applied, unit: 'ms', atMost: 1_000 },
      { what: `away for ${WRITES} writes: until the node follows etcd`, value: followed, unit: 'ms', atMost: 1_000 },
      { what: `away for ${WRITES} writes: the compile after it`, value: compile, unit: 'ms' },
    ];
  } finally {
    await thread.close();
    await writer.end();
    await store.close();
    await rm(folder, { recursive: true });
  }
}

/**
 * Lets the node follow etcd until it has caught up. Returns after how many ms the newest commit was applied,
 * and after how many ms the node had caught up.
 */
async function caughtUp(
  cluster: Cluster,
  { policies }: Store,
): Promise<{ readonly applied: number; readonly followed: number }> {
  const began = performance.now();
  let applied = Number.NaN;
  const commits = policies.followed.subscribe(() => {
    applied = performance.now() - began;
  });
  await firstValueFrom(cluster.follow());
  const followed = performance.now() - began;
  commits.unsubscribe();
  return { applied, followed };
}

/** Compiles the active policy of the store. Returns the time in ms. */
async function compiled(thread: PolicyThread, store: Store): Promise<number> {
  await thread.begin();
  const began = performance.now();
  const stored = await store.policies.active();
  if (stored === null) throw new Error('the store has no active policy to compile');
  const result = await thread.perform({
    kind: 'prepare',
    text: storedText(stored),
    surroundings: { fallback: 'deny', dns: false, servicePlane: false, policesNode: false, ipv6: false },
    integrations: null,
    compile: true,
    key: etagOf(stored.record),
  });
  if (result.kind !== 'prepared')
    throw new Error(`compile the active policy: the policy thread returned "${result.kind}"`);
  return performance.now() - began;
}
