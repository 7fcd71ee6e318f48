import { setTimeout as pause } from 'node:timers/promises';
import { CliError } from '#cli/errors/command-error.js';
import { TourEtcd } from './etcd.js';
import { printCommands, printConsoleLink, startTraffic } from './kept.js';
import { firstLine, type NodeProcess, program, startNode } from './node-process.js';
import { expectLine, farewell, interruption, print, result, START, step, TourFailure, WEIR } from './steps.js';
import { ADDRESSES, createTopology, type Topology } from './topology.js';

const IDS = ['n1', 'n2', 'n3'] as const;
const FIRST_PORT = 8081;
const DENIED = 'refused ETIMEDOUT';
const WAIT_MS = 15_000;

const policy = (port: number) => ({
  default_policy: 'deny',
  source_groups: [
    {
      id: 'clients',
      mode: 'enforce',
      sources: { cidrs: ['10.77.1.0/24'] },
      rules: [{ id: 'web', action: 'allow', match: { dst_ips: [ADDRESSES.server], proto: 'tcp', dst_ports: [port] } }],
    },
  ],
});

/** A node of the tour, with its own client and its own server. */
type Site = { readonly id: string; readonly topology: Topology; readonly node: NodeProcess };

/**
 * Creates three nodes and etcd in network namespaces, and shows a cluster: a policy for all nodes, a killed
 * node, and an outage of etcd. With `keep`, leaves the nodes running with traffic until Ctrl-C. Resolves with
 * the exit code.
 */
export async function clusterTour(keep: boolean): Promise<number> {
  const { missingForDataplane } = await import('#main.js');
  const [missing] = await missingForDataplane();
  if (missing !== undefined) throw new CliError(`Weir cannot enforce policies on this machine: ${missing.sentence}`);
  const interrupted = interruption();
  const removals: (() => Promise<unknown>)[] = [];
  let isOver = false;
  try {
    const done = await Promise.race([tour(removals), interrupted]);
    if (done !== 'interrupted' && keep) {
      await Promise.race([keepRunning(done), interrupted]);
      await interrupted;
    }
    isOver = true;
    return 0;
  } catch (failure) {
    print(`\nThe tour failed: ${failure instanceof Error ? failure.message : String(failure)}`);
    return 1;
  } finally {
    for (const remove of removals.reverse()) await remove();
    if (isOver)
      farewell('three nodes, etcd, their network namespaces, the pinned programs and all files', [
        ...(keep ? [] : [[`${START} --cluster --keep`, 'the same, left running: look at it in the console'] as const]),
        [`${WEIR} init --interfaces lan0,wan0`, 'configures this machine as a node'],
        [`${WEIR} cluster init`, 'makes the cluster, on the first node'],
        [`${WEIR} cluster token`, 'a token with which another node joins'],
      ]);
  }
}

async function tour(removals: (() => Promise<unknown>)[]): Promise<readonly Site[]> {
  print('Weir tour of a cluster: three nodes, each between a client and a server, and etcd. All on this machine.');
  const etcd = await TourEtcd.create();
  removals.push(() => etcd.remove());
  const sites: Site[] = [];
  for (const [index, id] of IDS.entries()) {
    const topology = await createTopology(id);
    removals.push(() => topology.remove());
    const address = await etcd.connect(topology, index);
    const peer = { listen: `${address}:7443`, advertise: `${address}:7443` };
    const sections = { cluster: { etcd: { endpoints: [etcd.endpoint] }, peer } };
    const node = await startNode(topology, { id, port: FIRST_PORT + index, sections });
    removals.push(() => node.remove());
    await firstLine(topology.server.start(process.execPath, [program('tour-traffic'), 'serve', '80', '81']));
    sites.push({ id, topology, node });
  }
  const [n1, n2, n3] = sites as [Site, Site, Site];

  step(1, 'One node creates the cluster: POST /api/v1/cluster/init. The other nodes follow.');
  await n1.node.ready({ except: ['policy_ready', 'cluster', 'policy_replication'] });
  await accepted(n1, 'POST', '/api/v1/cluster/init');
  for (const { node } of sites) await node.ready({ except: ['policy_ready'] });
  result(`members: ${(await membersOf(n1)).join(', ')}`);

  step(2, 'A policy is written at n1. It allows TCP port 80.');
  await put(n1, 80);
  await allEnforce(sites, 80);

  step(3, 'n3 is killed. Its kernel enforces the last policy without the process.');
  await n3.node.end('SIGKILL');
  await allEnforce([n3], 80);

  step(4, 'Another policy is written at n2. It allows port 81 instead. The write waits 3 s for the vote of n3.');
  await put(n2, 81);
  await allEnforce([n1, n2], 81);
  result('n3: still the policy before');
  await enforces(n3, 80);

  step(5, 'n3 starts again, and follows.');
  await n3.node.restart();
  await n3.node.ready();
  await allEnforce([n3], 81);

  step(6, 'etcd is stopped. All nodes enforce on, and reads work. A write is refused.');
  await etcd.stop();
  const refused = await until('n1 refuses a write', async () => {
    const reply = await n1.node.request('PUT', '/api/v1/policy', policy(80));
    return reply.status === 503 ? reply : null;
  });
  result(`${refused.status}: ${(refused.body as { detail: string }).detail}`);
  result(`GET /api/v1/policy: ${(await n2.node.request('GET', '/api/v1/policy')).status}`);
  await allEnforce(sites, 81);

  step(7, 'etcd starts again. The nodes connect by themselves.');
  await etcd.start();
  // Wait for the membership and not for readiness: a short loss of etcd may end the membership of a node, but
  // does not change its readiness.
  await until('all nodes as members', async () => {
    const { body } = await n3.node.request('GET', '/api/v1/cluster');
    return (body as { members: unknown[] | null }).members?.length === IDS.length ? true : null;
  });
  for (const { node } of sites) await node.ready();
  await put(n3, 80);
  await allEnforce(sites, 80);

  step(8, 'The connections that all nodes denied (GET /api/v1/audit/findings at n1):');
  const found = await until('the findings of all nodes', async () => {
    const { body } = await n1.node.request('GET', '/api/v1/audit/findings?finding_type=l4_deny');
    const { items } = body as { items: { dst_port: number; count: number; node_ids: string[] }[] };
    return items.some(({ node_ids: nodes }) => nodes.length === IDS.length) ? items : null;
  });
  for (const { dst_port: port, count, node_ids: nodes } of found)
    result(`${ADDRESSES.client} → ${ADDRESSES.server}:${port}: ${count} packets denied at ${nodes.join(', ')}`);
  return sites;
}

