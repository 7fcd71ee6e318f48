import { setTimeout as pause } from 'node:timers/promises';
import type { EtcdCluster } from '#test/cluster/etcd-cluster.js';
import type { ClusterNode } from '#test/cluster/node-cluster.js';
import type { Fault } from './fault-schedule.js';

/** A slow member runs for `RUN_MS` and stops for `STOP_MS`, again and again. */
const RUN_MS = 20;
const STOP_MS = 80;

/** Applies the faults of a schedule to an etcd cluster and the nodes of Weir, and ends each of them. */
export class Injector {
  readonly #etcd: EtcdCluster;
  readonly #nodes: ReadonlyMap<string, ClusterNode>;
  /** The last fault of each member and node. */
  readonly #last = new Map<string, Promise<void>>();
  #isCanceled = false;

  constructor(etcd: EtcdCluster, nodes: readonly ClusterNode[]) {
    this.#etcd = etcd;
    this.#nodes = new Map(nodes.map((node) => [node.id, node]));
  }

  /** Runs all faults at their times. Resolves when the last fault has ended. */
  async run(faults: readonly Fault[]): Promise<void> {
    const began = performance.now();
    await Promise.all(
      faults.map(async (fault) => {
        await pause(Math.max(0, fault.at - (performance.now() - began)));
        await this.#afterOthers(fault);
      }),
    );
  }

  /** Starts no member and no node any more. */
  cancel(): void {
    this.#isCanceled = true;
  }

  /**
   * Applies a fault after the earlier faults of its target. A busy machine delays faults, and a node that two
   * faults kill would be started twice.
   */
  #afterOthers(fault: Fault): Promise<void> {
    const all = fault.kind === 'kill_all_members' ? this.#etcd.members.map(({ name }) => name) : [];
    const targets = fault.target === null ? all : [fault.target];
    const applied = Promise.all(targets.flatMap((target) => this.#last.get(target) ?? [])).then(() =>
      this.#apply(fault),
    );
    for (const target of targets) this.#last.set(target, applied);
    return applied;
  }

  async #apply({ kind, target, forMs }: Fault): Promise<void> {
    const etcd = this.#etcd;
    switch (kind) {
      case 'kill_member':
        await etcd.signal(target, 'SIGKILL');
        await pause(forMs);
        return this.#isCanceled ? undefined : etcd.startMember(target);
      case 'stop_member':
        await etcd.signal(target, 'SIGSTOP');
        await pause(forMs);
        return etcd.signal(target, 'SIGCONT');
      case 'slow_member':
        return this.#slow(target, forMs);
      case 'cut_client':
        etcd.cut(target);
        await pause(forMs);
        return etcd.mend(target);
      case 'cut_peer':
        etcd.isolate(target);
        await pause(forMs);
        return etcd.mend(target);
      case 'kill_all_members':
        for (const { name } of etcd.members) await etcd.signal(name, 'SIGKILL');
        await pause(forMs);
        if (!this.#isCanceled) for (const { name } of etcd.members) etcd.startMember(name);
        return;
      case 'compact':
        return etcd.compact();
      case 'kill_node':
        await this.#node(target).end();
        await pause(forMs);
        return this.#isCanceled ? undefined : this.#node(target).start();
      case 'stop_node':
        this.#node(target).signal('SIGSTOP');
        await pause(forMs);
        return this.#node(target).signal('SIGCONT');
    }
  }

  async #slow(target: string, forMs: number): Promise<void> {
    for (const until = performance.now() + forMs; performance.now() < until; ) {
      await this.#etcd.signal(target, 'SIGSTOP');
      await pause(STOP_MS);
      await this.#etcd.signal(target, 'SIGCONT');
      await pause(RUN_MS);
    }
  }

  #node(id: string): ClusterNode {
    const node = this.#nodes.get(id);
    if (node === undefined) throw new Error(`there is no node ${id}`);
    return node;
  }
}
