import { setTimeout as pause } from 'node:timers/promises';
import { EtcdClient } from '#cluster/etcd/etcd-client.js';
import type { PolicyPut, PolicyRecord } from '#contracts/policy/policy-record.js';
import type { EtcdCluster } from '#test/cluster/etcd-cluster.js';
import { Random } from '#test/seed.js';
import type { Row } from '../bench.js';
import { processorTimeUs } from '../inspection/processor-time.js';
import { residentMiB } from '../resident.js';
import { quantile } from './quantile.js';
import { SimulatedNode } from './simulated-node.js';

const NODES = 200;
const JOIN_MS = 60_000;
const WRITES = 10;
/** The time that a simulated node takes to compile a policy. One node is slower than all others. */
const COMPILE_MS = { least: 200, most: 800, slowest: 2_500 };
const IDLE_MS = 15_000;
/** The time to live of the lease of a node. */
const TTL_SECONDS = 5;
const WITHIN = { withinMs: 5_000 };
const EVENTS = 200;
/** The pause between two events, which is long enough that etcd does not send both in one message. */
const EVENT_PAUSE_MS = 20;
/** The number of nodes for which the cost is calculated from the measured parts. */
const MANY = 10_000;

/** The processes of etcd: their processor time in µs, and their resident memory in MiB. */
class EtcdProcesses {
  readonly #pids: readonly number[];

  constructor({ members }: EtcdCluster) {
    this.#pids = members.map(({ process }) => process?.pid ?? 0);
  }

  async processorTimeUs(act: () => Promise<unknown>): Promise<number> {
    const before = processorTimeUs(this.#pids);
    await act();
    return processorTimeUs(this.#pids) - before;
  }

  get residentMiB(): number {
    return this.#pids.reduce((sum, pid) => sum + residentMiB(pid), 0);
  }
}

/**
 * The flips of `NODES` simulated nodes in this process, and the cost of a node for etcd. The cost of `MANY`
 * nodes is calculated.
 */
export async function simulation(etcd: EtcdCluster): Promise<Row[]> {
  const processes = new EtcdProcesses(etcd);
  const idleAlone = await processes.processorTimeUs(() => pause(IDLE_MS));
  const lease = await leaseUs(processes, etcd, idleAlone);
  const memoryAlone = processes.residentMiB;
  const random = new Random(NODES);
  const nodes = await Promise.all(
    Array.from({ length: NODES }, (_, index) => {
      const compileMs = (): number =>
        index === 1 ? COMPILE_MS.slowest : random.between(COMPILE_MS.least, COMPILE_MS.most);
      return SimulatedNode.create(`s${index}`, etcd.options, compileMs);
    }),
  );
  const [writer] = nodes;
  if (writer === undefined) throw new Error('there is no node');
  try {
    await writer.cluster.init(false);
    for (const node of nodes) node.start();
    await Promise.all(nodes.map((node) => node.cluster.connectedWithin(JOIN_MS)));
    await writer.takesPart(NODES);
    const memory = (processes.residentMiB - memoryAlone) / NODES;
    await written(writer, nodes, 0);
    const spreads: number[] = [];
    let took = 0;
    const busy = await processes.processorTimeUs(async () => {
      const began = performance.now();
      for (let round = 1; round <= WRITES; round++) spreads.push(await written(writer, nodes, round));
      took = (performance.now() - began) / 1_000;
    });
    const idle = (await processes.processorTimeUs(() => pause(IDLE_MS))) / (IDLE_MS / 1_000);
    const write = (busy - took * idle) / WRITES / NODES;
    const event = await eventUs(processes, writer, idle);
    const node = (idle - idleAlone / (IDLE_MS / 1_000)) / NODES;
    spreads.sort((a, b) => a - b);
    return [
      { what: `${NODES} nodes: first to last flip, p50`, value: quantile(spreads, 0.5), unit: 'ms' },
      { what: `${NODES} nodes: first to last flip, the slowest`, value: quantile(spreads, 1), unit: 'ms', atMost: 200 },
      { what: 'etcd: processor time of an idle node', value: node, unit: 'µs/s' },
      { what: 'etcd: processor time of a lease, a part of it', value: lease, unit: 'µs/s' },
      { what: 'etcd: processor time of an event for a node', value: event, unit: 'µs' },
      { what: 'etcd: processor time of a rehearsed write for a node', value: write, unit: 'µs' },
      { what: 'etcd: memory of a node, at all members', value: memory * 1024, unit: 'KiB' },
      { what: `${MANY} nodes (calculated): etcd, idle`, value: (node * MANY) / 1e6, unit: 'cores' },
      { what: `${MANY} nodes (calculated): etcd, an event`, value: (event * MANY) / 1e6, unit: 's of a core' },
      { what: `${MANY} nodes (calculated): etcd, a rehearsed write`, value: (write * MANY) / 1e6, unit: 's of a core' },
      { what: `${MANY} nodes (calculated): etcd, memory`, value: (memory * MANY) / 1024, unit: 'GiB' },
    ];
  } finally {
    await Promise.all(nodes.map((node) => node.end()));
  }
}

/**
 * Returns the processor time that etcd uses to keep one lease alive, in µs for each second. `idleUs` is the
 * processor time of etcd without leases.
 */
async function leaseUs(processes: EtcdProcesses, etcd: EtcdCluster, idleUs: number): Promise<number> {
  const client = new EtcdClient(etcd.options);
  const leases = await Promise.all(Array.from({ length: NODES }, () => client.lease(TTL_SECONDS, WITHIN)));
  const busy = await processes.processorTimeUs(() => pause(IDLE_MS));
  await Promise.all(leases.map((lease) => lease.revoke(WITHIN)));
  client.close();
  return (busy - idleUs) / NODES / (IDLE_MS / 1_000);
}

/** Writes a policy with a rehearsal. Returns the time from the first to the last flip in ms. */
async function written(writer: SimulatedNode, nodes: readonly SimulatedNode[], round: number): Promise<number> {
  const body = Buffer.from(JSON.stringify({ default_policy: 'deny', source_groups: [], round }));
  const rehearsal = await writer.write((record: PolicyRecord): PolicyPut => ({ record, body }));
  if (rehearsal === null || rehearsal.members !== NODES || rehearsal.behind.length > 0)
    throw new Error(
      `${rehearsal?.members} of ${NODES} members took part in the rehearsal, ${rehearsal?.behind.length} did not stage the policy in time`,
    );
  const generation = await writer.store.policies.generation();
  await Promise.all(nodes.map((node) => node.reaches(generation)));
  const times = nodes.map(({ flips }) => flips.get(generation) ?? Number.NaN);
  return Math.max(...times) - Math.min(...times);
}

/**
 * Returns the processor time that etcd uses to send an event to a node, in µs. `idleUs` is the processor time
 * of etcd without work, in µs for each second.
 */
async function eventUs(processes: EtcdProcesses, writer: SimulatedNode, idleUs: number): Promise<number> {
  let took = 0;
  const value = Buffer.from(JSON.stringify({ enabled: true, author: 'bench', text: 'x'.repeat(200) }));
  const busy = await processes.processorTimeUs(async () => {
    const began = performance.now();
    for (let event = 0; event < EVENTS; event++) {
      await writer.shared.put('setting/bench', value, { sync: true });
      await pause(EVENT_PAUSE_MS);
    }
    took = (performance.now() - began) / 1_000;
  });
  return (busy - took * idleUs) / EVENTS / NODES;
}
