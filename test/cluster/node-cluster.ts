import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { ProgressClock } from '#test/progress-clock.js';
import { built } from '#threads/built-file.js';
import type { EtcdCluster } from './etcd-cluster.js';

const FIRST_PORT = 8081;
const FIRST_PEER_PORT = 9081;

export type Reply = {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly body: unknown;
};
type Check = { readonly name: string; readonly ok: boolean; readonly state: string; readonly detail: string };

/**
 * The network namespace of a node, and the address under which the tests reach its API, and the other nodes
 * its peer listener. Both listen on loopback: for another address, the namespace must forward their ports.
 * `sections` are further sections of the configuration.
 */
export type Place = {
  readonly namespace: string;
  readonly address: string;
  readonly sections: Readonly<Record<string, unknown>>;
};

/**
 * A node of Weir. By default it is in the namespace of the clients of an etcd cluster and has no dataplane.
 * The tests run in the namespace of the clients, see `enterNamespace`. With `cluster: null`, the node is
 * alone.
 */
export class ClusterNode {
  readonly folder: string;
  readonly url: string;
  readonly peerAddress: string;
  /**
   * Exits of the node without SIGKILL and with another code than 0, or with a resource that was still open,
   * each with the end of the log.
   */
  readonly crashes: string[] = [];
  readonly #config: string;
  readonly #namespace: string;
  #process: ChildProcess | null = null;

