import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { ADDRESSES } from '#cli/tour/topology.js';
import { DNS_SECTION } from '#test/e2e/names.js';
import { createRig, type NodeRig } from '#test/e2e/rig.js';
import { enterNamespace } from '#test/kernel/namespace.js';
import { Churn, NODE_ADDRESSES, POD_ADDRESSES, podAddress } from '#test/kubernetes/churn.js';
import { ChurnConnections } from '#test/kubernetes/churn-connections.js';
import {
  CANARY,
  CHURN_GROUPS,
  type ChurnGroup,
  PrintedCluster,
  QUARANTINE,
} from '#test/kubernetes/churn-expectation.js';
import { ChurnPackets, type Datagram, Sentinels } from '#test/kubernetes/churn-packets.js';
import { CutProxy } from '#test/kubernetes/cut-proxy.js';
import { KubeApi, type KubeServer } from '#test/kubernetes/kube-api.js';
import type { Random } from '#test/seed.js';

/** `expired`: the API server restarts after etcd was compacted, so the node must list the objects again. */
export const FAULTS = [
  ...['none', 'cut', 'cut after bytes', 'expired', 'SIGSTOP', 'SIGKILL'],
  ...['node SIGTERM', 'node SIGKILL', 'node and server SIGKILL', 'policy'],
] as const;
type Fault = (typeof FAULTS)[number];

export type LifeSample = { readonly mib: number; readonly descriptors: number };

const API = 'http://127.0.0.1:8080';
/** How long the node's members may differ from kubectl. The client waits up to 30 s before it reconnects. */
const MEMBERS_MS = 60_000;
/** How long the kernel, DNS proxy and service plane may take after that: the policy may be compiled. */
const PARTS_MS = 5_000;
const [FIRST_PORT, BASE_PORT] = [9_000, 8_999];
/** The id of the source group that has all pod networks and the addresses of nodes. */
const BASE = 'base';
const ALL_GROUPS = [QUARANTINE, ...CHURN_GROUPS, CANARY];
const PODS_AND_NODES = [...POD_ADDRESSES, ...NODE_ADDRESSES];
/** The address of a pod that may always send, of a pod that may never send, and an address without a pod. */
const [ALLOWED, DENIED, UNOWNED] = [podAddress(1, 200), podAddress(1, 201), podAddress(1, 202)];

const portOf = (group: ChurnGroup | null): number =>
  group === null ? BASE_PORT : FIRST_PORT + ALL_GROUPS.indexOf(group);
const nameOf = (group: ChurnGroup | null): string => `${group?.id ?? BASE}.example.com`;

/** `tlsPort`: the port of the TLS server. */
function groupConfig(group: ChurnGroup | null, tlsPort: number): object {
  const allow = (id: string, match: object) => ({ id, action: 'allow', match });
  const to = (port: number, proto: string) => ({ proto, dst_ips: [ADDRESSES.server], dst_ports: [port] });
  return {
    id: group?.id ?? BASE,
    mode: 'enforce',
    sources: group === null ? { cidrs: ['10.244.0.0/15'] } : { kubernetes: [{ integration: 'prod', ...group.source }] },
    rules:
      group === QUARANTINE
        ? []
        : [
            allow('packets', to(portOf(group), 'udp')),
            allow('name', { dns_hostname: nameOf(group), proto: 'tcp', dst_ports: [443] }),
            allow('tls', { ...to(tlsPort, 'tcp'), tls: { sni: [nameOf(group)] } }),
          ],
    ...(group === QUARANTINE ? { default_action: 'deny' } : {}),
  };
}

/** A running node that follows a real API server through a proxy, and packets from the addresses of pods. */
export class ChurnRig {
  /** For each process of the node, its memory and descriptors at the times when no change was under way. */
  readonly lives: LifeSample[][] = [[]];
  /** The source groups of the policy in force that follow the group `quarantine`. */
  #groups: readonly ChurnGroup[] = CHURN_GROUPS;
  #comparisons = 0;
  #longest = { ms: 0, what: '' };

  private constructor(
    readonly random: Random,
    readonly rig: NodeRig,
    readonly kube: KubeApi,
    readonly proxy: CutProxy,
    readonly packets: ChurnPackets,
    readonly connections: ChurnConnections,
    readonly others: { readonly churn: Churn; readonly sentinels: Sentinels; readonly leave: () => void },
  ) {}

