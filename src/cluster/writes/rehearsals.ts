import {
  defer,
  distinctUntilChanged,
  map,
  merge,
  mergeMap,
  type Observable,
  pairwise,
  share,
  startWith,
  takeWhile,
  timer,
} from 'rxjs';
import type { PolicyProposal } from '#bus/bus-messages.js';
import type { EtcdClient } from '#cluster/etcd/etcd-client.js';
import type { KeyChange, Operation } from '#cluster/etcd/etcd-types.js';
import type { ClusterKeys, LockKey } from '#cluster/keys.js';
import type { Membership } from '#cluster/members/membership.js';
import { bodiesOf, bodyWrites, hasSmallBodies } from '#cluster/parts.js';
import { CLUSTER_RECORDS, type Vote } from '#cluster/records.js';
import { failureBeforeCommit } from '#cluster/store-failure.js';
import type { Refusal, RefusalCode } from '#contracts/refusal.js';
import { encodeJson } from '#store/records/json-value.js';
import { StoreError } from '#store/store-error.js';
import type { PolicyPlan } from '#store/store-types.js';
import type { Claim, LockEntry, WriteLock } from './write-lock.js';

/**
 * If a cluster member sends no report for this time in milliseconds, a policy write continues without its
 * vote.
 */
const SILENCE_MS = 3_000;
/**
 * The interval in milliseconds at which a cluster member reports that it has not yet finished to load a
 * proposed policy.
 */
const REPORT_MS = 1_000;
/** The time in milliseconds before the first report. A member that votes earlier sends no report. */
const FIRST_REPORT_MS = 500;
/** Refusals because of the state of a member, not because of the policy. The write continues despite them. */
const FOR_NOW: readonly RefusalCode[] = [
  'dataplane_unavailable',
  'feature_unavailable',
  'store_unavailable',
  'draining',
];
/**
 * Policy texts of at most this many bytes are included in the proposal (policy write before its commit), so
 * that members need not read them from etcd.
 */
const ENCLOSED_BYTES = 4 * 1024;
/**
 * The time in milliseconds for which the watch of the votes stays open after a rehearsal, for use by the next
 * rehearsal.
 */
const KEEP_WATCH_MS = 10_000;
const WRITE = { withinMs: 3_000 };

/** The result of the vote of the cluster members on a proposed policy write. */
export type Rehearsal = {
  /** The number of members, including this node. */
  readonly members: number;
  /** The members that neither voted nor reported in time. */
  readonly behind: readonly string[];
};

/** Returns the parts of the policy text of a plan for its proposal, if they are small. */
function enclosed(plan: PolicyPlan): Pick<PolicyProposal, 'bodies'> {
  const bodies = bodiesOf(plan);
  if (bodies.reduce((bytes, { value }) => bytes + value.length, 0) > ENCLOSED_BYTES) return {};
  return { bodies: Object.fromEntries(bodies.map(({ key, value }) => [key, Buffer.from(value).toString('base64')])) };
}

/**
 * Thrown if a member refuses a proposed policy, for example because the policy is too large for its kernel
 * maps.
 */
export class MemberRefused extends Error {
  override readonly name = 'MemberRefused';
  constructor(
    readonly node: string,
    readonly refusal: Refusal,
  ) {
    super(`node ${node}: ${refusal.detail}`);
  }
}

/**
 * The rehearsal of policy writes: before a commit, all members stage and prove the policy, and vote. So a
 * member that cannot stage the policy refuses the write, and after the commit all members put the policy in
 * force at almost the same time.
 */
export class Rehearsals {
  readonly #client: EtcdClient;
  readonly #keys: ClusterKeys;
  readonly #writeLock: WriteLock;
  readonly #membership: Membership;
  readonly #node: string;
  /** The id of the proposal (policy write before its commit) for which this node has voted. */
  #voted: string | null = null;
  /**
   * Emits each change of a vote on a proposal (policy write before its commit) of this node. Its watch stays
   * open as `KEEP_WATCH_MS` describes.
   */
  readonly #votesHere: Observable<KeyChange>;

