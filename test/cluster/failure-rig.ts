import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { detach } from '#dataplane/thread/detach.js';
import { enterNamespace } from '#test/kernel/namespace.js';
import { ProgressClock } from '#test/progress-clock.js';
import { EtcdCluster } from './etcd-cluster.js';
import { ClusterNode, created, type Reply } from './node-cluster.js';

export const HOUR_MS = 3_600_000;
export const MIB = 1024 * 1024;
export const SOON = { withinMs: 5_000 };
/** A module that lets a process see a time that is an hour ahead. */
const SKEW = `const { Date: Real } = globalThis;
globalThis.Date = class extends Real {
  constructor(...words) { super(...(words.length === 0 ? [Real.now() + ${HOUR_MS}] : words)); }
  static now() { return Real.now() + ${HOUR_MS}; }
};`;

export const policyOf = (...addresses: string[]) => ({
  default_policy: 'deny',
  source_groups: [
    {
      id: 'lan',
      mode: 'enforce',
      sources: { cidrs: ['10.0.0.0/8'] },
      rules: addresses.map((ip, index) => ({
        id: `r${index}`,
        action: 'allow',
        match: { dst_ips: [ip], proto: 'tcp', dst_ports: [443] },
      })),
    },
  ],
});
export const put = (node: ClusterNode, address: string, headers: Readonly<Record<string, string>> = {}, query = '') =>
  node.request('PUT', `/api/v1/policy${query}`, policyOf(address), headers);
export const textAt = async (node: ClusterNode): Promise<string> => (await node.request('GET', '/api/v1/policy')).text;
export const codeOf = ({ status, text }: Reply): readonly unknown[] => [status, /urn:weir:error:(\w+)/.exec(text)?.[1]];

/** Three nodes with a common sealing key, and one etcd server whose database has at most 16 MiB. */
export class FailureRig {
  readonly plain: ClusterNode;
  /** A node with a dataplane whose table is small, and with its data on a disk of 32 MiB. */
  readonly small: ClusterNode;
  /** A node whose clock is an hour ahead. */
  readonly early: ClusterNode;
  readonly client: EtcdClient;
  readonly #pinPath: string;
  readonly #leave: () => void;
  #ballast = 0;

  private constructor(readonly etcd: EtcdCluster) {
    this.#leave = enterNamespace(etcd.namespace);
    this.#pinPath = `/sys/fs/bpf/${etcd.namespace}`;
    this.client = new EtcdClient(etcd.options);
    const sealKey = join(etcd.folder, 'seal.key');
    writeFileSync(sealKey, randomBytes(32).toString('base64'), { mode: 0o600 });
    writeFileSync(join(etcd.folder, 'skew.mjs'), SKEW);
    const shared = { cluster: { seal_key_file: sealKey } };
    const dataplane = { interfaces: ['policed0'], program_capacity: 8_192, pin_path: this.#pinPath };
    this.plain = new ClusterNode('n1', 0, etcd, shared);
    this.small = new ClusterNode('n2', 1, etcd, { ...shared, dataplane });
    this.early = new ClusterNode('n3', 2, etcd, shared);
    execFileSync('ip', ['link', 'add', 'policed0', 'type', 'veth', 'peer', 'name', 'policed1']);
    mkdirSync(this.disk);
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=32m,mode=700', 'tmpfs', this.disk]);
  }

  static async start(name: string): Promise<FailureRig> {
    const rig = new FailureRig(await EtcdCluster.start(name, 1, [`--quota-backend-bytes=${16 * MIB}`]));
    try {
      rig.plain.start();
      rig.small.start();
      rig.startEarly();
      await created(rig.nodes);
      return rig;
    } catch (failure) {
      await rig.remove();
      throw failure;
    }
  }

  get nodes(): readonly ClusterNode[] {
    return [this.plain, this.small, this.early];
  }

  startEarly(): void {
    this.early.start({ NODE_OPTIONS: `--import=${join(this.etcd.folder, 'skew.mjs')}` });
  }

  /** Waits until all nodes have the policy in force. */
  async allHave(address: string, withinMs = 5_000): Promise<void> {
    for (const clock = new ProgressClock(); ; await pause(20)) {
      const read = await Promise.all(this.nodes.map(textAt));
      if (read.every((text) => text.includes(`"${address}"`))) return;
      if (clock.isOver(withinMs)) throw new Error(`not all nodes have ${address}: ${read.join('\n')}`);
    }
  }

  /** The data folder of `small`: a file system of its own. */
  get disk(): string {
    return join(this.small.folder, 'data');
  }

  get ballast(): string {
    return join(this.disk, 'ballast');
  }

  /** Fills the disk of `small`. To free it, remove the folder `ballast`. */
  fillDisk(): void {
    for (const size of [MIB, 4_096])
      try {
        mkdirSync(this.ballast, { recursive: true });
        for (;;) writeFileSync(join(this.ballast, String(this.#ballast++)), Buffer.alloc(size));
      } catch {
        // The write failed as expected: the disk is full.
      }
  }

  async remove(): Promise<void> {
    for (const node of this.nodes) await node.end();
    this.client.close();
    detach(this.#pinPath);
    execFileSync('umount', [this.disk]);
    this.#leave();
    await this.etcd.remove();
  }
}
