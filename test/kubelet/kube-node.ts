import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { closeSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import { KubeApi } from '#test/kubernetes/kube-api.js';

const NODE = 'node1';
const SOCKET = '/run/containerd/containerd.sock';
/** The pod network of the node. The controller manager gives it to the first node of 10.244.0.0/16. */
const POD_CIDR = '10.244.0.0/24';
const READY_MS = 60_000;

const CONTAINERD = (bin: string, networks: string) => `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "${SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/pause:1"
  # A process needs CAP_SYS_RESOURCE for a value below its own, and the machine of the test may not have it.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "${bin}/cni"
    conf_dir = "${networks}"
`;
const NETWORK = {
  cniVersion: '0.4.0',
  name: 'pods',
  plugins: [
    {
      ...{ type: 'bridge', bridge: 'cni0', isGateway: true },
      ipam: { type: 'host-local', ranges: [[{ subnet: POD_CIDR }]], routes: [{ dst: '0.0.0.0/0' }] },
    },
  ],
};
const KUBELET = {
  kind: 'KubeletConfiguration',
  apiVersion: 'kubelet.config.k8s.io/v1beta1',
  authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
  authorization: { mode: 'AlwaysAllow' },
  cgroupDriver: 'cgroupfs',
  failSwapOn: false,
  protectKernelDefaults: true,
  // How often the kubelet updates the files of a ConfigMap in a pod. The default is a minute.
  syncFrequency: '10s',
  // Disable eviction: other programs of the test machine also use its disk and memory.
  evictionHard: { 'memory.available': '0%', 'nodefs.available': '0%', 'imagefs.available': '0%' },
  imageGCHighThresholdPercent: 100,
};

/**
 * A control plane and one node of Kubernetes in the namespaces of scripts/kubelet-test.sh: etcd, API server,
 * controller manager, scheduler, kubelet and containerd, with pods behind the bridge `cni0`.
 */
export class KubeNode {
  readonly #bin = process.env.WEIR_KUBELET_BIN ?? '';
  readonly #processes = new Map<string, ChildProcess>();

  private constructor(readonly kube: KubeApi) {}

  static async start(): Promise<KubeNode> {
    const node = new KubeNode(
      await KubeApi.start('kube-apiserver', [
        '--kubelet-preferred-address-types=InternalIP',
        '--allow-privileged=true',
      ]),
    );
    const folder = (name: string) => {
      mkdirSync(join(node.kube.folder, name));
      return join(node.kube.folder, name);
    };
    const networks = folder('networks');
    writeFileSync(join(networks, 'pods.conflist'), JSON.stringify(NETWORK));
    node.#write('containerd.toml', CONTAINERD(node.#bin, networks));
    node.#write('kubelet.json', JSON.stringify(KUBELET));
    node.#write('kubeconfig', await node.#kubeconfig());
    node.#start('containerd', '--config', 'containerd.toml');
    node.#start(
      'kube-controller-manager',
      ...['--kubeconfig=kubeconfig', '--leader-elect=false'],
      ...[
        '--service-account-private-key-file=sa.key',
        '--root-ca-file=ca.pem',
        '--allocate-node-cidrs',
        '--cluster-cidr=10.244.0.0/16',
      ],
    );
    node.#start('kube-scheduler', '--kubeconfig=kubeconfig', '--leader-elect=false');
    await until('containerd', () => node.ctr('version'));
    await node.importImage(join(node.#bin, 'pause.tar'));
    node.#startKubelet();
    const wait = ['wait', '--for=condition=Ready', `--timeout=${READY_MS / 1000}s`, `node/${NODE}`];
    await until('the node', () => node.kube.kubectl(...wait));
    return node;
  }

  #startKubelet(): void {
    this.#start(
      'kubelet',
      ...['--kubeconfig=kubeconfig', '--config=kubelet.json', `--hostname-override=${NODE}`, '--node-ip=10.9.0.1'],
      ...['--container-runtime=remote', `--container-runtime-endpoint=unix://${SOCKET}`],
      '--pod-infra-container-image=docker.io/library/pause:1',
    );
  }

  /** Starts another kubelet. The pods continue. */
  async restartKubelet(): Promise<void> {
    await end(this.#processes.get('kubelet'));
    this.#startKubelet();
  }

  /** Gives the API server a new key for service account tokens, so that it refuses all former tokens. */
  async changeTokenKey(): Promise<void> {
    this.kube.makeTokenKey();
    await this.kube.restart();
  }

  /** Runs `ctr` in the namespace of Kubernetes. Returns its standard output. */
  async ctr(...args: string[]): Promise<string> {
    const all = ['--address', SOCKET, '--namespace', 'k8s.io', ...args];
    return (await promisify(execFile)(join(this.#bin, 'ctr'), all)).stdout;
  }

  async importImage(file: string): Promise<void> {
    await this.ctr('images', 'import', file);
  }

  /** Returns the last lines of the log of a program. */
  logOf(program: string): string {
    return readFileSync(join(this.kube.folder, `${program}.log`), 'utf8').slice(-4_000);
  }

  async remove(): Promise<void> {
    // The containers end with the PID namespace.
    for (const process of this.#processes.values()) await end(process);
    await this.kube.remove();
  }

  #write(name: string, text: string): void {
    writeFileSync(join(this.kube.folder, name), text);
  }

  async #kubeconfig(): Promise<string> {
    const { url, credentials } = this.kube.asAdmin;
    const { token } = await credentials();
    return JSON.stringify({
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'c', cluster: { server: url, 'certificate-authority': join(this.kube.folder, 'ca.pem') } }],
      users: [{ name: 'u', user: { token } }],
      contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
      'current-context': 'x',
    });
  }

  #start(program: string, ...args: string[]): void {
    const file = openSync(join(this.kube.folder, `${program}.log`), 'a');
    const started = spawn(join(this.#bin, program), args, { cwd: this.kube.folder, stdio: ['ignore', file, file] });
    closeSync(file);
    this.#processes.set(program, started);
  }
}

async function until(what: string, action: () => Promise<unknown>): Promise<void> {
  for (const deadline = Date.now() + READY_MS; ; await pause(200)) {
    try {
      await action();
      return;
    } catch (failure) {
      if (Date.now() > deadline) throw new Error(`${what} does not start`, { cause: failure });
    }
  }
}

async function end(child: ChildProcess | undefined): Promise<void> {
  if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  child.kill('SIGKILL');
  await ended;
}
