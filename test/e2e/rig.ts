import { firstLine, type NodeOptions, type NodeProcess, program, startNode } from '#cli/tour/node-process.js';
import { ADDRESSES, createTopology, type Topology } from '#cli/tour/topology.js';

/**
 * Three network namespaces: a client, a node that runs Weir, and a server that echoes TCP and UDP on `ports`.
 */
export type NodeRig = {
  readonly topology: Topology;
  readonly node: NodeProcess;
  /**
   * Runs the traffic program on the client. Returns its first line: `open`, `pong 1`, `refused …` or `silent
   * 1`.
   */
  tcp(port: number, ...options: string[]): Promise<string>;
  udp(port: number, ...options: string[]): Promise<string>;
  ping(): Promise<boolean>;
  put(policy: unknown): Promise<void>;
  stats(): Promise<DataplaneStats>;
  remove(): Promise<void>;
};

export type DataplaneStats = {
  readonly packets: Readonly<Record<'allow' | 'deny' | 'audit', number>>;
  readonly drops: Readonly<Record<string, number>>;
};

const TIMEOUT_MS = '500';

/** Whether the tests run an installed Weir, whose nodes have the user and the capabilities of its unit. */
export const isInstalled = process.env.WEIR_COMMAND !== undefined;

/** The capabilities that docs/capabilities.md lists, without the prefix CAP_. */
const LEAST = ['NET_ADMIN', 'BPF', 'PERFMON', 'NET_RAW', 'NET_BIND_SERVICE'];

/** Options of a node that has only the capabilities in LEAST, without those in `missing`. */
export function leastPrivileges(missing: readonly string[] = [], user?: number): NodeOptions {
  if (isInstalled) return { without: missing };
  return { only: LEAST.filter((name) => !missing.includes(name)), ...(user === undefined ? {} : { user }) };
}

export async function createRig(tag: string, ports: readonly number[], options: NodeOptions = {}): Promise<NodeRig> {
  const topology = await createTopology(tag);
  let node: NodeProcess | undefined;
  try {
    const serving = firstLine(
      topology.server.start(process.execPath, [program('tour-traffic'), 'serve', ...ports.map(String)]),
    );
    node = await startNode(topology, options);
    await serving;
    await node.ready({ except: ['policy_ready'] });
  } catch (failure) {
    await node?.remove();
    await topology.remove();
    throw failure;
  }
  const running = node;
  const end = async (mode: string, port: number, words: readonly string[]): Promise<string> => {
    const child = topology.client.start(process.execPath, [
      program('tour-traffic'),
      ...[mode, ADDRESSES.server, String(port), '--timeout', TIMEOUT_MS, ...words],
    ]);
    try {
      return await firstLine(child);
    } finally {
      child.kill('SIGKILL');
    }
  };
  return {
    topology,
    node: running,
    tcp: (port, ...words) => end('connect', port, words),
    udp: (port, ...words) => end('datagram', port, words),
    ping: async () => (await topology.client.run('ping', '-n', '-c', '1', '-W', '0.5', ADDRESSES.server)).code === 0,
    put: async (policy) => {
      const reply = await running.request('PUT', '/api/v1/policy', policy);
      if (reply.status !== 200 && reply.status !== 201) throw new Error(`PUT: ${reply.status} ${reply.text}`);
    },
    stats: async () => {
      const reply = await running.request('GET', '/api/v1/stats');
      return (reply.body as { dataplane: DataplaneStats }).dataplane;
    },
    remove: async () => {
      await running.remove();
      await topology.remove();
    },
  };
}

type Match = Readonly<Record<string, unknown>>;
export type RuleInput = {
  readonly id?: string;
  readonly action?: 'allow' | 'deny';
  readonly mode?: 'audit' | 'enforce';
  readonly priority?: number;
  readonly match: Match;
};

/**
 * Returns a singleton policy with one group for the first address of the client. Rules without an id get the
 * ids r0, r1, … by position.
 */
export function policyOf(
  rules: readonly RuleInput[],
  group: Readonly<Record<string, unknown>> = {},
  policy: Readonly<Record<string, unknown>> = {},
): unknown {
  return {
    default_policy: 'deny',
    source_groups: [
      {
        id: 'clients',
        mode: 'enforce',
        sources: { ips: [ADDRESSES.client] },
        rules: rules.map((rule, index) => ({ id: `r${index}`, action: 'allow', ...rule })),
        ...group,
      },
    ],
    ...policy,
  };
}
