import { type ChildProcess, execFile, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { EtcdOptions } from '#cluster/etcd/etcd-types.js';
import type { PeerIdentity } from '#cluster/peers/peer-identity.js';
import { selfSigned } from '#service-plane/ca/signed-certificate.js';
import { blockAt } from '#test/docs/blocks.js';
import { ProgressClock } from '#test/progress-clock.js';

const CLIENT_PORT = 2379;
const PEER_PORT = 2380;
const ROOT = 'root';
/** The user of Weir in etcd: the common name of its client certificate. */
const USER = 'weir';
const ENV = { ...process.env, ETCDCTL_API: '3' };
const NEW_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];

/** Options of a `Cluster` to whose node no other node sends requests. */
export const NO_PEERS = {
  identity: (present: PeerIdentity | null) => present ?? { ...selfSigned('node'), ca: null },
  access: () => {
    throw new Error('no node joins');
  },
};

type Member = {
  readonly name: string;
  readonly namespace: string;
  readonly address: string;
  process: ChildProcess | null;
};

/**
 * Real etcd members with mutual TLS and authentication. Each member has a network namespace of its own, so
 * that the links between members, or from clients to a member, can be cut. Clients run in the namespace
 * `namespace`, which has a bridge to the members:
 *
 *     clients 10.79.0.254 ── bridge ── 10.79.0.1 m1, 10.79.0.2 m2, 10.79.0.3 m3
 */
export class EtcdCluster {
  readonly folder: string;
  readonly members: readonly Member[];
  readonly #log: string;
  #electedAt = Number.NaN;
  #backups = 0;

  private constructor(
    readonly namespace: string,
    size: number,
    /** Further arguments of each etcd process. */
    readonly more: readonly string[],
  ) {
    this.folder = mkdtempSync(join(tmpdir(), 'weir-etcd-'));
    this.members = Array.from({ length: size }, (_, index) => ({
      name: `m${index + 1}`,
      namespace: `${namespace}-m${index + 1}`,
      address: `10.79.0.${index + 1}`,
      process: null,
    }));
    this.#log = join(this.folder, 'etcd.log');
  }

  /**
   * Starts the members, and runs the commands of docs/cluster.md: they create the user `weir` with access to
   * the keys below `/weir/`, and enable authentication. The members do not wait for the disk, because other
   * programs can delay a disk by seconds.
   */
  static async start(name: string, size = 3, more: readonly string[] = []): Promise<EtcdCluster> {
    const cluster = new EtcdCluster(`weir-${process.pid}-${name}`, size, more);
    try {
      cluster.#makeNamespaces();
      cluster.#makeCertificates();
      for (const member of cluster.members) cluster.startMember(member.name);
      await cluster.healthy();
      cluster.#enableAuthentication();
      return cluster;
    } catch (failure) {
      await cluster.remove();
      throw failure;
    }
  }

  get endpoints(): readonly string[] {
    return this.members.map(({ address }) => `https://${address}:${CLIENT_PORT}`);
  }

  /** The options of a client with the certificate of the user `weir`. */
  get options(): EtcdOptions {
    return { endpoints: this.endpoints, tls: this.#tls(USER), user: null };
  }

  /** A valid client certificate without a common name, which names no user. */
  get anonymousTls(): NonNullable<EtcdOptions['tls']> {
    return this.#tls('member');
  }

  /** Returns the certificate of a CA that signed no certificate of this cluster. */
  otherCa(): Buffer {
    this.#selfSigned('other');
    return readFileSync(join(this.folder, 'other.pem'));
  }

  /** The time at which a member last reported the end of an election, as `performance.now()`. */
  get electedAt(): number {
    return this.#electedAt;
  }

  endpointOf(name: string): string {
    return `https://${this.#member(name).address}:${CLIENT_PORT}`;
  }

  runs(name: string): boolean {
    const child = this.#member(name).process;
    return child !== null && child.exitCode === null && child.signalCode === null;
  }

  followers(): readonly string[] {
    const leader = this.leader();
    return this.members.map(({ name }) => name).filter((name) => name !== leader);
  }

  /** Runs etcdctl as the user root. */
  etcdctl(...args: string[]): string {
    return this.#etcdctlAt(this.endpoints, ...args);
  }

  #etcdctlAt(endpoints: readonly string[], ...args: string[]): string {
    return inNamespace(this.namespace, 'etcdctl', ...this.#asRoot(endpoints), ...args);
  }

  /** Returns the options of etcdctl for the user root. */
  #asRoot(endpoints: readonly string[]): string[] {
    const file = (name: string) => join(this.folder, name);
    return [
      ...[`--endpoints=${endpoints.join()}`, `--cacert=${file('ca.pem')}`],
      ...[`--cert=${file(`${ROOT}.pem`)}`, `--key=${file(`${ROOT}.key`)}`],
    ];
  }

