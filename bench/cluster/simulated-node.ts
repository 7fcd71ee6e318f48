import { setTimeout as pause } from 'node:timers/promises';
import { defer, filter, firstValueFrom, retry, Subscription, switchMap, timeout } from 'rxjs';
import type { PolicyProposal } from '#bus/bus-messages.js';
import { Cluster } from '#cluster/cluster.js';
import type { EtcdOptions } from '#cluster/etcd/etcd-types.js';
import type { Rehearsal } from '#cluster/writes/rehearsals.js';
import type { PolicyPut, PolicyRecord } from '#contracts/policy/policy-record.js';
import { assembleStore, type Store } from '#store/store.js';
import type { KvStore, SharedStore } from '#store/store-types.js';
import { NO_PEERS } from '#test/cluster/etcd-cluster.js';
import { createMemoryStore, memorySeal, NO_COPY } from '#test/store/memory-store.js';

const RETRY_MS = 200;
const JOIN_MS = 60_000;
const POLL_MS = 100;
const PREFIX = '/weir';
const POLICY = 'policy-1';

/** Returns the part of a node that talks to etcd, with its replica in `kv`. */
export function clusterOn(kv: KvStore, id: string, etcd: EtcdOptions): Cluster {
  return new Cluster(kv, {
    etcd,
    prefix: PREFIX,
    self: { id, address: '127.0.0.1:7443', version: '0.0.0' },
    ...NO_PEERS,
    local: ['setting/tls-intercept-ca'],
    seal: null,
  });
}

function recordOf(revision: number): PolicyRecord {
  const at = new Date().toISOString();
  const times = { created_at: at, updated_at: at, updated_by: 'bench' };
  return { id: POLICY, name: null, form: 'singleton', mode: 'enforce', revision, ...times, active: true };
}

/**
 * A node of a cluster without its API, its policy thread and its dataplane: the real replica, membership,
 * election, rehearsal and policy store, with a memory store. It waits for `compileMs` instead of a
 * compilation.
 */
export class SimulatedNode {
  /** The time of the flip to each generation, as `performance.now()`. */
  readonly flips = new Map<number, number>();
  readonly #running = new Subscription();

  private constructor(
    readonly cluster: Cluster,
    readonly store: Store,
    private readonly compileMs: () => number,
  ) {}

  static async create(id: string, etcd: EtcdOptions, compileMs: () => number = () => 0): Promise<SimulatedNode> {
    const kv = createMemoryStore();
    const cluster = clusterOn(kv, id, etcd);
    const shared = { kv: cluster.kv, store: cluster.store, commits: cluster.commits, seals: false };
    const store = await assembleStore(kv, NO_COPY, memorySeal(), () => {}, shared);
    return new SimulatedNode(cluster, store, compileMs);
  }

  /** Follows etcd, becomes a member, stages the proposals of other nodes, and flips after each commit. */
  start(): void {
    const { cluster } = this;
    const follow = defer(() => cluster.follow()).pipe(retry({ delay: RETRY_MS }));
    const join = defer(() => cluster.join()).pipe(retry({ delay: RETRY_MS }));
    const staged = cluster.proposals.pipe(switchMap((change) => ('ended' in change ? [] : this.#stage(change))));
    this.#running.add(follow.subscribe());
    this.#running.add(join.subscribe());
    this.#running.add(cluster.runForLeader());
    this.#running.add(staged.subscribe());
    this.#running.add(
      this.store.policies.followed.subscribe((generation) => {
        this.flips.set(generation, performance.now());
        cluster.announce(generation);
      }),
    );
  }

  async #stage(proposal: PolicyProposal): Promise<void> {
    this.cluster.vote(proposal, false, null);
    await this.cluster.bodyOf(proposal);
    await pause(this.compileMs());
    this.cluster.vote(proposal, true, null);
  }

  /** Waits until the node follows etcd and the cluster has `members` members. */
  async takesPart(members: number): Promise<void> {
    for (const until = performance.now() + JOIN_MS; performance.now() < until; await pause(POLL_MS)) {
      const status = await this.cluster.status();
      if (status.connected && status.members?.length === members) return;
    }
    throw new Error(`${this.cluster.id} does not see ${members} members`);
  }

  /**
   * Writes the next revision of the policy: write lock, rehearsal and commit. Returns the votes of the other
   * nodes.
   */
  async write(put: (record: PolicyRecord) => PolicyPut, rehearse = true): Promise<Rehearsal | null> {
    const { cluster, store } = this;
    await cluster.takeWriteLock(AbortSignal.timeout(60_000));
    try {
      const before = (await store.policies.list()).find(({ id }) => id === POLICY);
      const generation = (await store.policies.generation()) + 1;
      const record = recordOf((before?.revision ?? 0) + 1);
      const change = { put: put(record), generation };
      const plan = await store.policies.plan(change);
      const bodySha256 = await store.policies.bodySha256(POLICY, plan);
      const rehearsal = rehearse ? await cluster.rehearse(plan, { generation, record, bodySha256 }) : null;
      await store.policies.commit(change);
      return rehearsal;
    } finally {
      cluster.releaseWriteLock();
    }
  }

  /** Waits until the replica contains a generation. */
  async reaches(generation: number, withinMs = 30_000): Promise<void> {
    if (this.flips.has(generation)) return;
    await firstValueFrom(
      this.store.policies.followed.pipe(
        filter((committed) => committed >= generation),
        timeout(withinMs),
      ),
    );
  }

  /** The shared settings and integrations. */
  get shared(): SharedStore {
    return this.cluster.store;
  }

  /** Leaves the cluster and closes the connections to etcd. */
  async end(): Promise<void> {
    this.#running.unsubscribe();
    await this.store.close();
  }
}