async function accepted({ id, node }: Site, method: string, path: string, body?: unknown) {
  const reply = await node.request(method, path, body);
  if (reply.status > 299) throw new TourFailure(`${id}: ${method} ${path}: ${reply.status} ${reply.text}`);
  return reply;
}

async function put(site: Site, port: number): Promise<void> {
  const began = performance.now();
  const { headers } = await accepted(site, 'PUT', '/api/v1/policy', policy(port));
  const ms = Math.round(performance.now() - began);
  const staged = headers.get('weir-nodes');
  result(`generation ${headers.get('weir-generation')}, staged by ${staged} members before the commit, ${ms} ms`);
}

async function allEnforce(sites: readonly Site[], port: number): Promise<void> {
  for (const site of sites) await enforces(site, port);
  const names = sites.map(({ id }) => id).join(', ');
  result(`${names}: client → server:${port} open; client → server:${other(port)} no answer`);
}

/**
 * Waits until a node allows connections to `port`, and checks that it denies those to the other port of the
 * tour.
 */
async function enforces({ id, topology }: Site, port: number): Promise<void> {
  await until(`${id} allows port ${port}`, async () =>
    expectLine(topology, ['connect', ADDRESSES.server, String(port)], 'open').then(
      () => true,
      () => null,
    ),
  );
  await expectLine(topology, ['connect', ADDRESSES.server, String(other(port))], DENIED);
}

const other = (port: number): number => (port === 80 ? 81 : 80);

async function membersOf({ node }: Site): Promise<readonly string[]> {
  const { body } = await node.request('GET', '/api/v1/cluster');
  const { members } = body as { members: { id: string; leads: boolean }[] };
  return members.map(({ id, leads }) => (leads ? `${id} (leader)` : id));
}

async function until<T>(what: string, attempt: () => Promise<T | null>): Promise<T> {
  for (const end = performance.now() + WAIT_MS; ; await pause(100)) {
    const value = await attempt();
    if (value !== null) return value;
    if (performance.now() > end) throw new TourFailure(`this did not happen within ${WAIT_MS / 1_000} s: ${what}`);
  }
}

/** Leaves traffic at each node, and prints how to look at it. */
async function keepRunning(sites: readonly Site[]): Promise<void> {
  const words = (port: number) => ['connect', ADDRESSES.server, String(port), ADDRESSES.client];
  for (const { topology } of sites)
    await startTraffic(topology, [
      { everyMs: 1_000, words: words(80) },
      { everyMs: 3_000, words: words(81) },
    ]);
  const [first] = sites;
  if (first === undefined) return;
  print('\nThe nodes stay up, each with the traffic of a client. The console of n1 shows them:');
  await printConsoleLink(first.node);
  printCommands(first.node, first.topology, ['cluster status', 'cluster nodes', 'findings']);
  for (const { id, node } of sites.slice(1)) print(`   ${id}: ${node.url}`);
  print('\nCtrl-C ends the tour and removes everything that it has created.');
}
