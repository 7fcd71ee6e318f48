import { setTimeout as pause } from 'node:timers/promises';
import type { Observable } from 'rxjs';
import type { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { EtcdError } from '#cluster/etcd/etcd-error.js';
import type { Condition, Operation } from '#cluster/etcd/etcd-types.js';
import { type ClusterData, type ClusterKeys, isBody } from '#cluster/keys.js';
import type { Election } from '#cluster/members/election.js';
import { bodyWrites } from '#cluster/parts.js';
import type { Replica } from '#cluster/replica/replica.js';
import { failureBeforeCommit, storeFailure } from '#cluster/store-failure.js';
import type { ChangeEnd } from '#contracts/policy/pending-change.js';
import type { SharedCommits } from '#store/policies/policy-store.js';
import { ASSERTIONS } from '#store/settings/assertion-store.js';
import { StoreError } from '#store/store-error.js';
import type { KvOperation, KvStore, PolicyPlan } from '#store/store-types.js';
import { proposedBodies } from './proposed-bodies.js';
import type { LockEntry, WriteLock } from './write-lock.js';

const COMMIT = { withinMs: 3_000 };
/** The maximum time in milliseconds to find out whether etcd applied a commit that got no response. */
const SETTLE_MS = 10_000;
const SETTLE_PAUSE_MS = 50;
/** The maximum time in milliseconds for which a commit waits until the replica of this node contains it. */
const APPLY_MS = 10_000;

type CommitPorts = ClusterData & {
  readonly kv: KvStore;
  readonly replica: Replica;
  readonly writeLock: WriteLock;
  readonly election: Election;
};

/**
 * Writes the policy commits of a cluster: first the parts of the policy text, then one transaction that
 * replaces the head.
 */
export class Commits implements SharedCommits {
  readonly #client: EtcdClient;
  readonly #keys: ClusterKeys;
  readonly #replica: Replica;
  readonly #writeLock: WriteLock;
  readonly #kv: KvStore;
  readonly #election: Election;
  /** The planned writes whose policy texts this node has stored or is storing. */
  readonly #kept = new WeakMap<PolicyPlan, Promise<void>>();

  /** `kv` is the local store, which contains the replica. */
  constructor(
    readonly node: string,
    { client, keys, kv, replica, writeLock, election }: CommitPorts,
  ) {
    this.#election = election;
    this.#client = client;
    this.#keys = keys;
    this.#kv = kv;
    this.#replica = replica;
    this.#writeLock = writeLock;
  }

  get applied(): Observable<readonly KvOperation[]> {
    return this.#replica.applied;
  }

  /**
   * Commits a plan. Resolves when the replica of this node contains the commit. Throws a `StoreError`:
   * - `revision_conflict` if this node has lost the write lock, or another node has committed: nothing
   *   changed.
   * - `store_unavailable` or `store_full` if etcd did not apply the commit.
   * - `outcome_unknown` if etcd does not report within 10 s whether it applied the commit.
   */
  async commit(plan: PolicyPlan): Promise<void> {
    const { own } = this.#writeLock;
    if (own === null) throw lost('this node does not hold the write lock');
    const lock = await translated('take the write lock', () => this.#writeLock.taken(own));
    const bodies =
      this.#writeLock.proposed === plan
        ? []
        : await translated('write the policy to etcd', () => bodyWrites(this.#client, this.#keys, plan));
    await this.keep(plan);
    const timer = await translated('start the timer of the change', () => this.#timer(plan));
    await this.#replica.until(await this.#move(plan, lock, [...bodies, ...timer]), APPLY_MS);
    this.#writeLock.forget();
  }

  /**
   * Commits the end of a pending change, on the condition that no other commit came in between. If the leader
   * decides the end, a further condition is that this node still leads; if the time has elapsed, also that
   * the timer of the change has ended. Throws the errors of `commit`.
   */
  async settle(plan: PolicyPlan, { change, because }: ChangeEnd): Promise<void> {
    const timer = this.#keys.change(change);
    if (!this.#replica.isConnected)
      throw new StoreError(
        'store_unavailable',
        'this node does not receive the changes of etcd, see the check policy_replication',
      );
    const when: Condition[] = [...this.#unchanged(plan)];
    if (because !== 'asked') {
      const fence = this.#election.fence;
      if (fence === null) throw lost('this node does not lead');
      when.push(fence);
    }
    if (because === 'elapsed') {
      const left = this.#replica.present.get(timer);
      when.push({ key: timer, modRevision: left?.lease === 0n ? left.modRevision : 0n });
    }
    const reports: Operation = { type: 'delete_range', range: this.#keys.reports(change) };
    const apply: Operation[] = [...this.#writes(plan), { type: 'delete', key: timer }, reports];
    const { succeeded, revision } = await this.#client.transact({ when, apply }, COMMIT).catch((failure: unknown) => {
      throw storeFailure('end the pending change', failure);
    });
    if (!succeeded) throw lost('another node has changed the policies, or the time of the change has not ended');
    await this.#replica.until(revision, APPLY_MS);
  }

  /**
   * Stores the policy text of a plan on this node, if it is not stored yet. So after the commit, the replica
   * need not read it from etcd.
   */
  keep(plan: PolicyPlan): Promise<void> {
    const known = this.#kept.get(plan);
    if (known !== undefined) return known;
    const bodies = plan.operations.filter(({ key }) => isBody(key));
    const operations = proposedBodies(this.#writeLock.own?.id ?? '', bodies);
    const kept = operations.length === 0 ? Promise.resolve() : this.#kv.batch(operations, { sync: false });
    this.#kept.set(plan, kept);
    return kept;
  }

  /**
   * Returns the operations that start the timer of a new pending change, and end the timers of earlier ones.
   * The timer is a key on a lease, so that etcd measures the time.
   */
  async #timer({ head: { pending, commit } }: PolicyPlan): Promise<readonly Operation[]> {
    const { from } = this.#keys.changes;
    const kept = pending === undefined ? '' : this.#keys.change(pending.id);
    const old = [...this.#replica.present.keys()].filter((key) => key.startsWith(from) && key !== kept);
    const ends = old.map((key): Operation => ({ type: 'delete', key }));
    if (pending === undefined || pending.id !== commit) return ends;
    const { terms } = pending;
    const ms = terms.kind === 'confirm' ? terms.within_ms : terms.hold_ms;
    // Add the deadline of the commit, because the time of the change begins with the commit.
    const lease = await this.#client.grant(Math.ceil((ms + COMMIT.withinMs) / 1_000), COMMIT);
    return [...ends, { type: 'put', key: kept, value: new Uint8Array(), lease }];
  }

  get headRevision(): bigint {
    return this.#replica.revisionOf('head');
  }

  revisionOf(key: string): bigint {
    return this.#replica.revisionOf(key);
  }

  /**
   * The conditions that the cluster, the head (last commit), and the list of assertions, if it was checked,
   * are unchanged since the plan was made.
   */
  #unchanged({ headRevision, listRevision }: PolicyPlan): readonly Condition[] {
    return [
      ...(listRevision === null ? [] : [{ key: this.#keys.inEtcd(ASSERTIONS), modRevision: listRevision }]),
      { key: this.#keys.meta, modRevision: this.#replica.metaRevision },
      { key: this.#keys.inEtcd('head'), modRevision: headRevision },
    ];
  }

  /**
   * Returns the operations of a plan except those of its policy text, and the operation that stores the id of
   * its commit.
   */
  #writes({ head: { sequence = 0, commit = '' }, operations }: PolicyPlan): readonly Operation[] {
    const writes = operations
      .filter(({ key }) => !isBody(key))
      .map((operation): Operation => {
        const key = this.#keys.inEtcd(operation.key);
        return operation.type === 'put' ? { type: 'put', key, value: operation.value } : { type: 'delete', key };
      });
    return [...writes, { type: 'put', key: this.#keys.commit(sequence), value: Buffer.from(commit) }];
  }

  /**
   * Replaces the head (the record of the last commit), on the condition that the lock entry of this node
   * exists. Returns the etcd revision of the commit.
   */
  async #move(plan: PolicyPlan, lock: LockEntry, others: readonly Operation[]): Promise<bigint> {
    const { sequence = 0, commit = '' } = plan.head;
    const when = [...this.#unchanged(plan), { key: lock.entry.key, createRevision: lock.entry.createRevision }];
    const apply: Operation[] = [
      ...others,
      ...this.#writes(plan),
      { type: 'delete', key: lock.entry.key },
      { type: 'delete_range', range: this.#keys.votes(lock) },
    ];
    try {
      const { succeeded, revision } = await this.#client.transact({ when, apply }, COMMIT);
      if (succeeded) return revision;
    } catch (failure) {
      if (!(failure instanceof EtcdError) || failure.code !== 'outcome_unknown')
        throw storeFailure('commit the policy', failure);
      return await this.#settle(lock, sequence, commit);
    }
    throw lost('another node has changed the policies or the assertions, or this node has lost the write lock');
  }

  /**
   * Finds out whether etcd applied a commit that got no response. If the lock entry still exists, removes it,
   * so that etcd can never apply the commit. Otherwise reads the commit id that is stored under the sequence
   * number: if it is `commit`, etcd applied the commit.
   */
  async #settle(lock: LockEntry, sequence: number, commit: string): Promise<bigint> {
    const { key, createRevision } = lock.entry;
    for (const until = performance.now() + SETTLE_MS; performance.now() < until; await pause(SETTLE_PAUSE_MS)) {
      try {
        const { succeeded, found } = await this.#client.transact(
          {
            when: [{ key, createRevision }],
            apply: [{ type: 'delete', key }],
            otherwise: [{ type: 'get', key: this.#keys.commit(sequence) }],
          },
          COMMIT,
        );
        if (succeeded) throw new StoreError('store_unavailable', 'etcd did not apply the write; nothing was changed');
        const entry = found[0]?.[0];
        if (entry !== undefined && Buffer.from(entry.value).toString() === commit) return entry.modRevision;
        throw lost('this node lost the write lock before etcd applied the write');
      } catch (failure) {
        if (!(failure instanceof EtcdError)) throw failure;
      }
    }
    throw new StoreError(
      'outcome_unknown',
      `etcd does not report whether it applied commit ${sequence}; the last known revision is ${this.#replica.revision}`,
    );
  }
}

function lost(reason: string): StoreError {
  return new StoreError('revision_conflict', `commit the policy: ${reason}; nothing was changed`);
}

async function translated<T>(operation: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (failure) {
    throw failureBeforeCommit(operation, failure);
  }
}
