import type { ChildProcess } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import { firstLine, program } from '#cli/tour/node-process.js';
import { ADDRESSES, createTopology, type Topology } from '#cli/tour/topology.js';
import type { Flipped } from '#contracts/datapath/datapath.js';
import { type DatapathOptions, DEFAULT_TIMEOUTS_MS } from '#contracts/datapath/datapath-options.js';
import type { Policy } from '#contracts/policy/policy-model.js';
import { FLOW_BYTES, FLOW_LAYOUTS, readFlow } from '#dataplane/abi/flow.js';
import { MappedFlows } from '#dataplane/flows/listing/mapped-flows.js';
import { mapSetsIn } from '#dataplane/object/map-set.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { compile } from '#policy/compile/compile.js';
import { samplesOf } from '#policy/proof/proof-sample.js';
import { enterNamespace } from './namespace.js';
import { ALLOWED, DENIED } from './policies.js';
import type { Summary } from './prober.js';
import { hooksGone } from './tcx.js';

const MARK_MASK = 0x00f0_0000;
const proberFile = join(fileURLToPath(new URL('../..', import.meta.url)), 'dist/test/kernel/prober.js');

type Outcome = {
  /** Number of datagrams to the allowed port without a reply, minus those that a full socket buffer lost. */
  readonly lost: number;
  /** Number of new TCP flows that failed, and whether the permanent TCP flow was closed. */
  readonly failedTcp: readonly [number, boolean];
  /** Number of datagrams to the denied port that got a reply. */
  readonly leaked: number;
  /** Number of packets counted as denied, minus number of packets sent to the denied port. */
  readonly miscounted: number;
  /**
   * Number of packets that the permanent UDP flow sent, minus number of packets that the flow table counted
   * for this flow.
   */
  readonly unaccounted: number;
  /** Number of dropped packets for each drop reason except policy_deny. */
  readonly dropped: Readonly<Record<string, number>>;
};
export const NOTHING_LOST = { lost: 0, failedTcp: [0, false], leaked: 0, dropped: {} };

/**
 * A node between client and server, whose datapath runs in this process. The client counts the packets and
 * replies of its traffic, so that a test can check that the datapath loses, leaks or miscounts no packet.
 */
export type ProbedNode = {
  readonly topology: Topology;
  options(more?: Partial<DatapathOptions>): DatapathOptions;
  /** Creates and opens a datapath. From then on, the method `datapath` returns that datapath. */
  start(more?: Partial<DatapathOptions>): LocalDatapath;
  datapath(): LocalDatapath;
  /** Stages and proves a policy, and puts the policy in force. */
  putInForce(policy: Policy, generation: number): Flipped;
  mapSets(): string[];
  startProbes(): Promise<void>;
  endProbes(): Promise<Outcome>;
  /** Returns whether a datagram of the client to this port of the server gets a reply within `ms` (300). */
  answers(port: number, ms?: number): Promise<boolean>;
  /**
   * Ends the traffic, and removes pins, links and nftables rules of the datapath from the kernel. Resolves
   * when the kernel has detached the programs. Before, the datapath of the next test would refuse them as
   * those of another node.
   */
  clear(): Promise<void>;
  remove(): Promise<void>;
};

