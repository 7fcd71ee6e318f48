import { writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { firstLine, type NodeProcess, startNode } from '#cli/tour/node-process.js';
import { ADDRESSES, createTopology, type Topology } from '#cli/tour/topology.js';
import { builtObject } from '#dataplane/loader/bpf-object.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { helloOfNode } from '#test/service-plane/tls/recorded-hello.js';
import type { Bench, Row } from './bench.js';
import { quantile } from './forward/comparison.js';
import { LOAD_CPU, PROXY_CPU } from './inspection/site.js';

/**
 * The TCP ports of the server. At each of these ports the benchmark measures bulk transfer, and at the next
 * higher port it measures connections with one reply. Weir forwards connections to `forwarded`, and splices
 * those to `spliced`.
 */
const PORTS = { forwarded: 7_000, spliced: 7_100 } as const;
const SECONDS = 1.5;
const ROUNDS = 9;
const CONNECTIONS = 32;
const ends = join(dirname(builtObject), '../bench/splice/ends');

/**
 * Measures bytes a second of spliced connections in metadata mode, relative to the same bytes forwarded, and
 * new connections a second.
 */
export const spliceBench: Bench = { name: 'splice', run: measure };

async function measure(): Promise<readonly Row[]> {
  const topology = await createTopology('splice');
  let node: NodeProcess | undefined;
  try {
    // A closed connection occupies a client port for one minute (TIME_WAIT). The default port range is too
    // small for the connections of this benchmark.
    await topology.client.must('sysctl', '-qw', 'net.ipv4.ip_local_port_range=1024 65000');
    const ports = Object.values(PORTS).map(String);
    await firstLine(topology.server.start('taskset', ['-c', LOAD_CPU, ends, 'serve', ...ports]));
    node = await startWeir(topology);
    const hello = join(node.folder, 'hello');
    await writeFile(hello, await helloOfNode({ servername: SERVER_NAME }));
    const load = async (what: string, port: number, ...more: readonly number[]): Promise<number> => {
      const words = [ends, what, ADDRESSES.server, port, hello, SECONDS, ...more].map(String);
      return Number(await topology.client.must('taskset', '-c', LOAD_CPU, ...words));
    };
    const bulk: number[] = [];
    const fresh: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const forwarded = await load('send', PORTS.forwarded);
      bulk.push((await load('send', PORTS.spliced)) / forwarded);
      fresh.push(await load('connect', PORTS.spliced + 1, CONNECTIONS));
    }
    return [
      { what: 'bytes a second, relative to forwarding', value: quantile(bulk, 0.5), unit: '×', atLeast: 0.8 },
      { what: 'new connections a second', value: quantile(fresh, 0.5), unit: '/s', atLeast: 2_000 },
    ];
  } finally {
    await node?.remove();
    await topology.remove();
  }
}

async function startWeir(topology: Topology): Promise<NodeProcess> {
  const node = await startNode(topology, { cpu: PROXY_CPU, sections: { service_plane: { workers: 1 } } });
  await node.ready({ except: ['policy_ready'] });
  const both = (port: number) => ({ proto: 'tcp', dst_ports: [port, port + 1] });
  const rules = [
    { id: 'forwarded', action: 'allow', match: both(PORTS.forwarded) },
    { id: 'spliced', action: 'allow', match: { ...both(PORTS.spliced), tls: { sni: [SERVER_NAME] } } },
  ];
  const group = { id: 'clients', mode: 'enforce', sources: { ips: [ADDRESSES.client] }, rules };
  const reply = await node.request('PUT', '/api/v1/policy', { default_policy: 'deny', source_groups: [group] });
  if (reply.status >= 300) throw new Error(`PUT /api/v1/policy: ${reply.status} ${reply.text}`);
  await node.ready();
  return node;
}
