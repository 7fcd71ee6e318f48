import { setTimeout as pause } from 'node:timers/promises';
import type { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { EtcdError } from '#cluster/etcd/etcd-error.js';
import { ClusterKeys } from '#cluster/keys.js';
import { collect } from '#cluster/writes/collector.js';
import type { EtcdCluster } from '#test/cluster/etcd-cluster.js';
import type { ClusterNode } from '#test/cluster/node-cluster.js';
import { type Fault, STEP_WAIT_MS } from './fault-schedule.js';
import type { FaultSpan } from './refusals.js';
import type { SeenStep, WriteSteps } from './write-steps.js';

/** A slow member runs for `RUN_MS` and stops for `STOP_MS`, again and again. */
const RUN_MS = 20;
const STOP_MS = 80;
/** The votes of the members arrive within this time. */
const VOTES_MS = 300;
/** The longest time for which a writer waits for a garbage collection. */
const COLLECTION_MS = 1_000;
const ETCD_PORT = 2379;
const ALL_MEMBERS: readonly Fault['kind'][] = ['kill_all_members', 'cut_all_responses_at', 'lose_commit_at'];

type End = () => unknown;

/** A fault that began at the step of a write. */
export type StepHit = SeenStep & { readonly kind: Fault['kind']; readonly at: number };

const keys = new ClusterKeys('/weir');

/** Applies the faults of a schedule to an etcd cluster and the nodes of Weir, and ends each of them. */
export class Injector {
  readonly #etcd: EtcdCluster;
  readonly #nodes: ReadonlyMap<string, ClusterNode>;
  /** The last fault of each member and node. */
  readonly #last = new Map<string, Promise<void>>();
  readonly #client: EtcdClient;
  readonly #steps: WriteSteps;
  /** The times in ms during which each fault was in force. */
  readonly spans: FaultSpan[] = [];
  /** The faults that began at the step of a write, in the order of their times. */
  readonly hits: StepHit[] = [];
  #isCanceled = false;

  constructor(etcd: EtcdCluster, nodes: readonly ClusterNode[], client: EtcdClient, steps: WriteSteps) {
    this.#etcd = etcd;
    this.#client = client;
    this.#steps = steps;
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

  /** Prevents that later ends of faults start a member or node again. */
  cancel(): void {
    this.#isCanceled = true;
  }

  /**
   * Applies a fault after the earlier faults of its target. A busy machine delays faults, and a node that two
   * faults kill would be started twice.
   */
  #afterOthers(fault: Fault): Promise<void> {
    const isOfAll = ALL_MEMBERS.includes(fault.kind);
    const all = isOfAll ? this.#etcd.members.map(({ name }) => name) : [];
    const targets = fault.target === null ? all : [fault.target];
    const applied = Promise.all(targets.flatMap((target) => this.#last.get(target) ?? [])).then(() =>
      this.#apply(fault),
    );
    for (const target of targets) this.#last.set(target, applied);
    return applied;
  }

  async #apply(fault: Fault): Promise<void> {
    let end: End | null = null;
    if (!('step' in fault)) end = this.#begin(fault, null);
    else {
      const seen = await this.#steps.at(fault.step, fault.target, STEP_WAIT_MS, ({ node }) => {
        end = this.#begin(fault, node);
      });
      if (seen !== null) this.hits.push({ ...seen, kind: fault.kind, at: performance.now() });
    }
    if (end === null) return;
    const from = performance.now();
    await pause(fault.forMs);
    await end();
    this.spans.push({ fault, from, to: performance.now() });
  }

  /**
   * Begins a fault. A fault that waited for a step of a write acts on the node `writer`. Returns a function
   * that ends the fault.
   */
  #begin({ kind, target }: Fault, writer: string | null): End {
    const etcd = this.#etcd;
    switch (kind) {
      case 'kill_member':
        return this.#kill([target]);
      case 'kill_all_members':
        return this.#kill(etcd.members.map(({ name }) => name));
      case 'stop_member':
        void etcd.signal(target, 'SIGSTOP');
        return () => etcd.signal(target, 'SIGCONT');
      case 'slow_member':
        return this.#slow(target);
      case 'cut_client':
        etcd.cut(target);
        return () => etcd.mend(target);
      case 'cut_responses':
        etcd.cutResponses(target);
        return () => etcd.mend(target);
      case 'cut_all_responses_at':
        this.#cutAllResponses();
        return () => etcd.mend();
      case 'lose_commit_at':
        return this.#loseCommit(this.#node(writer ?? ''));
      case 'cut_peer':
        etcd.isolate(target);
        return () => etcd.mend(target);
      case 'compact':
        return () => etcd.compact();
      case 'collect_at':
        return this.#collectBeside(this.#node(writer ?? ''));
      case 'kill_node':
      case 'kill_writer_at': {
        const killed = this.#node(target).end();
        return () => killed.then(() => (this.#isCanceled ? undefined : this.#node(target).start()));
      }
      case 'stop_node':
      case 'stop_writer_at':
        this.#node(target).signal('SIGSTOP');
        return () => this.#node(target).signal('SIGCONT');
    }
  }

  #kill(members: readonly string[]): End {
    const etcd = this.#etcd;
    const killed = Promise.all(members.map((name) => etcd.signal(name, 'SIGKILL')));
    return async () => {
      await killed;
      if (!this.#isCanceled) for (const name of members) etcd.startMember(name);
    };
  }

  /**
   * Stops a writer until it has received the votes. Then cuts the responses of the member that it uses, and
   * lets the writer commit.
   */
  #loseCommit(writer: ClusterNode): End {
    const etcd = this.#etcd;
    writer.signal('SIGSTOP');
    const cutting = pause(VOTES_MS).then(() => {
      // A writer that was killed meanwhile has no connection.
      const address = writer.lastContact(ETCD_PORT);
      const member = etcd.members.find((each) => each.address === address);
      if (member !== undefined) etcd.cutResponses(member.name);
      writer.signal('SIGCONT');
      return member;
    });
    return () => cutting.then((member) => (member === undefined ? undefined : etcd.mend(member.name)));
  }

  #cutAllResponses(): void {
    for (const { name } of this.#etcd.members) this.#etcd.cutResponses(name);
  }

  #slow(target: string): End {
    const etcd = this.#etcd;
    let isSlow = true;
    const slowing = (async () => {
      while (isSlow) {
        await etcd.signal(target, 'SIGSTOP');
        await pause(STOP_MS);
        await etcd.signal(target, 'SIGCONT');
        await pause(RUN_MS);
      }
    })();
    return () => {
      isSlow = false;
      return slowing;
    };
  }

  /** Stops a writer during a collection, so that the collection comes before its next step. */
  #collectBeside(writer: ClusterNode): End {
    writer.signal('SIGSTOP');
    const collecting = this.#collect();
    const waiting = Promise.race([collecting, pause(COLLECTION_MS)]).then(() => writer.signal('SIGCONT'));
    return () => Promise.all([collecting, waiting]);
  }

  /** Collects garbage as the present leader. Does nothing if a fault hinders the collection. */
  async #collect(): Promise<void> {
    try {
      const key = keys.leader;
      const { found } = await this.#client.transact({ when: [], apply: [{ type: 'get', key }] }, { withinMs: 1_000 });
      const leader = found[0]?.[0];
      if (leader !== undefined) await collect(this.#client, keys, { key, createRevision: leader.createRevision });
    } catch (failure) {
      if (!(failure instanceof EtcdError)) throw failure;
    }
  }

  #node(id: string): ClusterNode {
    const node = this.#nodes.get(id);
    if (node === undefined) throw new Error(`there is no node ${id}`);
    return node;
  }
}