  /** Compacts etcd at its present revision, beside other work. Does nothing while no member responds. */
  async compact(): Promise<void> {
    const root = [...this.#asRoot(this.endpoints), '--command-timeout=1s'];
    const etcdctl = (...args: string[]) =>
      promisify(execFile)('nsenter', [`--net=/run/netns/${this.namespace}`, 'etcdctl', ...root, ...args], { env: ENV });
    try {
      const { stdout } = await etcdctl('endpoint', 'status', '-w', 'json');
      const status = JSON.parse(stdout) as {
        readonly Status: { readonly header: { readonly revision: number } };
      }[];
      const revision = Math.max(...status.map(({ Status }) => Status.header.revision));
      await etcdctl('compact', String(revision));
    } catch {
      // Ignore the error: etcd cannot be compacted while it has a fault.
    }
  }

  /** Saves a snapshot of etcd. Returns its file. */
  backup(): string {
    this.#backups += 1;
    const file = join(this.folder, `backup-${this.#backups}.db`);
    this.#etcdctlAt([this.endpointOf('m1')], 'snapshot', 'save', file);
    return file;
  }

  /** Stops all members, replaces their data by a snapshot, and starts them again. */
  async restore(file: string): Promise<void> {
    const peer = ({ address }: Member) => `https://${address}:${PEER_PORT}`;
    for (const { name } of this.members) await this.signal(name, 'SIGKILL');
    for (const member of this.members) {
      const folder = join(this.folder, member.name);
      rmSync(folder, { recursive: true });
      this.etcdctl(
        ...['snapshot', 'restore', file, '--name', member.name, '--data-dir', folder],
        ...['--initial-cluster', this.members.map((each) => `${each.name}=${peer(each)}`).join()],
        ...['--initial-advertise-peer-urls', peer(member)],
      );
    }
    for (const { name } of this.members) this.startMember(name);
    await this.healthy();
  }

  startMember(name: string): void {
    const member = this.#member(name);
    const file = (suffix: string) => join(this.folder, suffix);
    const client = `https://${member.address}:${CLIENT_PORT}`;
    const peer = ({ address }: Member) => `https://${address}:${PEER_PORT}`;
    member.process = spawn(
      'nsenter',
      [
        `--net=/run/netns/${member.namespace}`,
        'etcd',
        ...['--name', name, '--data-dir', file(name), '--unsafe-no-fsync'],
        ...['--listen-client-urls', client, '--advertise-client-urls', client],
        ...['--listen-peer-urls', peer(member), '--initial-advertise-peer-urls', peer(member)],
        ...['--initial-cluster', this.members.map((each) => `${each.name}=${peer(each)}`).join()],
        ...['--client-cert-auth', '--trusted-ca-file', file('ca.pem')],
        ...['--cert-file', file('member.pem'), '--key-file', file('member.key')],
        ...['--peer-client-cert-auth', '--peer-trusted-ca-file', file('ca.pem')],
        ...['--peer-cert-file', file('member.pem'), '--peer-key-file', file('member.key')],
        ...this.more,
      ],
      { stdio: ['ignore', 'pipe', 'pipe'] },
    );
    for (const stream of [member.process.stdout, member.process.stderr]) {
      stream?.setEncoding('utf8').on('data', (text: string) => {
        appendFileSync(this.#log, text);
        if (text.includes('elected leader')) this.#electedAt = performance.now();
      });
    }
  }

  /** Sends a signal to the process of a member. After SIGKILL, waits until the process has ended. */
  async signal(name: string, signal: NodeJS.Signals): Promise<void> {
    const { process: child } = this.#member(name);
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const ended = signal === 'SIGKILL' ? once(child, 'exit') : null;
    child.kill(signal);
    await ended;
  }

  /** Drops all packets between clients and a member, until `mend`. */
  cut(name: string): void {
    this.#drop(name, 'input', `tcp dport ${CLIENT_PORT}`);
    this.cutResponses(name);
  }

  /** Drops the packets that a member sends to clients, until `mend`. */
  cutResponses(name: string): void {
    this.#drop(name, 'output', `tcp sport ${CLIENT_PORT}`);
  }

  /** Drops all packets between a member and the other members, until `mend`. */
  isolate(name: string): void {
    for (const chain of ['input', 'output'] as const)
      for (const side of ['sport', 'dport']) this.#drop(name, chain, `tcp ${side} ${PEER_PORT}`);
  }

  /** Restores the links of a member, or of all members. */
  mend(name?: string): void {
    const mended = name === undefined ? this.members : [this.#member(name)];
    for (const { namespace } of mended) inNamespace(namespace, 'nft', 'flush ruleset');
  }

  /** Returns the name of the member that leads. */
  leader(): string {
    const status = JSON.parse(this.etcdctl('endpoint', 'status', '-w', 'json')) as {
      readonly Endpoint: string;
      readonly Status: { readonly leader: number; readonly header: { readonly member_id: number } };
    }[];
    const leading = status.find(({ Status }) => Status.leader === Status.header.member_id);
    const found = this.members.find(({ address }) => leading?.Endpoint.includes(`${address}:`));
    if (found === undefined) throw new Error('no member of etcd leads');
    return found.name;
  }

  /** Waits until every member that runs responds. */
  async healthy(): Promise<void> {
    for (const clock = new ProgressClock(); ; ) {
      try {
        this.etcdctl('endpoint', 'health', '--command-timeout=1s');
        return;
      } catch (failure) {
        if (clock.isOver(20_000))
          throw new Error(`etcd does not start: ${readFileSync(this.#log, 'utf8').slice(-2_000)}`, {
            cause: failure,
          });
        await pause(100);
      }
    }
  }

  async remove(): Promise<void> {
    for (const { name, process: child } of this.members) {
      child?.kill('SIGCONT');
      await this.signal(name, 'SIGKILL');
    }
    for (const namespace of [this.namespace, ...this.members.map((each) => each.namespace)])
      spawnSync('ip', ['netns', 'del', namespace]);
    rmSync(this.folder, { recursive: true, force: true });
  }

  #member(name: string): Member {
    const member = this.members.find((each) => each.name === name);
    if (member === undefined) throw new Error(`there is no member ${name}`);
    return member;
  }

  #drop(name: string, chain: 'input' | 'output', match: string): void {
    const base = `add table inet cut; add chain inet cut ${chain} { type filter hook ${chain} priority 0; }`;
    inNamespace(this.#member(name).namespace, 'nft', `${base}; add rule inet cut ${chain} ${match} drop`);
  }

  #makeNamespaces(): void {
    const ip = (...words: string[]) => execFileSync('ip', words, { stdio: ['ignore', 'ignore', 'pipe'] });
    const inClients = (...words: string[]) => inNamespace(this.namespace, 'ip', ...words);
    ip('netns', 'add', this.namespace);
    inClients('link', 'add', 'bridge', 'type', 'bridge');
    inClients('address', 'add', '10.79.0.254/24', 'dev', 'bridge');
    for (const each of ['lo', 'bridge']) inClients('link', 'set', each, 'up');
    for (const { name, namespace, address } of this.members) {
      ip('netns', 'add', namespace);
      inClients('link', 'add', name, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', namespace);
      inClients('link', 'set', name, 'master', 'bridge', 'up');
      inNamespace(namespace, 'ip', 'address', 'add', `${address}/24`, 'dev', 'eth0');
      for (const each of ['lo', 'eth0']) inNamespace(namespace, 'ip', 'link', 'set', each, 'up');
    }
  }

  #makeCertificates(): void {
    this.#selfSigned('ca');
    const addresses = this.members.map(({ address }) => `IP:${address}`).join();
    // The members use their certificate as servers, and as clients of each other. A certificate without a
    // common name names no user of etcd.
    const subjects = { member: '/O=etcd', [ROOT]: `/CN=${ROOT}`, [USER]: `/CN=${USER}` };
    const signed = '-CA ca.pem -CAkey ca.key -CAcreateserial -days 30'.split(' ');
    for (const [name, subject] of Object.entries(subjects)) {
      writeFileSync(join(this.folder, `${name}.ext`), `subjectAltName=${addresses}\n`);
      this.#openssl('req', ...NEW_KEY, ...`-keyout ${name}.key -out ${name}.csr -subj ${subject}`.split(' '));
      this.#openssl('x509', '-req', ...`-in ${name}.csr -extfile ${name}.ext -out ${name}.pem`.split(' '), ...signed);
    }
  }

  #selfSigned(name: string): void {
    const words = `-x509 -days 30 -keyout ${name}.key -out ${name}.pem -subj /CN=${name}`;
    this.#openssl('req', ...NEW_KEY, ...words.split(' '));
  }

  #openssl(...words: string[]): void {
    execFileSync('openssl', words, { cwd: this.folder, stdio: 'pipe' });
  }

  #tls(name: string): NonNullable<EtcdOptions['tls']> {
    const pem = (file: string) => readFileSync(join(this.folder, file));
    return { ca: pem('ca.pem'), cert: pem(`${name}.pem`), key: pem(`${name}.key`) };
  }

  #enableAuthentication(): void {
    const block = blockAt('docs/cluster.md', 'export ETCDCTL_ENDPOINTS=');
    const commands = block.replace('https://10.0.0.1:2379', this.endpoints.join());
    execFileSync('nsenter', [`--net=/run/netns/${this.namespace}`, 'sh', '-ec', commands], {
      cwd: this.folder,
      env: ENV,
      stdio: 'pipe',
    });
  }
}

/** Runs a command in a network namespace. Returns its standard output. */
function inNamespace(namespace: string, command: string, ...args: string[]): string {
  return execFileSync('nsenter', [`--net=/run/netns/${namespace}`, command, ...args], {
    encoding: 'utf8',
    env: ENV,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}
