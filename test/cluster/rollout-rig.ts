import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import { ADDRESSES } from '#cli/tour/topology.js';
import { ProbedPlaces } from '#test/chaos/probed-places.js';
import { enterNamespace } from '#test/kernel/namespace.js';
import { ProgressClock } from '#test/progress-clock.js';
import { EtcdCluster } from './etcd-cluster.js';
import { policyOf } from './failure-rig.js';
import { type ClusterNode, type Reply, startNodes } from './node-cluster.js';

const NODES = ['n1', 'n2', 'n3'];
const PENDING = '/api/v1/policy/pending';

export type Pending = {
  readonly pending: {
    readonly kind: string;
    readonly generation: number;
    readonly nodes: readonly { readonly id: string; readonly healthy: boolean }[] | null;
  } | null;
  readonly reverted: { readonly generation: number; readonly reason: string } | null;
};

/** Three nodes with dataplanes on one member of etcd. Each node filters between a client and a server. */
export class RolloutRig {
  private constructor(
    readonly etcd: EtcdCluster,
    readonly nodes: readonly ClusterNode[],
    private readonly probed: ProbedPlaces,
    private readonly leave: () => void,
  ) {}

  static async start(name: string): Promise<RolloutRig> {
    const etcd = await EtcdCluster.start(name, 1);
    const leave = enterNamespace(etcd.namespace);
    let probed: ProbedPlaces | null = null;
    try {
      probed = await ProbedPlaces.create(etcd, NODES);
      const nodes = await startNodes(etcd, NODES.length, {}, probed.places);
      await Promise.all(nodes.map((node) => node.passes('dataplane_running')));
      return new RolloutRig(etcd, nodes, probed, leave);
    } catch (failure) {
      await probed?.remove();
      leave();
      await etcd.remove();
      throw failure;
    }
  }

  node(id: string): ClusterNode {
    const found = this.nodes.find((node) => node.id === id);
    if (found === undefined) throw new RangeError(`there is no node ${id}`);
    return found;
  }

  put(id: string, address: string, query = ''): Promise<Reply> {
    return this.node(id).request('PUT', `/api/v1/policy${query}`, policyOf(address));
  }

  /** The generation that each node enforces, by node. */
  async generations(ids: readonly string[] = NODES): Promise<Readonly<Record<string, number>>> {
    const found = ids.map(async (id) => {
      const { headers } = await this.node(id).request('GET', '/api/v1/policy');
      return [id, Number(headers.get('weir-generation'))] as const;
    });
    return Object.fromEntries(await Promise.all(found));
  }

  /** Waits until these nodes enforce one generation, and returns it. */
  async agree(atLeast: number, withinMs: number, ids: readonly string[] = NODES): Promise<number> {
    for (const clock = new ProgressClock(); ; await pause(50)) {
      const found = await this.generations(ids);
      const [first = 0, ...others] = Object.values(found);
      if (first >= atLeast && others.every((generation) => generation === first)) return first;
      if (clock.isOver(withinMs)) throw new Error(`the nodes enforce ${JSON.stringify(found)}`);
    }
  }

  async pending(id: string): Promise<Pending> {
    return (await this.node(id).request('GET', PENDING)).body as Pending;
  }

  end(id: string, how: 'confirm' | 'revert'): Promise<Reply> {
    return this.node(id).request('POST', `${PENDING}/${how}`);
  }

  /** Sends 50 datagrams a second through a node, which its policy denies, until the returned process ends. */
  flood(id: string): ChildProcess {
    const client = this.probed.probes.find(({ node }) => node === id)?.client ?? '';
    const script = `for i in {1..1500}; do echo > /dev/udp/${ADDRESSES.server}/9; sleep 0.02; done`;
    return spawn('nsenter', [`--net=/run/netns/${client}`, 'bash', '-c', script], { stdio: 'ignore' });
  }

  /** Drops all packets from a node to the members of etcd. Its API stays reachable. */
  async cutOff(id: string): Promise<void> {
    const rule = 'add rule ip cut out tcp dport { 2379, 2380 } drop';
    const chain = 'add chain ip cut out { type filter hook output priority 0; }';
    await this.#nft(id, `add table ip cut; ${chain}; ${rule}`);
  }

  async reconnect(id: string): Promise<void> {
    await this.#nft(id, 'delete table ip cut');
  }

  async #nft(id: string, commands: string): Promise<void> {
    const namespace = this.probed.places[NODES.indexOf(id)]?.namespace ?? '';
    await promisify(execFile)('nsenter', [`--net=/run/netns/${namespace}`, 'nft', commands]);
  }

  async remove(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.end()));
    await this.probed.remove();
    this.leave();
    await this.etcd.remove();
  }
}
