import { type ChildProcess, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { CliError } from '#cli/errors/command-error.js';
import { built } from '#threads/built-file.js';
import { type Namespace, namespaceOf, type Topology, temporaryFolder } from './topology.js';

const ADDRESS = '10.78.0.1';
const FIRST_NODE = 11;
const CLIENTS = `http://${ADDRESS}:2379`;
const MEMBERS = 'http://127.0.0.1:2380';
const START_MS = 10_000;

/**
 * A real etcd in a network namespace with a bridge. Each node of the tour has a link to the bridge:
 *
 *     etcd 10.78.0.1 ── bridge ── 10.78.0.11 etcd0 [node n1]
 */
export class TourEtcd {
  readonly endpoint = CLIENTS;
  readonly #namespace: Namespace;
  readonly #folder: string;
  #process: ChildProcess | null = null;

  private constructor(namespace: Namespace, folder: string) {
    this.#namespace = namespace;
    this.#folder = folder;
  }

  static async create(): Promise<TourEtcd> {
    installEtcd();
    const etcd = new TourEtcd(await namespaceOf('etcd'), await temporaryFolder('etcd'));
    try {
      const inside = (...words: string[]) => etcd.#namespace.must('ip', ...words);
      await inside('link', 'set', 'lo', 'up');
      await inside('link', 'add', 'bridge', 'type', 'bridge');
      await inside('address', 'add', `${ADDRESS}/24`, 'dev', 'bridge');
      await inside('link', 'set', 'bridge', 'up');
      await etcd.start();
      return etcd;
    } catch (failure) {
      await etcd.remove();
      throw failure;
    }
  }

  /** Connects the node of a topology to the bridge. Returns the address of the node. */
  async connect({ node }: Topology, index: number): Promise<string> {
    const address = `10.78.0.${FIRST_NODE + index}`;
    const port = `n${index + 1}`;
    await node.must('ip', 'link', 'add', 'etcd0', 'type', 'veth', 'peer', 'name', port, 'netns', this.#namespace.name);
    await this.#namespace.must('ip', 'link', 'set', port, 'master', 'bridge', 'up');
    await node.must('ip', 'address', 'add', `${address}/24`, 'dev', 'etcd0');
    await node.must('ip', 'link', 'set', 'etcd0', 'up');
    return address;
  }

  async start(): Promise<void> {
    // The data is removed after the tour, so etcd need not wait for the disk.
    this.#process = this.#namespace.start('etcd', [
      ...['--name', 'tour', '--data-dir', join(this.#folder, 'data'), '--log-level', 'error', '--unsafe-no-fsync'],
      ...['--listen-client-urls', CLIENTS, '--advertise-client-urls', CLIENTS],
      ...['--listen-peer-urls', MEMBERS, '--initial-advertise-peer-urls', MEMBERS],
      ...['--initial-cluster', `tour=${MEMBERS}`],
    ]);
    for (const until = Date.now() + START_MS; ; await pause(100)) {
      const { code } = await this.#namespace.run('etcdctl', '--endpoints', CLIENTS, 'endpoint', 'health');
      if (code === 0) return;
      if (Date.now() > until) throw new Error(`etcd is not healthy ${START_MS / 1_000} s after its start`);
    }
  }

  async stop(): Promise<void> {
    const running = this.#process;
    if (running === null || running.exitCode !== null || running.signalCode !== null) return;
    const ended = new Promise((resolve) => running.once('exit', resolve));
    running.kill('SIGKILL');
    await ended;
  }

  async remove(): Promise<void> {
    await this.stop();
    await this.#namespace.remove();
    await rm(this.#folder, { recursive: true, force: true });
  }
}

/** Installs etcd if it is missing. Throws a `CliError` if this copy of Weir has no set-up script. */
function installEtcd(): void {
  const isThere = ['etcd', 'etcdctl'].every((name) => spawnSync(name, ['--version'], { env: API }).error === undefined);
  if (isThere) return;
  const setup = built('../scripts/setup.sh');
  const installed = existsSync(setup) && spawnSync('bash', [setup, '--cluster'], { stdio: 'inherit' }).status === 0;
  if (!installed) throw new CliError('etcd is not installed', { fix: 'apt-get install etcd-server etcd-client' });
}
const API = { ...process.env, ETCDCTL_API: '3' };