  constructor(
    readonly id: string,
    index: number,
    etcd: EtcdCluster,
    more: Readonly<Record<string, unknown>> = {},
    place: Place = { namespace: etcd.namespace, address: '127.0.0.1', sections: {} },
  ) {
    this.folder = join(etcd.folder, id);
    this.url = `http://${place.address}:${FIRST_PORT + index}`;
    this.#namespace = place.namespace;
    mkdirSync(this.folder);
    writeFileSync(this.logFile, '');
    const file = (name: string) => join(etcd.folder, name);
    const tls = { ca: file('ca.pem'), cert: file('weir.pem'), key: file('weir.key') };
    const { cluster, ...sections } = more;
    const isAlone = cluster === null;
    this.peerAddress = `127.0.0.1:${FIRST_PEER_PORT + index}`;
    const peer = { listen: this.peerAddress, advertise: `${place.address}:${FIRST_PEER_PORT + index}` };
    const config = {
      version: 1,
      node: { id, data_dir: join(this.folder, 'data') },
      log: { level: 'info', format: 'json' },
      api: {
        listen: `127.0.0.1:${FIRST_PORT + index}`,
        allowed_hosts: [place.address],
        requests_per_second: 10_000,
      },
      policy: { fallback: 'deny' },
      ...(isAlone
        ? {}
        : { cluster: { etcd: { endpoints: etcd.endpoints, tls }, peer, ...(cluster as object | undefined) } }),
      ...place.sections,
      ...sections,
    };
    this.#config = join(this.folder, 'weir.yaml');
    writeFileSync(this.#config, JSON.stringify(config));
  }

  get logFile(): string {
    return join(this.folder, 'weir.log');
  }

  /** The admin token of the node. */
  get token(): string {
    return readFileSync(join(this.folder, 'data', 'admin.token'), 'utf8').trim();
  }

  get pid(): number {
    return this.#process?.pid ?? 0;
  }

  /** `env`: variables that the process has in addition to those of the test. */
  start(env: Readonly<Record<string, string>> = {}): void {
    this.#process = spawn(
      'nsenter',
      [
        `--net=/run/netns/${this.#namespace}`,
        process.execPath,
        built('../bin/weir.js'),
        'run',
        '--config',
        this.#config,
      ],
      { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } },
    );
    let isHeld = false;
    this.#process.once('close', (code, signal) => {
      if (!isHeld && (code === 0 || signal === 'SIGKILL')) return;
      this.crashes.push(`${this.id} ended with ${code ?? signal}: ${readFileSync(this.logFile, 'utf8').slice(-4_000)}`);
    });
    for (const stream of [this.#process.stdout, this.#process.stderr])
      stream?.on('data', (chunk: Buffer) => {
        isHeld ||= chunk.includes('weir: still open at the end');
        appendFileSync(this.logFile, chunk);
      });
  }

  /** Waits until the API responds. */
  async serves(): Promise<void> {
    for (const clock = new ProgressClock(); ; await pause(50)) {
      try {
        if ((await fetch(`${this.url}/health`)).ok) break;
      } catch (failure) {
        if (clock.isOver(20_000) || this.#process?.exitCode !== null)
          throw new Error(`${this.id} does not start: ${readFileSync(this.logFile, 'utf8').slice(-2_000)}`, {
            cause: failure,
          });
      }
    }
  }

  async request(
    method: string,
    path: string,
    body?: unknown,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Reply> {
    const response = await this.#fetch(path, {
      method,
      headers: {
        authorization: `Bearer ${this.token}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(60_000),
    });
    const text = await response.text();
    const isJson = /json/.test(response.headers.get('content-type') ?? '');
    return { status: response.status, headers: response.headers, text, body: isJson ? JSON.parse(text) : null };
  }

  /** Like `fetch`. If the connection fails because the node has crashed, throws an error about the crash. */
  async #fetch(path: string, init: RequestInit): Promise<Response> {
    try {
      return await fetch(this.url + path, init);
    } catch (failure) {
      // The connection ends before this process learns that the node has exited.
      await pause(50);
      const [crash] = this.crashes;
      throw crash === undefined ? failure : new Error(crash, { cause: failure });
    }
  }

  async check(name: string): Promise<Check> {
    const { body } = await this.request('GET', '/ready');
    const found = (body as { checks: Check[] }).checks.find((check) => check.name === name);
    if (found === undefined) throw new Error(`there is no check ${name}`);
    return found;
  }

  /** Waits until the readiness check `name` has this state. */
  async until(name: string, state: string, withinMs = 10_000): Promise<Check> {
    for (const clock = new ProgressClock(); ; await pause(20)) {
      const found = await this.check(name);
      if (found.state === state) return found;
      if (clock.isOver(withinMs))
        throw new Error(`${this.id}: ${name} is ${found.state}, not ${state}: ${found.detail}`);
    }
  }

  /** Waits until the readiness check `name` passes. */
  async passes(name: string, withinMs = 15_000): Promise<void> {
    for (const clock = new ProgressClock(); ; await pause(20)) {
      const found = await this.check(name);
      if (found.ok) return;
      if (clock.isOver(withinMs)) throw new Error(`${this.id}: ${name} is ${found.state}: ${found.detail}`);
    }
  }

  /** Waits until the node is a member, has a leader, and has the newest policy in force. */
  async takesPart(withinMs = 15_000): Promise<void> {
    await this.until('policy_replication', 'in_step', withinMs);
    await this.passes('cluster', withinMs);
  }

  /** Returns the address with this port to which the node has sent data last; null without a connection. */
  lastContact(port: number): string | null {
    const words = ['-Htni', 'state', 'established', `dport = :${port}`];
    const list = execFileSync('nsenter', [`--net=/run/netns/${this.#namespace}`, 'ss', ...words], {
      encoding: 'utf8',
    });
    const found = [...list.matchAll(new RegExp(` ([\\d.]+):${port}\\b.*\\n.* lastsnd:(\\d+)`, 'g'))];
    const [last] = found.sort(([, , left], [, , right]) => Number(left) - Number(right));
    return last?.[1] ?? null;
  }

  signal(signal: NodeJS.Signals): void {
    this.#process?.kill(signal);
  }

  async end(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const child = this.#process;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGCONT');
    child.kill(signal);
    await ended;
  }
}

/**
 * Starts nodes `n1`, `n2` and so on, and creates the cluster at the first one. Without `places`, all nodes
 * are in the namespace of the clients of etcd.
 */
export async function startNodes(
  etcd: EtcdCluster,
  size: number,
  more: Readonly<Record<string, unknown>> = {},
  places: readonly Place[] = [],
): Promise<readonly ClusterNode[]> {
  const nodes = Array.from(
    { length: size },
    (_, index) => new ClusterNode(`n${index + 1}`, index, etcd, more, places[index]),
  );
  for (const node of nodes) node.start();
  await created(nodes);
  return nodes;
}

/** Waits until nodes serve, and creates their cluster at the first one. Ends the nodes after a failure. */
export async function created(nodes: readonly ClusterNode[]): Promise<void> {
  try {
    await Promise.all(nodes.map((node) => node.serves()));
    const [first] = nodes;
    const reply = await first?.request('POST', '/api/v1/cluster/init');
    if (reply?.status !== 200) throw new Error(`init: ${reply?.status} ${reply?.text}`);
    await Promise.all(nodes.map((node) => node.takesPart()));
  } catch (failure) {
    await Promise.all(nodes.map((node) => node.end()));
    throw failure;
  }
}
