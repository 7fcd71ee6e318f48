import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { Agent, request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { ApiServer } from '#kubernetes/api-server/api-session.js';
import { makeCertificate, makeClientCertificate, type ServerCertificate } from '#test/kubernetes/server-certificate.js';
import { freePort } from '#test/sockets/free-port.js';

/** The folder of the programs that a script builds. */
function builtBy(script: string): string {
  const path = fileURLToPath(new URL(`../../scripts/${script}.sh`, import.meta.url));
  return execFileSync('bash', [path, '--folder'], { encoding: 'utf8' }).trim();
}

const BIN = builtBy('kube-apiserver');
const MACHINERY_BIN = builtBy('api-machinery');
const ADMIN_TOKEN = 'admin-token';
const ETCD_ENV = { ...process.env, ETCDCTL_API: '3' };
const READY_MS = 120_000;
/** Without a controller manager, no namespace has a service account, and a node keeps its taint. */
export const WITHOUT_CONTROLLERS = ['--disable-admission-plugins=ServiceAccount,TaintNodesByCondition'];
/** `api-machinery` responds with 429 to more requests at the same time. Watches do not count. */
export const MACHINERY_REQUESTS = 4;

/** Whether `npm run kube-apiserver` has built the API server on this machine. */
export const HAS_KUBE_API = existsSync(join(BIN, 'kube-apiserver'));

export const KUBECTL = join(BIN, 'kubectl');

/** Whether `npm run api-machinery` has built its server too. Its tests use the kubectl of kube-apiserver. */
export const HAS_MACHINERY = HAS_KUBE_API && existsSync(join(MACHINERY_BIN, 'api-machinery'));

/** `api-machinery`: today's libraries, without RBAC, service accounts and validation of values. */
export type KubeServer = 'kube-apiserver' | 'api-machinery';

type Json = Readonly<Record<string, unknown>>;
export type Answer = { readonly status: number; readonly body: Json & { readonly message?: string } };
export type PodOptions = {
  readonly namespace?: string;
  readonly node?: string;
  readonly labels?: Readonly<Record<string, string>>;
};

/**
 * A real kube-apiserver with RBAC and an etcd of its own, on loopback. No kubelet and no controller runs
 * (`KubeNode` has them): tests create pods with a node name, and write their status. The namespaces have no
 * watch cache, the pods have one.
 */
export class KubeApi {
  readonly folder = mkdtempSync(join(tmpdir(), 'weir-kube-'));
  readonly certificate: ServerCertificate = makeCertificate(this.folder);
  readonly #agent = new Agent({ ca: this.certificate.ca, keepAlive: true, maxSockets: 20 });
  readonly #ports: readonly [api: number, etcd: number, peer: number];
  #etcd: ChildProcess | null = null;
  #api: ChildProcess | null = null;
  #backups = 0;

  private constructor(
    ports: readonly [number, number, number],
    readonly server: KubeServer,
    readonly args: readonly string[],
  ) {
    this.#ports = ports;
  }

  static async start(
    server: KubeServer = 'kube-apiserver',
    args: readonly string[] = WITHOUT_CONTROLLERS,
  ): Promise<KubeApi> {
    const kube = new KubeApi([await freePort(), await freePort(), await freePort()], server, args);
    try {
      kube.makeTokenKey();
      writeFileSync(join(kube.folder, 'tokens.csv'), `${ADMIN_TOKEN},admin,admin,system:masters\n`);
      kube.#startEtcd();
      kube.startApi();
      await kube.ready();
      return kube;
    } catch (failure) {
      await kube.remove();
      throw failure;
    }
  }

  get url(): string {
    return `https://127.0.0.1:${this.#ports[0]}`;
  }

  get pid(): number {
    return this.#api?.pid ?? 0;
  }

  /** Returns the URL and the credentials of the server, for a client with this token. */
  as(token: () => string, url = this.url): ApiServer {
    return { url, credentials: async () => ({ caPem: this.certificate.ca, token: token() }) };
  }

  get asAdmin(): ApiServer {
    return this.as(() => ADMIN_TOKEN);
  }

  /** Sends a request as administrator. A body of PATCH is a merge patch. */
  async send(method: string, path: string, body?: Json, token = ADMIN_TOKEN): Promise<Answer> {
    const type = method === 'PATCH' ? 'application/merge-patch+json' : 'application/json';
    const content = body === undefined ? '' : JSON.stringify(body);
    const sent = request(`${this.url}${path}`, {
      method,
      agent: this.#agent,
      headers: {
        authorization: `Bearer ${token}`,
        'content-type': type,
        // Without a length, Node would send the body of DELETE as a part of the next request.
        'content-length': Buffer.byteLength(content),
      },
    });
    sent.end(content);
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    const text = (await response.setEncoding('utf8').toArray()).join('');
    return { status: response.statusCode ?? 0, body: text.startsWith('{') ? (JSON.parse(text) as Json) : {} };
  }

  /** Does the same as `send`, and throws an error for a refusal. */
  async must(method: string, path: string, body?: Json): Promise<Json> {
    const answer = await this.send(method, path, body);
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status}: ${answer.body.message}`);
    return answer.body;
  }

  async createNamespace(name: string, labels: Readonly<Record<string, string>> = {}): Promise<void> {
    await this.must('POST', '/api/v1/namespaces', { metadata: { name, labels } });
  }

  async createPod(name: string, { namespace = 'default', node = 'n1', labels = {} }: PodOptions = {}): Promise<void> {
    const containers = [{ name: 'c', image: 'none' }];
    await this.must('POST', `/api/v1/namespaces/${namespace}/pods`, {
      metadata: { name, labels },
      spec: { nodeName: node, containers, automountServiceAccountToken: false },
    });
  }

  /** Writes the status of a pod, as a kubelet does. */
  async setStatus(name: string, status: Json, namespace = 'default'): Promise<void> {
    await this.must('PATCH', `/api/v1/namespaces/${namespace}/pods/${name}/status`, { status });
  }

  /**
   * Makes a service account that may list and watch a resource, cluster-wide. Returns its token.
   * `api-machinery` has no accounts: its administrator is returned.
   */
  async createAccount(name: string, resources: readonly string[]): Promise<string> {
    if (this.server === 'api-machinery') return ADMIN_TOKEN;
    const rbac = '/apis/rbac.authorization.k8s.io/v1';
    const rules = [{ apiGroups: [''], resources, verbs: ['list', 'watch'] }];
    await this.must('POST', '/api/v1/namespaces/default/serviceaccounts', { metadata: { name } });
    await this.must('POST', `${rbac}/clusterroles`, { metadata: { name }, rules });
    await this.must('POST', `${rbac}/clusterrolebindings`, {
      metadata: { name },
      subjects: [{ kind: 'ServiceAccount', name, namespace: 'default' }],
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name },
    });
    return this.newToken(name);
  }

  async newToken(account: string): Promise<string> {
    const path = `/api/v1/namespaces/default/serviceaccounts/${account}/token`;
    const { status } = await this.must('POST', path, { spec: { expirationSeconds: 3_600 } });
    return (status as { readonly token: string }).token;
  }

  /** Makes a client certificate of an administrator. Returns it as the user of a kubeconfig. */
  administrator(): Readonly<Record<string, string>> {
    const { certPem, keyPem } = makeClientCertificate(this.folder, '/O=system:masters/CN=operator');
    const base64 = (text: string) => Buffer.from(text).toString('base64');
    return { 'client-certificate-data': base64(certPem), 'client-key-data': base64(keyPem) };
  }

  /** Returns a kubeconfig with one context. */
  kubeconfig(user = this.administrator()): object {
    const data = Buffer.from(this.certificate.ca).toString('base64');
    return {
      'current-context': 'one',
      contexts: [{ name: 'one', context: { cluster: 'c', user: 'u' } }],
      clusters: [{ name: 'c', cluster: { server: `${this.url}/`, 'certificate-authority-data': data } }],
      users: [{ name: 'u', user }],
    };
  }

  /** Runs kubectl as administrator. Returns its standard output. */
  async kubectl(...args: string[]): Promise<string> {
    const access = [
      `--server=${this.url}`,
      `--token=${ADMIN_TOKEN}`,
      `--certificate-authority=${this.#file('ca.pem')}`,
    ];
    const options = { maxBuffer: 2 ** 30, env: { ...process.env, KUBECONFIG: '/dev/null' } };
    return (await promisify(execFile)(KUBECTL, [...access, ...args], options)).stdout;
  }

  /** Makes the key of tokens of service accounts. A server that starts later refuses all former tokens. */
  makeTokenKey(): void {
    execFileSync('openssl', 'ecparam -name prime256v1 -genkey -noout -out sa.key'.split(' '), { cwd: this.folder });
  }

  startApi(): void {
    const [port, etcd] = this.#ports;
    if (this.server === 'api-machinery') {
      this.#api = this.#spawn(join(MACHINERY_BIN, 'api-machinery'), 'api.log', [
        ...[`--etcd=http://127.0.0.1:${etcd}`, `--port=${port}`, '--cert=server.pem', '--key=server.key'],
        ...[`--token=${ADMIN_TOKEN}`, '--uncached=namespaces', `--max-requests-in-flight=${MACHINERY_REQUESTS}`],
      ]);
      return;
    }
    this.#api = this.#spawn(join(BIN, 'kube-apiserver'), 'api.log', [
      ...[`--etcd-servers=http://127.0.0.1:${etcd}`, '--bind-address=127.0.0.1', `--secure-port=${port}`],
      // A network namespace may have no default route, by which the server would find its own address.
      ...[
        '--advertise-address=192.0.2.1',
        '--insecure-port=0',
        `--cert-dir=${this.folder}`,
        '--tls-cert-file=server.pem',
      ],
      ...['--tls-private-key-file=server.key', '--token-auth-file=tokens.csv', '--authorization-mode=RBAC'],
      '--client-ca-file=ca.pem',
      ...['--service-account-issuer=https://kubernetes.default.svc', '--service-account-key-file=sa.key'],
      ...['--service-account-signing-key-file=sa.key', '--service-cluster-ip-range=10.96.0.0/24'],
      ...['--etcd-compaction-interval=0', '--event-ttl=1m', '--watch-cache-sizes=namespaces#0', ...this.args],
    ]);
  }

  /** Waits until the server is ready. */
  async ready(): Promise<void> {
    for (const until = Date.now() + READY_MS; ; await pause(50)) {
      const answer = await this.send('GET', '/readyz').catch(() => null);
      if (answer?.status === 200 && this.server === 'api-machinery')
        await this.send('POST', '/api/v1/namespaces', { metadata: { name: 'default' } });
      // A server that starts has no default namespace yet.
      if (answer?.status === 200 && (await this.send('GET', '/api/v1/namespaces/default')).status === 200) return;
      if (Date.now() > until)
        throw new Error(`${this.server} does not start: ${readFileSync(this.#file('api.log'), 'utf8').slice(-2_000)}`);
    }
  }

  /** Sends a signal to the API server. After SIGKILL, waits until it has ended. */
  async signal(signal: NodeJS.Signals): Promise<void> {
    await end(this.#api, signal);
  }

  async restart(): Promise<void> {
    await this.signal('SIGKILL');
    this.startApi();
    await this.ready();
  }

  /** Compacts etcd at its present revision, so that all older versions expire. */
  compact(): void {
    const [{ Status }] = JSON.parse(this.#etcdctl('endpoint', 'status', '-w', 'json')) as [
      { readonly Status: { readonly header: { readonly revision: number } } },
    ];
    this.#etcdctl('compact', String(Status.header.revision));
  }

  /** Saves a snapshot of etcd. Returns its file. */
  backup(): string {
    this.#backups += 1;
    const file = this.#file(`backup-${this.#backups}.db`);
    this.#etcdctl('snapshot', 'save', file);
    return file;
  }

  /** Replaces the data of etcd by a snapshot, and starts etcd and the API server again. */
  async restore(file: string): Promise<void> {
    await end(this.#api, 'SIGKILL');
    await end(this.#etcd, 'SIGKILL');
    rmSync(this.#file('etcd'), { recursive: true });
    this.#etcdctl('snapshot', 'restore', file, '--data-dir', this.#file('etcd'), ...this.#peerOptions());
    this.#startEtcd();
    this.startApi();
    await this.ready();
  }

  async remove(): Promise<void> {
    for (const process of [this.#api, this.#etcd]) {
      process?.kill('SIGCONT');
      await end(process, 'SIGKILL');
    }
    this.#agent.destroy();
    rmSync(this.folder, { recursive: true, force: true });
  }

  #startEtcd(): void {
    const client = `http://127.0.0.1:${this.#ports[1]}`;
    const etcd = this.server === 'api-machinery' ? join(MACHINERY_BIN, 'etcd') : 'etcd';
    this.#etcd = this.#spawn(etcd, 'etcd.log', [
      ...['--data-dir', this.#file('etcd'), '--listen-client-urls', client, '--advertise-client-urls', client],
      ...['--listen-peer-urls', `http://127.0.0.1:${this.#ports[2]}`, '--unsafe-no-fsync', ...this.#peerOptions()],
    ]);
  }

  #peerOptions(): readonly string[] {
    const peer = `http://127.0.0.1:${this.#ports[2]}`;
    return ['--name', 'm1', '--initial-advertise-peer-urls', peer, '--initial-cluster', `m1=${peer}`];
  }

  #etcdctl(...args: string[]): string {
    const endpoint = `--endpoints=http://127.0.0.1:${this.#ports[1]}`;
    return execFileSync('etcdctl', [endpoint, ...args], { encoding: 'utf8', env: ETCD_ENV, stdio: 'pipe' });
  }

  #spawn(command: string, log: string, args: readonly string[]): ChildProcess {
    const file = openSync(this.#file(log), 'a');
    const process = spawn(command, args, { cwd: this.folder, stdio: ['ignore', file, file] });
    closeSync(file);
    return process;
  }

  #file(name: string): string {
    return join(this.folder, name);
  }
}

async function end(child: ChildProcess | null, signal: NodeJS.Signals): Promise<void> {
  if (child === null || child.exitCode !== null || child.signalCode !== null) return;
  const ended = signal === 'SIGKILL' ? once(child, 'exit') : null;
  child.kill(signal);
  await ended;
}
