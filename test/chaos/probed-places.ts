import { createTopology, type Topology } from '#cli/tour/topology.js';
import type { EtcdCluster } from '#test/cluster/etcd-cluster.js';
import type { Place } from '#test/cluster/node-cluster.js';
import type { ProbeInput } from './probe-flows.js';

/** The interface of a node to etcd. Its address follows those of the members. */
const LINK = 'etcd0';
const FIRST_ADDRESS = 11;

/**
 * A place for each node, between a client and a server of its own, see `createTopology`. Each node has a link
 * to the bridge of the etcd cluster. Connections to the address of this link reach the API on loopback:
 *
 *     etcd ── bridge ── 10.79.0.11 etcd0
 *     client 10.77.1.2 ── lan0 [node n1] wan0 ── 10.77.2.2 server
 */
export class ProbedPlaces {
  readonly #topologies: readonly Topology[];
  readonly places: readonly Place[];
  readonly probes: readonly ProbeInput[];

  private constructor(ids: readonly string[], topologies: readonly Topology[]) {
    this.#topologies = topologies;
    this.places = topologies.map(({ node, pinPath }, index) => ({
      namespace: node.name,
      address: addressOf(index),
      sections: { dataplane: { interfaces: ['lan0', 'wan0'], pin_path: pinPath } },
    }));
    this.probes = topologies.map(({ client, server }, index) => ({
      node: ids[index] ?? '',
      client: client.name,
      server: server.name,
    }));
  }

  static async create(etcd: EtcdCluster, ids: readonly string[]): Promise<ProbedPlaces> {
    const topologies: Topology[] = [];
    try {
      for (const [index, id] of ids.entries()) {
        const topology = await createTopology(id);
        topologies.push(topology);
        await join(topology, etcd, id, addressOf(index));
      }
      return new ProbedPlaces(ids, topologies);
    } catch (failure) {
      await removeAll(topologies);
      throw failure;
    }
  }

  async remove(): Promise<void> {
    await removeAll(this.#topologies);
  }
}

async function join({ node }: Topology, { namespace }: EtcdCluster, id: string, address: string): Promise<void> {
  await node.must('ip', 'link', 'add', LINK, 'type', 'veth', 'peer', 'name', id, 'netns', namespace);
  await node.must('ip', '-n', namespace, 'link', 'set', id, 'master', 'bridge', 'up');
  await node.must('ip', 'address', 'add', `${address}/24`, 'dev', LINK);
  await node.must('ip', 'link', 'set', LINK, 'up');
  await node.must('sysctl', '-qw', `net.ipv4.conf.${LINK}.route_localnet=1`);
  const chain = 'add chain ip api in { type nat hook prerouting priority dstnat; }';
  const rule = `add rule ip api in iifname ${LINK} ip daddr ${address} meta l4proto tcp dnat to 127.0.0.1`;
  await node.must('nft', `add table ip api; ${chain}; ${rule}`);
}

function addressOf(index: number): string {
  return `10.79.0.${FIRST_ADDRESS + index}`;
}

async function removeAll(topologies: readonly Topology[]): Promise<void> {
  for (const topology of topologies) await topology.remove();
}