  constructor(client: EtcdClient, keys: ClusterKeys, writeLock: WriteLock, membership: Membership, node: string) {
    this.#client = client;
    this.#keys = keys;
    this.#writeLock = writeLock;
    this.#membership = membership;
    this.#node = node;
    // Watch from the present revision, and read earlier votes separately, because etcd starts a watch from an
    // old revision up to 100 ms later.
    this.#votesHere = defer(() => client.watch(keys.votesFor(node), 0n)).pipe(
      mergeMap(async ({ changes }) => (changes.length === 0 ? this.#votesBefore() : changes)),
      mergeMap((changes) => changes),
      share({ resetOnRefCountZero: () => timer(KEEP_WATCH_MS) }),
    );
  }

  /** Emits each policy write that another node proposes, and the id of each proposal that has ended. */
  get proposals(): Observable<PolicyProposal | { readonly ended: string }> {
    const first = this.#writeLock.all.pipe(
      map(([lock]) => (lock === undefined || lock.node === this.#node ? null : lock.proposal)),
      distinctUntilChanged((one, other) => one?.id === other?.id),
      startWith(null),
      pairwise(),
    );
    return first.pipe(
      mergeMap(([before, now]) => [...(before === null ? [] : [{ ended: before.id }]), ...(now === null ? [] : [now])]),
    );
  }

  /**
   * Proposes a planned policy write to the other members, and collects their votes. Throws `MemberRefused` if
   * a member refuses the policy, and a `StoreError` if this node has lost the write lock or etcd cannot be
   * reached.
   */
  async rehearse(plan: PolicyPlan, proposal: Omit<PolicyProposal, 'id' | 'node'>): Promise<Rehearsal> {
    try {
      const lock = this.#writeLock.own;
      if (lock === null) throw new StoreError('revision_conflict', 'this node does not hold the write lock');
      // The watch of the votes opens while etcd writes the proposal.
      const proposing = this.#propose(lock, plan, proposal);
      const [members, behind] = await Promise.all([proposing, this.#votes(lock, proposing)]);
      return { members: Math.max(members.length, 1), behind };
    } catch (failure) {
      throw failureBeforeCommit('propose the policy to the other nodes', failure);
    }
  }

  /**
   * Writes the vote of this node on a proposal (policy write before its commit). `staged`: whether this node
   * has staged the policy. `refusal`: why it refuses the policy, or null.
   */
  vote({ id }: PolicyProposal, staged: boolean, refusal: Refusal | null): void {
    const report = (): Promise<boolean> => this.#report(id, { node: this.#node, staged, refusal });
    if (staged || refusal !== null) {
      this.#voted = id;
      void report();
      return;
    }
    this.#voted = null;
    timer(FIRST_REPORT_MS, REPORT_MS)
      .pipe(
        takeWhile(() => this.#voted !== id),
        mergeMap(report),
        takeWhile((exists) => exists),
      )
      .subscribe();
  }

  /**
   * Writes a proposal (policy write before its commit) and its policy text to etcd. Returns the ids of all
   * members.
   */
  async #propose(
    own: LockEntry | Claim,
    plan: PolicyPlan,
    proposal: Omit<PolicyProposal, 'id' | 'node'>,
  ): Promise<readonly string[]> {
    const full = { ...proposal, ...enclosed(plan) };
    const members: Operation = { type: 'get_range', range: this.#keys.members, keysOnly: true };
    // A large policy text is written to etcd before the proposal (policy write before its commit). The lock
    // entry must exist before the text.
    const lock = hasSmallBodies(plan) ? own : await this.#writeLock.taken(own);
    const bodies = await bodyWrites(this.#client, this.#keys, plan);
    const [present] = await this.#writeLock.propose(lock, full, [...bodies, members]);
    this.#writeLock.proposed = plan;
    // Omit keys without a lease: they belong to no node, so their votes would never arrive.
    return (present ?? []).filter(({ lease }) => lease !== 0n).map(({ key }) => this.#keys.memberOf(key));
  }

  async #votesBefore(): Promise<readonly KeyChange[]> {
    const { entries } = await this.#client.range(this.#keys.votesFor(this.#node), WRITE);
    return entries.map((entry) => ({ type: 'put', entry }));
  }

  /**
   * Waits for the votes of the other members. Returns the members that neither voted nor reported for
   * `SILENCE_MS`.
   */
  #votes(lock: LockKey, listing: Promise<readonly string[]>): Promise<readonly string[]> {
    return new Promise((resolve, reject) => {
      const began = performance.now();
      const reports = new Map<string, number>();
      const staged = new Set<string>();
      let others: readonly string[] | null = null;
      const endIfAllStaged = (): void => {
        const missing = others?.filter((id) => !staged.has(id));
        const silent = missing?.filter((id) => performance.now() - (reports.get(id) ?? began) >= SILENCE_MS);
        if (silent !== undefined && silent.length === missing?.length) end(() => resolve(silent));
      };
      const { from: prefix } = this.#keys.votes(lock);
      const votes = this.#votesHere.pipe(
        mergeMap((change) => {
          if (change.type !== 'put' || !change.entry.key.startsWith(prefix)) return [];
          const { value } = CLUSTER_RECORDS.vote.reading(CLUSTER_RECORDS.vote.prefix, change.entry.value);
          return value === undefined ? [] : [value];
        }),
      );
      const watching = merge(votes, timer(SILENCE_MS, 200)).subscribe({
        next: (vote) => {
          if (typeof vote === 'number') return endIfAllStaged();
          const { node, refusal } = vote;
          if (refusal !== null && !FOR_NOW.includes(refusal.code))
            return end(() => reject(new MemberRefused(node, refusal)));
          reports.set(node, refusal === null ? performance.now() : Number.NEGATIVE_INFINITY);
          if (vote.staged) staged.add(node);
          endIfAllStaged();
        },
        error: (failure: Error) => end(() => reject(failure)),
      });
      listing.then(
        (ids) => {
          others = ids.filter((id) => id !== this.#node);
          endIfAllStaged();
        },
        (failure: Error) => end(() => reject(failure)),
      );
      const end = (settle: () => void): void => {
        queueMicrotask(() => watching.unsubscribe());
        settle();
      };
    });
  }

  /**
   * Writes the vote of this node to etcd, on the condition that the lock entry of the proposal (policy write
   * before its commit) exists. Returns whether the entry exists.
   */
  async #report(lockId: string, vote: Vote): Promise<boolean> {
    const { lease } = this.#membership;
    const lock = this.#writeLock.find(lockId);
    if (lease === null || lock === null) return false;
    const { key, createRevision } = lock.entry;
    const put = { type: 'put' as const, key: this.#keys.vote(lock, this.#node), value: encodeJson(vote) };
    try {
      const { succeeded } = await this.#client.transact(
        { when: [{ key, createRevision }], apply: [{ ...put, lease: lease.id }] },
        WRITE,
      );
      return succeeded;
    } catch {
      // Ignore the failure: the write continues without the vote of this node.
      return true;
    }
  }
}
