import { setTimeout as pause } from 'node:timers/promises';
import { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { under } from '#cluster/etcd/etcd-types.js';
import type { EtcdCluster } from '#test/cluster/etcd-cluster.js';
import { ClusterNode, startNodes } from '#test/cluster/node-cluster.js';
import type { Row } from '../bench.js';
import { clientGroup, LONG_TIMEOUT, manyRules } from '../policy-write.js';
import { quantile } from './quantile.js';

const RULES = 100_000;
const ROUNDS = 20;
/** The pause after a write, in which each node still writes its new generation into etcd. */
const QUIET_MS = 500;
const WHOLE = '/api/v1/policy';

/** Measures writes of one source group in a policy of `RULES` rules: at three nodes, and at a single node. */
export async function oneGroup(etcd: EtcdCluster): Promise<Row[]> {
  const sections = { policy: LONG_TIMEOUT };
  const alone = new ClusterNode('alone', 9, etcd, { ...sections, cluster: null });
  let nodes: readonly ClusterNode[] = [];
  try {
    alone.start();
    await alone.serves();
    const single = await writes(alone, [alone]);
    await alone.end();
    nodes = await startNodes(etcd, 3, sections);
    const sent = new SentBytes(etcd);
    const shared = await writes(nodes[0], nodes, sent);
    sent.end();
    const beyond = (share: number): number => quantile(shared, share) - quantile(single, share);
    const kib = Math.max(...sent.ofWrites) / 1024;
    return [
      { what: `one group of ${RULES} rules: values put into etcd`, value: kib, unit: 'KiB', atMost: 32 },
      { what: 'a single node: one group, p50', value: quantile(single, 0.5), unit: 'ms' },
      { what: 'three nodes: one group, until the last enforces it, p50', value: quantile(shared, 0.5), unit: 'ms' },
      { what: 'three nodes: one group, beyond a single node, p50', value: beyond(0.5), unit: 'ms', atMost: 1_000 },
      {
        what: 'three nodes: one group, beyond a single node, the slowest',
        value: beyond(1),
        unit: 'ms',
        atMost: 1_000,
      },
    ];
  } finally {
    await Promise.all([...nodes, alone].map((node) => node.end()));
  }
}

/** Counts the bytes of all values that are written to etcd. */
class SentBytes {
  readonly ofWrites: number[] = [];
  readonly #client: EtcdClient;
  #bytes = 0;

  constructor(etcd: EtcdCluster) {
    this.#client = new EtcdClient(etcd.options);
    this.#client.watch(under('/weir/'), 0n).subscribe({
      next: ({ changes }) => {
        for (const change of changes) if (change.type === 'put') this.#bytes += change.entry.value.length;
      },
      // Closing the client ends the watch with an error, which is expected.
      error: () => {},
    });
  }

  async write(act: () => Promise<void>): Promise<void> {
    this.#bytes = 0;
    await act();
    await pause(QUIET_MS);
    this.ofWrites.push(this.#bytes);
  }

  end(): void {
    this.#client.close();
  }
}

/**
 * Writes the whole policy, and then one group several times. Returns for each write of the group the time in
 * ms until the last node in `all` enforces it, sorted.
 */
async function writes(node: ClusterNode | undefined, all: readonly ClusterNode[], sent?: SentBytes): Promise<number[]> {
  if (node === undefined) throw new Error('there is no node');
  let generation = await written(node, WHOLE, manyRules(RULES, 10, 80));
  await Promise.all(all.map((each) => enforces(each, generation)));
  const { body } = await node.request('GET', '/api/v1/policies');
  const id = (body as { readonly items: readonly { readonly id: string }[] }).items[0]?.id ?? '';
  const path = `/api/v1/policies/${id}/source-groups/client`;
  const times: number[] = [];
  for (let round = -2; round < ROUNDS; round++) {
    const write = async (): Promise<void> => {
      const began = performance.now();
      const next = generation + 1;
      const [made] = await Promise.all([
        written(node, path, clientGroup(round + 1_000)),
        ...all.map((each) => enforces(each, next)),
      ]);
      generation = made;
      if (round >= 0) times.push(performance.now() - began);
    };
    await (sent === undefined || round < 0 ? write() : sent.write(write));
  }
  return times.sort((a, b) => a - b);
}

/** Writes a policy or a group. Returns its generation. */
async function written(node: ClusterNode, path: string, body: unknown): Promise<number> {
  const reply = await node.request('PUT', path, body);
  if (reply.status > 201) throw new Error(`PUT ${path}: ${reply.status} ${reply.text.slice(0, 400)}`);
  return Number(reply.headers.get('weir-generation'));
}

/** Waits until a node enforces a generation. One request waits for at most 2 s. */
async function enforces(node: ClusterNode, generation: number): Promise<void> {
  for (const until = performance.now() + 60_000; performance.now() < until; ) {
    const headers = { 'weir-min-generation': String(generation) };
    const { status } = await node.request('GET', '/api/v1/policies', undefined, headers);
    if (status === 200) return;
  }
  throw new Error(`the node ${node.id} does not enforce generation ${generation}`);
}
