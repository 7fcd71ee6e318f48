import { filter, firstValueFrom, map, merge, type Observable } from 'rxjs';
import type { PolicyProposal } from '#bus/bus-messages.js';
import type { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { EtcdError } from '#cluster/etcd/etcd-error.js';
import type { Condition, KeyRange, KeyValue, Operation, TransactionResult } from '#cluster/etcd/etcd-types.js';
import type { Lease } from '#cluster/etcd/lease.js';
import type { ClusterKeys } from '#cluster/keys.js';
import { CLUSTER_RECORDS, type LockValue, type Proposal } from '#cluster/records.js';
import type { Replica } from '#cluster/replica/replica.js';
import { failureBeforeCommit } from '#cluster/store-failure.js';
import { encodeJson } from '#store/records/json-value.js';
import { StoreError } from '#store/store-error.js';
import type { PolicyPlan } from '#store/store-types.js';

const WITHIN = { withinMs: 3_000 };

/** An entry of the write lock: a key in etcd on the lease of its node. The oldest entry holds the lock. */
export type LockEntry = {
  readonly id: string;
  readonly node: string;
  /** The write that the node proposes; null before its rehearsal (vote of all members before a commit). */
  readonly proposal: PolicyProposal | null;
  readonly entry: KeyValue;
};

type Found = TransactionResult['found'];

/**
 * The right to make an entry together with the proposal, because no entry existed when the write began.
 * `when`: the conditions that still no entry exists, and that no policy was written since.
 */
export type Claim = {
  readonly id: string;
  readonly node: string;
  readonly lease: bigint;
  readonly when: readonly Condition[];
};

/**
 * The write lock of a cluster: policy writes of all nodes run one after the other. An entry is a key on the
 * lease of its node, so etcd removes it if the node dies or is frozen. A commit has the condition that its
 * entry exists.
 */
export class WriteLock {
  readonly #client: EtcdClient;
  readonly #keys: ClusterKeys;
  readonly #replica: Replica;
  readonly #node: string;
  #own: LockEntry | Claim | null = null;
  /**
   * Whether the last write of this node lost the lock or its claim. The next write then waits for the lock.
   */
  #mustWait = false;
  /** The etcd lease of the last write-lock entry that this node made. */
  #lease: bigint | null = null;
  /** The ids of the entries of this node: those that wait for the lock, hold it, or are being removed. */
  readonly #known = new Set<string>();
  /**
   * The plan whose policy text this node has written to etcd with its proposal, while it holds the lock; null
   * without a proposal (policy write before its commit).
   */
  proposed: PolicyPlan | null = null;

  constructor(client: EtcdClient, keys: ClusterKeys, replica: Replica, node: string) {
    this.#client = client;
    this.#keys = keys;
    this.#replica = replica;
    this.#node = node;
    replica.live.subscribe((live) => this.#removeLost(live));
  }

  /**
   * All entries of the cluster's write lock, the oldest first. The node of the oldest entry holds the lock.
   */
  get all(): Observable<readonly LockEntry[]> {
    return this.#replica.live.pipe(map((live) => this.#entriesIn(live)));
  }

  find(id: string): LockEntry | null {
    return this.#entriesIn(this.#replica.present).find((lock) => lock.id === id) ?? null;
  }

  /**
   * The entry with which this node holds the lock, or the claim of this node; null if this node does not
   * write.
   */
  get own(): LockEntry | Claim | null {
    return this.#own;
  }

  /**
   * Waits until this node holds the lock. The replica then contains all earlier commits. If no entry exists,
   * only makes a claim and resolves at once: the proposal or the commit then takes the lock, and fails if
   * another node took it first. Waits again if the leader removes all entries. Throws a `StoreError` if etcd
   * cannot be reached, and the reason of `signal` after its abort.
   */
  async take(lease: Lease, signal: AbortSignal): Promise<void> {
    this.#lease = lease.id;
    this.proposed = null;
    const isFree = [...this.#replica.present.keys()].every((key) => this.#keys.lockId(key) === null);
    if (isFree && !this.#mustWait) {
      this.#own = { id: crypto.randomUUID(), node: this.#node, lease: lease.id, when: this.#unchanged() };
      return;
    }
    for (;;) {
      const id = crypto.randomUUID();
      this.#known.add(id);
      try {
        const { revision } = await this.#put(this.#keys.lockEntry(id), lease);
        const lock = await this.#first(id, revision, lease, signal);
        if (lock === null) {
          this.#known.delete(id);
          continue;
        }
        this.#own = lock;
        this.#mustWait = false;
        return;
      } catch (failure) {
        void this.#remove(id);
        throw failureBeforeCommit('wait for the lock of the cluster for policy writes', failure);
      }
    }
  }

  /** Returns the lock entry of this node. If there is only a claim, makes the entry first. */
  async taken(own: LockEntry | Claim): Promise<LockEntry> {
    return 'when' in own ? (await this.#takeClaimed(own)).lock : own;
  }

  /**
   * Throws `revision_conflict` if the leader has removed the entry of this node. If this node only claims the
   * lock, throws `revision_conflict` if another node has taken the lock or has written a policy.
   */
  async confirm(): Promise<void> {
    const own = this.#own;
    if (own === null) return;
    const isClaim = 'when' in own;
    const when = isClaim ? own.when : [exists(own.entry)];
    const apply = [{ type: 'get' as const, key: this.#keys.meta, keysOnly: true }];
    const { succeeded } = await this.#client.transact({ when, apply }, WITHIN);
    if (!succeeded) throw isClaim ? this.#claimLost() : lockLost();
  }

  /**
   * Puts a proposal (policy write before its commit) into the entry of this node, in one transaction with
   * `more`. Returns what each `get_range` in `more` found. Throws `revision_conflict` if the entry was
   * removed, or can no longer be claimed.
   */
  async propose(own: LockEntry | Claim, proposal: Proposal, more: readonly Operation[]): Promise<Found> {
    if ('when' in own) return (await this.#takeClaimed(own, proposal, more)).found;
    const { key, lease } = own.entry;
    const value = encodeJson({ node: this.#node, proposal } satisfies LockValue);
    const { succeeded, found } = await this.#client.transact(
      { when: [exists(own.entry)], apply: [...more, { type: 'put', key, value, lease }] },
      WITHIN,
    );
    if (!succeeded) throw lockLost();
    return found;
  }

  async #takeClaimed(
    { id, node, lease, when }: Claim,
    proposal?: Proposal,
    more: readonly Operation[] = [],
  ): Promise<{ readonly lock: LockEntry; readonly found: Found }> {
    const key = this.#keys.lockEntry(id);
    const value = encodeJson({ node, ...(proposal && { proposal }) } satisfies LockValue);
    this.#known.add(id);
    const put: Operation = { type: 'put', key, value, lease };
    const { succeeded, revision, found } = await this.#client.transact({ when, apply: [...more, put] }, WITHIN);
    if (!succeeded) {
      this.#known.delete(id);
      throw this.#claimLost();
    }
    const entry: KeyValue = { key, value, createRevision: revision, modRevision: revision, lease };
    const lock: LockEntry = { id, node, proposal: proposal === undefined ? null : { ...proposal, id, node }, entry };
    if (this.#own?.id === id) this.#own = lock;
    return { lock, found };
  }

  #claimLost(): StoreError {
    this.#mustWait = true;
    return new StoreError('revision_conflict', 'another node writes a policy; nothing was changed');
  }

  /** Returns conditions that hold until any node makes a lock entry or writes a policy. */
  #unchanged(): readonly Condition[] {
    return [
      { key: this.#keys.meta, modRevision: this.#replica.metaRevision },
      { key: this.#keys.inEtcd('head'), modRevision: this.#replica.revisionOf('head') },
      { empty: this.#keys.lockEntries },
    ];
  }

  /** Removes the entry of this node, if there is one that no commit has removed. */
  release(): void {
    const own = this.#own;
    this.#own = null;
    if (own === null || !this.#known.has(own.id)) return;
    this.#mustWait = true;
    void this.#remove(own.id, this.#keys.votes(own));
  }

  /** Must be called after a commit, which has removed the entry of this node from etcd. */
  forget(): void {
    if (this.#own !== null) this.#known.delete(this.#own.id);
    this.#own = null;
  }

  #put(key: string, lease: Lease): Promise<{ readonly revision: bigint }> {
    const value = encodeJson({ node: this.#node });
    const old = this.#entriesIn(this.#replica.present).filter(({ node }) => node === this.#node);
    const apply = old.map(({ entry }) => ({ type: 'delete' as const, key: entry.key }));
    return this.#client.transact({ when: [], apply: [...apply, { type: 'put', key, value, lease: lease.id }] }, WITHIN);
  }

  /**
   * Waits until a lock entry is the oldest one, which holds the lock. Returns null if the entry is removed
   * before that.
   */
  async #first(id: string, revision: bigint, lease: Lease, signal: AbortSignal): Promise<LockEntry | null> {
    const lost = (reason: string) => (): never => {
      throw new EtcdError('unavailable', reason);
    };
    const first = this.#replica.live.pipe(
      filter(() => this.#replica.revision >= revision),
      map((live) => this.#entriesIn(live)),
      filter((entries) => entries[0]?.id === id || !entries.some((lock) => lock.id === id)),
      map(([lock]) => (lock?.id === id ? lock : null)),
    );
    const ended = merge(
      lease.ended.pipe(map((reason) => lost(reason)())),
      this.#replica.connected.pipe(
        filter((connected) => !connected),
        map(lost('the connection to etcd was lost')),
      ),
    );
    const aborted = abortOf(signal);
    try {
      return await Promise.race([firstValueFrom(merge(ended, first)), aborted.promise]);
    } finally {
      aborted.forget();
    }
  }

  /**
   * Removes entries of this node that it does not use. etcd may apply the put of an entry after the node has
   * given up and removed the key. Such an entry would block the writes of all nodes, because its lease is
   * still renewed.
   */
  #removeLost(live: ReadonlyMap<string, KeyValue>): void {
    for (const { key, lease } of live.values()) {
      const id = this.#keys.lockId(key);
      if (id === null || lease !== this.#lease || this.#known.has(id)) continue;
      this.#known.add(id);
      void this.#remove(id);
    }
  }

  async #remove(id: string, votes?: KeyRange): Promise<void> {
    const ranges = votes === undefined ? [] : [{ type: 'delete_range' as const, range: votes }];
    const key = this.#keys.lockEntry(id);
    try {
      await this.#client.transact({ when: [], apply: [{ type: 'delete', key }, ...ranges] }, WITHIN);
    } catch (failure) {
      // Ignore the failure: `#removeLost` or the next entry of this node removes the key, or the lease ends.
      if (!(failure instanceof EtcdError)) throw failure;
    } finally {
      this.#known.delete(id);
    }
  }

  /**
   * Returns the entries of nodes, the oldest first. Ignores an entry that cannot be read or has no lease.
   * This is safe, because the conditions of a commit prevent two writes at the same time.
   */
  #entriesIn(live: ReadonlyMap<string, KeyValue>): readonly LockEntry[] {
    const entries: LockEntry[] = [];
    for (const entry of live.values()) {
      const id = this.#keys.lockId(entry.key);
      if (id === null) continue;
      const { lockEntry } = CLUSTER_RECORDS;
      const { value } = lockEntry.reading(lockEntry.prefix + id, entry.value);
      if (value === undefined || entry.lease === 0n) continue;
      const { node, proposal } = value;
      entries.push({ id, node, proposal: proposal === undefined ? null : { ...proposal, id, node }, entry });
    }
    return entries.sort((a, b) => Number(a.entry.createRevision - b.entry.createRevision));
  }
}

/** Returns the condition that nothing has removed a lock entry. */
const exists = ({ key, createRevision }: KeyValue): Condition => ({ key, createRevision });

const lockLost = (): StoreError =>
  new StoreError('revision_conflict', 'this node has lost the write lock; nothing was changed');

function abortOf(signal: AbortSignal): { readonly promise: Promise<never>; forget(): void } {
  let abort = (): void => {};
  const promise = new Promise<never>((_, reject) => {
    abort = () => reject(signal.reason as Error);
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort);
  });
  promise.catch(() => {});
  return { promise, forget: () => signal.removeEventListener('abort', abort) };
}