/** Creates the node, and moves this thread into the node's network namespace. */
export async function createProbedNode(tag: string): Promise<ProbedNode> {
  const topology = await createTopology(tag);
  const { client, server, pinPath } = topology;
  // Turn IPv6 off: interfaces send router solicitations from time to time, and datapaths of earlier builds
  // drop and count these packets.
  for (const space of [client, topology.node, server])
    await space.must('sysctl', '-qw', 'net.ipv6.conf.all.disable_ipv6=1');
  await firstLine(server.start(process.execPath, [program('tour-traffic'), 'serve', `${ALLOWED}`, `${DENIED}`]));
  const leave = enterNamespace(topology.node.name);
  let datapath: LocalDatapath | undefined;
  let probing: ChildProcess | undefined;
  const opened = (): LocalDatapath => {
    if (datapath === undefined) throw new Error('no datapath was started');
    return datapath;
  };
  const options: ProbedNode['options'] = (more = {}) => ({
    interfaces: ['lan0', 'wan0'],
    ipv6: 'drop',
    routerPorts: [],
    nonIpv4: 'drop',
    reversePath: 'strict',
    pickupMs: 0,
    flowCapacity: 65_536,
    flowShare: 1,
    programCapacity: 4_194_304,
    timeoutsMs: DEFAULT_TIMEOUTS_MS,
    policeLocal: false,
    forwarding: 'direct',
    grantCapacity: 1_024,
    markMask: MARK_MASK,
    pinPath,
    ...more,
  });
  /** Returns the number of datagrams that the receivers lost because their socket buffers were full. */
  const overflows = async (): Promise<number> => {
    const found = await Promise.all([client, server].map((end) => end.must('cat', '/proc/net/snmp')));
    return found.reduce((sum, text) => sum + Number(/^Udp: (?:\d+ ){4}(\d+)/m.exec(text)?.[1]), 0);
  };
  /** Returns the packet count of the UDP flow with the most packets, from the flow table. */
  const busiest = async (): Promise<number> => {
    const [set] = mapSetsIn(pinPath);
    if (set === undefined) throw new Error('nothing is pinned');
    let most = 0;
    const lines = new MappedFlows(FLOW_LAYOUTS.ipv4, {
      flows: set.fd('flows'),
      tallies: set.fd('tallies'),
      rankHits: set.fd('rank_hits'),
    });
    const words = new Uint32Array(FLOW_BYTES / 4);
    for (let line = 0; line < lines.count; line++) {
      if (!lines.read(line, words)) continue;
      const flow = readFlow(FLOW_LAYOUTS.ipv4, new DataView(words.buffer));
      if (flow.protocol === 17) most = Math.max(most, Number(flow.packets[0]));
    }
    lines.unmap();
    set.close();
    return most;
  };
  const node: ProbedNode = {
    topology,
    options,
    start: (more) => {
      datapath = new LocalDatapath(options(more));
      datapath.open();
      return datapath;
    },
    datapath: opened,
    putInForce: (wanted, generation) => {
      opened().stage(compile(wanted), generation);
      opened().prove(samplesOf(wanted));
      return opened().flip();
    },
    mapSets: () => readdirSync(pinPath).filter((name) => name.startsWith('maps-')),
    startProbes: async () => {
      probing = client.start(process.execPath, [proberFile, ADDRESSES.server, `${ALLOWED}`, `${DENIED}`]);
      await firstLine(probing);
      await traffic(300);
    },
    endProbes: async () => {
      if (probing === undefined) throw new Error('nothing is probing');
      const line = firstLine(probing);
      probing.stdin?.end();
      const summary = JSON.parse(await line) as Summary;
      console.log(JSON.stringify(summary));
      const { udp, freshUdp, tcp, freshTcp, denied } = summary;
      expect(udp.sent).toBeGreaterThan(50);
      const { drops } = opened().stats();
      return {
        lost: Math.max(0, udp.lost + freshUdp.failed - (await overflows())),
        failedTcp: [freshTcp.failed, tcp.closed],
        leaked: denied.answered,
        miscounted: Number(drops.policy_deny?.packets) - denied.sent,
        unaccounted: udp.sent - (await busiest()),
        dropped: Object.fromEntries(
          Object.entries(drops).flatMap(([name, { packets }]) =>
            packets === 0n || name === 'policy_deny' ? [] : [[name, Number(packets)]],
          ),
        ),
      };
    },
    answers: async (port, ms = 300) => {
      const words = ['datagram', ADDRESSES.server, `${port}`, '--timeout', `${ms}`];
      return (await firstLine(client.start(process.execPath, [program('tour-traffic'), ...words]))) === 'pong 1';
    },
    clear: async () => {
      probing?.kill('SIGKILL');
      probing = undefined;
      datapath?.close();
      detach(pinPath);
      await hooksGone(topology.node.name);
    },
    remove: async () => {
      leave();
      await topology.remove();
    },
  };
  return node;
}

/** Waits `ms` milliseconds while the traffic continues. */
export const traffic = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
