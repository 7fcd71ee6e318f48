import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseIpv4Address } from '#addresses/ip-address.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { builtObject } from '#dataplane/loader/bpf-object.js';
import { compile } from '#policy/compile/compile.js';
import type { Bench, Row } from '../bench.js';
import { attachWeir, BY_STACK } from './attached-weir.js';
import { Comparison } from './comparison.js';
import { chainOfGroup } from './competitors.js';
import { load } from './load.js';
import { BENCH_CPU } from './one-cpu.js';
import { groupsOfTen, type Permits, policyOf } from './policies.js';
import { ForwardRig } from './rig.js';

const PORT = 7_000;
const PORTS = 8;
const ROUND = 2_000;
/**
 * Maximum number of rounds. The connections of all rounds must fit into the flow table at the same time,
 * because the flow of a closed connection stays there for ten seconds.
 */
const ROUNDS = 24;
const program = join(dirname(builtObject), '../bench/forward/connections');

/** A process that opens short TCP connections through the node of a rig: connect, accept, close. */
class Connections {
  readonly #answers: AsyncIterator<string>;

  private constructor(readonly child: ChildProcess) {
    if (child.stdout === null) throw new Error('the process that opens the connections has no stdout');
    this.#answers = createInterface(child.stdout)[Symbol.asyncIterator]();
  }

  static async begin({ topology }: ForwardRig): Promise<Connections> {
    const { client, node, server } = topology;
    // Limit the number of TIME_WAIT sockets of the server, which closes each connection first. Otherwise
    // these sockets would accumulate and slow later rounds down.
    await server.must('sysctl', '-qw', 'net.ipv4.tcp_max_tw_buckets=1000');
    await client.must('sysctl', '-qw', 'net.ipv4.ip_local_port_range=1024 65000');
    const namespaces = [client, server].map(({ name }) => `/run/netns/${name}`);
    const words = [program, ...namespaces, ADDRESSES.server, PORT, PORTS].map(String);
    const connections = new Connections(node.start('taskset', ['-c', String(BENCH_CPU), ...words]));
    await connections.#answers.next();
    return connections;
  }

  /** Opens `count` connections. Returns nanoseconds per connection. */
  async run(count: number): Promise<number> {
    this.child.stdin?.write(`${count}\n`);
    const { value, done } = await this.#answers.next();
    if (done === true) throw new Error('connections ended');
    return Number(value);
  }

  async end(): Promise<void> {
    const gone = once(this.child, 'exit');
    this.child.stdin?.end();
    await gone;
  }
}

/**
 * Ten thousand permits for other sources, and one permit for TCP connections from the client to the ports of
 * this benchmark.
 */
const permits: Permits = [
  ...groupsOfTen(10_000),
  [
    {
      source: { address: parseIpv4Address(ADDRESSES.client) ?? 0, length: 32 },
      destination: { address: parseIpv4Address(ADDRESSES.server) ?? 0, length: 32 },
      ports: { low: PORT, high: PORT + PORTS - 1 },
      protocol: 'tcp',
    },
  ],
];

async function run(): Promise<readonly Row[]> {
  const plainRig = await ForwardRig.open('nc-plain', 1);
  const rig = await ForwardRig.open('nc', 1);
  try {
    const plain = await Connections.begin(plainRig);
    const comparison = new Comparison(ROUNDS);
    const share = async (): Promise<number> => {
      const other = await Connections.begin(rig);
      const cost = await comparison.cost({ plain: () => plain.run(ROUND), other: () => other.run(ROUND) });
      await other.end();
      return 1 / cost;
    };
    const nftables = (tracked: boolean): Promise<number> => {
      load(rig.topology, ['nft', '-f', '-'], chainOfGroup.text(permits, tracked));
      return share();
    };
    const alone = await share();
    const weirShare = async (settings = {}): Promise<number> => {
      const weir = await attachWeir(rig, compile(policyOf(permits)), settings);
      const direct = await share();
      await weir.detach();
      return direct;
    };
    const direct = await weirShare();
    const byStack = await weirShare(BY_STACK);
    // Measure nftables last, because the hooks of connection tracking stay registered for some time after the
    // rules are deleted.
    const tracked = await nftables(true);
    return [
      { what: 'unfiltered, a connection', value: comparison.plainNs / 1000, unit: 'µs' },
      { what: 'a second unfiltered node', value: alone, unit: '× unfiltered' },
      { what: 'Weir, 10,000 rules', value: direct, unit: '× unfiltered', atLeast: 0.95 },
      { what: 'Weir, forwarding: stack, 10,000 rules', value: byStack, unit: '× unfiltered' },
      {
        what: 'nftables, verdict map to a chain a group, ct established first, 10,000 rules',
        value: tracked,
        unit: '× unfiltered',
      },
    ];
  } finally {
    await rig.remove();
    await plainRig.remove();
  }
}

/** Measures short TCP connections a second through a filter with 10,000 rules, relative to no filter. */
export const connectionsBench: Bench = { name: 'connections', run };