  static async start(random: Random, apiServer: KubeServer): Promise<ChurnRig> {
    const rig = await createRig('churn', [], { sections: { dns: DNS_SECTION, service_plane: {} } });
    const { client, node, server } = rig.topology;
    await client.must('ip', 'route', 'add', 'local', '10.244.0.0/15', 'dev', 'lo');
    await node.must('ip', 'route', 'add', '10.244.0.0/15', 'via', ADDRESSES.client);
    const upstream =
      '--no-daemon --conf-file=/dev/null --no-resolv --no-hosts --bind-interfaces --user=root --group=root';
    const words = ['--pid-file=', `--listen-address=${ADDRESSES.server}`, `--address=/example.com/${ADDRESSES.server}`];
    server.start('dnsmasq', [...upstream.split(' '), ...words]);
    const [web, base] = [portOf(CHURN_GROUPS[0] ?? null), BASE_PORT];
    const denied = [
      [DENIED, web],
      [DENIED, base],
      [UNOWNED, base],
    ] as const;
    const sentinels = new Sentinels((from, port, number) => packets.send(from, port, number), [ALLOWED, web], denied);
    const packets = await ChurnPackets.open(
      { client: client.name, server: server.name },
      [...PODS_AND_NODES, ALLOWED, DENIED, UNOWNED],
      [null, ...ALL_GROUPS].map(portOf),
      (source, port, number) => sentinels.received(source, port, number),
    );
    const connections = await ChurnConnections.open({ client: client.name, server: server.name });
    const leave = enterNamespace(node.name);
    const kube = await KubeApi.start(apiServer);
    const proxy = await CutProxy.start(Number(new URL(kube.url).port));
    const churn = new Churn(kube, random);
    const started = new ChurnRig(random, rig, kube, proxy, packets, connections, { churn, sentinels, leave });
    await churn.begin();
    await churn.addFixedPod('allowed', { app: 'web' }, ALLOWED);
    await churn.addFixedPod('denied', { app: 'web', quarantine: 'true' }, DENIED);
    const token = await kube.createAccount('weir', ['pods', 'nodes', 'namespaces']);
    await started.#api('POST', '/api/v1/integrations', {
      ...{ name: 'prod', kind: 'kubernetes', api_server_url: proxy.url },
      ca_cert_pem: kube.certificate.ca,
      service_account_token: token,
    });
    await started.#putPolicy();
    return started;
  }

  get churn(): Churn {
    return this.others.churn;
  }

  get sentinels(): Sentinels {
    return this.others.sentinels;
  }

  get shown(): string {
    const { ms, what } = this.#longest;
    return `${this.#comparisons} comparisons, the longest after ${Math.round(ms)} ms (${what})`;
  }

  /** Applies random events during a fault, and then compares the node with kubectl. */
  async round(fault: Fault, events: number): Promise<void> {
    this.sentinels.round = `${this.#comparisons} ${fault}`;
    await this.#begin(fault);
    await this.#events(events / 2);
    await this.#middle(fault);
    await this.#events(events / 2);
    await this.#end(fault);
    await this.agree(`fault ${fault}, event ${this.churn.events}, seed ${this.random.seed}`);
  }

  async remove(): Promise<void> {
    this.packets.close();
    this.connections.close();
    await this.proxy.close();
    await this.kube.remove();
    this.others.leave();
    await this.rig.remove();
  }

  async #events(count: number): Promise<void> {
    for (let event = 0; event < count; event++) await this.churn.event();
  }

  async #begin(fault: Fault): Promise<void> {
    if (fault === 'cut after bytes') this.proxy.cutAfter = this.random.between(1, 20_000);
    if (fault === 'expired') this.proxy.cutAfter = 0;
    if (fault.startsWith('cut') || fault === 'expired') this.proxy.cut();
    if (fault === 'SIGKILL') await this.kube.restart();
  }

  async #middle(fault: Fault): Promise<void> {
    if (fault === 'cut') this.proxy.cut();
    if (fault === 'node SIGTERM' || fault === 'node SIGKILL') {
      await this.rig.node.end(fault === 'node SIGTERM' ? 'SIGTERM' : 'SIGKILL');
      await this.#events(this.random.between(0, 10));
      await this.#startNode();
    }
    if (fault === 'node and server SIGKILL') {
      await this.kube.signal('SIGKILL');
      await this.rig.node.end('SIGKILL');
      await this.#startNode();
      await pause(this.random.between(0, 3_000));
      this.kube.startApi();
      await this.kube.ready();
    }
    if (fault === 'policy') {
      this.#groups = this.#groups.includes(CANARY)
        ? CHURN_GROUPS
        : [...CHURN_GROUPS.filter(({ id }) => id !== 'team-a'), CANARY];
      await this.#putPolicy();
    }
  }

  async #end(fault: Fault): Promise<void> {
    if (fault === 'expired') {
      await this.kube.signal('SIGKILL');
      this.kube.compact();
      this.kube.startApi();
      await this.kube.ready();
    }
    if (fault === 'SIGSTOP') {
      await this.kube.signal('SIGSTOP');
      await pause(3_500);
      await this.kube.signal('SIGCONT');
    }
    if (this.proxy.cutAfter === null) return;
    this.proxy.cutAfter = null;
    this.proxy.cut();
  }

  async #startNode(): Promise<void> {
    this.lives.push([]);
    await this.rig.node.restart();
  }

  async #api(method: string, path: string, body?: unknown): Promise<unknown> {
    const response = await fetch(API + path, {
      method,
      headers: { authorization: `Bearer ${await this.rig.node.token()}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(20_000),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text.startsWith('{') ? JSON.parse(text) : text;
  }

  async #putPolicy(): Promise<void> {
    const groups = [QUARANTINE, ...this.#groups, null].map((group) => groupConfig(group, this.connections.port));
    await this.#api('PUT', '/api/v1/policy', { default_policy: 'deny', source_groups: groups });
  }

  /** Waits until each part of the node agrees with kubectl. */
  async agree(what: string): Promise<void> {
    const from = performance.now();
    const cluster = await PrintedCluster.read(this.kube);
    await until(MEMBERS_MS, `${what}: members`, () => this.#memberFaults(cluster));
    const ms = performance.now() - from;
    if (ms > this.#longest.ms) this.#longest = { ms, what };
    await until(PARTS_MS, `${what}: datagrams`, () => this.#packetFaults(cluster));
    await until(PARTS_MS, `${what}: explain, lookups`, () => this.#sampleFaults(cluster));
    await until(PARTS_MS, `${what}: TLS connections`, () => this.#connectionFaults(cluster));
    this.#comparisons++;
    this.#sample();
  }

  async #memberFaults(cluster: PrintedCluster): Promise<readonly string[]> {
    const { items } = (await this.#api('GET', '/api/v1/policies')) as { items: { id: string; active: boolean }[] };
    const active = items.find((item) => item.active)?.id;
    const faults: string[] = [];
    for (const group of [QUARANTINE, ...this.#groups]) {
      const path = `/api/v1/policies/${active}/source-groups/${group.id}/members?limit=1000`;
      const found = ((await this.#api('GET', path)) as { items: { address: string }[] }).items;
      const [members, expected] = [found.map(({ address }) => address).sort(), [...cluster.membersOf(group)].sort()];
      if (members.join() !== expected.join()) faults.push(`${group.id} has ${members.join()}, not ${expected.join()}`);
    }
    const metrics = (await this.#api('GET', '/metrics')) as string;
    const count = /^weir_kubernetes_members (\d+)$/m.exec(metrics)?.[1];
    if (count !== String(cluster.owners.size))
      faults.push(`${count} members in the kernel, not ${cluster.owners.size}`);
    return faults;
  }

  get #inForce(): readonly (ChurnGroup | null)[] {
    return [null, ...this.#groups];
  }

  async #packetFaults(cluster: PrintedCluster): Promise<readonly string[]> {
    const arrived = await this.packets.probe(PODS_AND_NODES, [null, ...ALL_GROUPS].map(portOf));
    return PODS_AND_NODES.flatMap((address) =>
      [null, ...ALL_GROUPS].flatMap((group) => {
        const isArrived = arrived.has(`${address} ${portOf(group)}` satisfies Datagram);
        const isAllowed = this.#inForce.includes(group) && cluster.allows(group, address);
        return isArrived === isAllowed ? [] : [`${address} to ${group?.id ?? BASE}: ${isArrived}, not ${isAllowed}`];
      }),
    );
  }

  /** Compares the results of explain and of the DNS proxy with those of kubectl, for some addresses. */
  async #sampleFaults(cluster: PrintedCluster): Promise<readonly string[]> {
    const faults: string[] = [];
    for (let count = 0; count < 6; count++) {
      const src = this.random.pick(PODS_AND_NODES);
      for (const group of this.#inForce) {
        const isAllowed = cluster.allows(group, src);
        const question = { src, dst: ADDRESSES.server, proto: 'udp', src_port: 1_024, dst_port: portOf(group) };
        const explained = (await this.#api('POST', '/api/v1/policy/explain', question)) as { effective_action: string };
        if ((explained.effective_action === 'allow') !== isAllowed)
          faults.push(`explain ${src} to ${group?.id ?? BASE}: ${explained.effective_action}`);
        const code = await this.packets.lookUp(src, nameOf(group));
        if (code !== (isAllowed ? 'NOERROR' : 'NXDOMAIN')) faults.push(`lookup ${src} of ${nameOf(group)}: ${code}`);
      }
    }
    return faults;
  }

  /** Compares which TLS connections pass, from some addresses to the server names of all groups. */
  async #connectionFaults(cluster: PrintedCluster): Promise<readonly string[]> {
    const sources = Array.from({ length: 6 }, () => this.random.pick(PODS_AND_NODES));
    const tried = sources.flatMap((from) => this.#inForce.map((group) => ({ from, group, name: nameOf(group) })));
    const completed = await this.connections.completed(tried);
    return tried.flatMap((connection) => {
      const { from, group, name } = connection;
      const [isComplete, isAllowed] = [completed.includes(connection), cluster.allows(group, from)];
      return isComplete === isAllowed ? [] : [`TLS from ${from} to ${name}: ${isComplete}, not ${isAllowed}`];
    });
  }

  #sample(): void {
    const { pid } = this.rig.node;
    const rss = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    this.lives.at(-1)?.push({ mib: Number(rss) / 1_024, descriptors: readdirSync(`/proc/${pid}/fd`).length });
  }
}

/** Waits until a comparison finds no fault. */
async function until(withinMs: number, what: string, compare: () => Promise<readonly string[]>): Promise<void> {
  for (const end = performance.now() + withinMs; ; await pause(100)) {
    // A node that starts does not serve requests yet.
    const faults = await compare().catch((failure: unknown) => [String(failure)]);
    if (faults.length === 0) return;
    if (performance.now() > end) throw new Error(`${what}: ${faults.join('; ')}`);
  }
}
