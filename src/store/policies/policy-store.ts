import { BehaviorSubject, distinctUntilChanged, map, type Observable, Subject } from 'rxjs';
import type { ChangeEnd, PendingChange, RevertedChange } from '#contracts/policy/pending-change.js';
import type {
  PolicyChange,
  PolicyPut,
  PolicyRecord,
  PolicyRevision,
  StoredPolicy,
  StoredRevision,
} from '#contracts/policy/policy-record.js';
import { createMutex } from '#store/mutex.js';
import { intactEntries } from '#store/records/intact-values.js';
import { putJson, under } from '#store/records/json-value.js';
import { RECORDS } from '#store/records/records.js';
import { ASSERTIONS, formerRevisions, readAssertionList } from '#store/settings/assertion-store.js';
import { StoreError } from '#store/store-error.js';
import type { FindingListener } from '#store/store-finding.js';
import type {
  EnforcedRecord,
  HistoryPage,
  KvOperation,
  KvStore,
  PolicyPlan,
  PolicyStore,
  PolicyToEnforce,
  SharedStore,
} from '#store/store-types.js';
import { Bodies, type BodyWrite, edited, type WholeBodyWrite } from './bodies.js';
import { CommitWriter } from './commit-writer.js';
import { type ChangeDeadline, ConfirmationTime } from './confirmation-time.js';
import { DEFAULT_BOUNDS, type HistoryBounds } from './history-bounds.js';
import { HistorySweep } from './history-sweep.js';
import type { LastGoodFile } from './last-good.js';
import { LastGoodCopy } from './last-good-copy.js';
import { loadPolicies, NO_POLICIES } from './load-policies.js';
import { type Enforced, enforcedAt, reservedGeneration, settled, withoutRow } from './pending-change.js';
import { HEAD, historyKey, type Plan, planOf, policyKey, writesOf } from './policy-plan.js';
import { type PolicyRow, type PolicyState, recordOf } from './policy-row.js';
import { revisionOf } from './revision-facts.js';

/**
 * The commits of a cluster: a node writes them to the shared store, and every node applies them from there.
 */
export type SharedCommits = Pick<SharedStore, 'applied'> & {
  /** The id of this node. */
  readonly node: string;
  /** The revision of the head (last commit) that `applied` has emitted last. */
  readonly headRevision: bigint;
  /**
   * Returns the revision in the shared store of a key in the replica (local copy of the keys in etcd); 0 if
   * the replica lacks the key.
   */
  revisionOf(key: string): bigint;
  /**
   * Writes a commit to the shared store. Resolves when `applied` has emitted the commit on this node. Throws
   * `revision_conflict` if another node has committed since.
   */
  commit(plan: PolicyPlan): Promise<void>;
  /**
   * Writes the end of a pending change, like `commit`. Throws `revision_conflict` if the condition of `end`
   * fails.
   */
  settle(plan: PolicyPlan, end: ChangeEnd): Promise<void>;
};

/**
 * Loads the policies, see `loadPolicies`. If the active policy stays damaged, `active` throws
 * `store_damaged`. With `shared`, commits go to the cluster, and `kv` is the replica of this node. `bounds`
 * are those of the history of a single node.
 */
export async function loadPolicyStore(
  kv: KvStore,
  lastGood: LastGoodFile,
  onFinding: FindingListener,
  shared: SharedCommits | null = null,
  bounds: HistoryBounds = DEFAULT_BOUNDS,
): Promise<PolicyStore & { readonly sweep: HistorySweep }> {
  const store = new KvPolicyStore(kv, lastGood, onFinding, shared, bounds);
  await store.load(lastGood, onFinding);
  return store;
}

class KvPolicyStore implements PolicyStore {
  readonly #kv: KvStore;
  readonly #bodies: Bodies;
  readonly #shared: SharedCommits | null;
  readonly #runExclusive = createMutex();
  readonly #commits: CommitWriter;
  readonly #copy: LastGoodCopy;
  /** The planned store operations of each change for which `plan` was called before `commit`. */
  readonly #plans = new WeakMap<PolicyChange, Promise<Plan>>();
  /** Ids of policies whose stored record is damaged. */
  readonly #damaged = new Set<string>();
  /** Policy texts from the last-good copy that could not be written back to the store, by their hash. */
  readonly #restored = new Map<string, Uint8Array>();
  readonly #present = new BehaviorSubject<PolicyState>(NO_POLICIES);
  readonly #followed = new Subject<number>();
  readonly #time = new ConfirmationTime();
  /** The id of the pending change that this node reverted by itself, without a change of the store. */
  #revertedHere: string | null = null;

  /**
   * The sweep (removal of old revisions) of the history. In a cluster, the history follows that of etcd
   * instead.
   */
  readonly sweep: HistorySweep;

  constructor(
    kv: KvStore,
    lastGood: LastGoodFile,
    onFinding: FindingListener,
    shared: SharedCommits | null,
    bounds: HistoryBounds,
  ) {
    this.#kv = kv;
    this.sweep = new HistorySweep(
      kv,
      this.#runExclusive,
      () => this.#state,
      bounds,
      async () => formerRevisions((await readAssertionList(kv)).assertions),
    );
    this.#commits = new CommitWriter(kv, this.#runExclusive, (operations) => this.#follow(operations));
    this.#shared = shared;
    this.#bodies = new Bodies(kv);
    this.#copy = new LastGoodCopy(lastGood, this.#bodies, onFinding);
  }

  get #state(): PolicyState {
    return this.#present.value;
  }

  get pending(): Observable<PendingChange | null> {
    return this.#present.pipe(
      map(({ head: { pending } }) => pending ?? null),
      distinctUntilChanged((one, other) => one?.id === other?.id),
      map((pending) => pending && withoutRow(pending)),
    );
  }

  get deadline(): Observable<ChangeDeadline | null> {
    return this.#time.deadline;
  }

  get reverted(): RevertedChange | null {
    return this.#state.head.reverted ?? null;
  }

  get followed(): Observable<number> {
    return this.#followed;
  }

  /** The revision in the shared store of the record of the last commit (head) that `#state` contains. */
  get #headRevision(): bigint {
    return this.#shared?.headRevision ?? 0n;
  }

  get #enforced(): Enforced {
    return enforcedAt(this.#state, this.#shared?.node ?? '', this.#revertedHere);
  }

  async load(lastGood: LastGoodFile, onFinding: FindingListener): Promise<void> {
    this.#shared?.applied.subscribe((operations) => this.#follow(operations));
    const loaded = await loadPolicies(this.#kv, this.#bodies, lastGood, onFinding);
    for (const id of loaded.damaged) this.#damaged.add(id);
    for (const [sha256, body] of loaded.restored) this.#restored.set(sha256, body);
    this.#present.next(loaded.state);
    this.#noteTime(true);
    if (loaded.isCopyOld) await this.#copy.write(loaded.state);
  }

  async list(): Promise<PolicyRecord[]> {
    const { head, rows } = this.#state;
    return [...rows.values()].map((row) => recordOf(row, row.id === head.active)).sort(byName);
  }

  async get(id: string): Promise<StoredPolicy | null> {
    const { head, rows } = this.#state;
    const row = rows.get(id);
    if (row !== undefined) return this.#stored(row, row.id === head.active);
    if (this.#damaged.has(id)) throw new StoreError('store_damaged', `read policy ${id}: its record is damaged`);
    return null;
  }

  async findByName(name: string): Promise<PolicyRecord | null> {
    const { head, rows } = this.#state;
    const wanted = folded(name);
    for (const row of rows.values()) {
      if (row.name !== null && folded(row.name) === wanted) return recordOf(row, row.id === head.active);
    }
    return null;
  }

  async active(): Promise<StoredPolicy | null> {
    const { active } = this.#state.head;
    return active === null ? null : this.get(active);
  }

  async toEnforce(): Promise<PolicyToEnforce> {
    const { row, generation } = this.#enforced;
    const { active, ever_activated: everActivated } = this.#state.head;
    // The rows do not contain a damaged record; `get` then throws an error.
    const stored = row === null ? null : await this.#stored(row, true);
    if (row === null && active !== null && generation === this.#state.head.generation) await this.get(active);
    return { stored, generation, everActivated };
  }

  async enforced(): Promise<EnforcedRecord> {
    const { row, generation } = this.#enforced;
    const { ever_activated: everActivated } = this.#state.head;
    return { record: row && recordOf(row, true), generation, everActivated };
  }

  async settle(end: ChangeEnd): Promise<void> {
    await this.#runExclusive(async () => {
      await this.#commits.settle();
      const { pending } = this.#state.head;
      if (pending?.id !== end.change)
        throw new StoreError('revision_conflict', 'the change is not pending any more; nothing was changed');
      if (end.outcome === 'complete') this.#refuseAfterDeadline();
      const { head, row } = settled(this.#state, end, pending);
      const plan = {
        head,
        headRevision: this.#headRevision,
        listRevision: null,
        operations: [...(row === null ? [] : writesOf(row)), putJson(HEAD, head)],
      };
      if (this.#shared !== null) await this.#shared.settle(plan, end);
      else {
        this.sweep.willCommit(plan.operations);
        await this.#commits.write(plan);
        this.#follow(plan.operations);
      }
    });
  }

  correctDeadline(change: string, atMs: number): void {
    this.#time.correct(change, atMs);
  }

  revertHere(change: string): void {
    if (this.#state.head.pending?.id !== change || this.#revertedHere === change) return;
    this.#revertedHere = change;
    this.#followed.next(this.#enforced.generation);
  }

  async plan(change: PolicyChange): Promise<PolicyPlan> {
    return this.#planned(change);
  }

  commit(change: PolicyChange): Promise<void> {
    return this.#runExclusive(() => this.#commit(change));
  }

  async bodySha256(id: string, { operations }: PolicyPlan): Promise<string> {
    const written = operations.find(({ key }) => key === policyKey(id));
    const row = written?.type === 'put' ? RECORDS.policy.read(written.key, written.value) : this.#state.rows.get(id);
    if (row === undefined) throw new StoreError('revision_conflict', `read policy ${id}: the policy does not exist`);
    return row.body_sha256;
  }

  async history(id: string, { before, limit = Number.POSITIVE_INFINITY }: HistoryPage = {}): Promise<PolicyRevision[]> {
    const { head, rows } = this.#state;
    const current = head.active === id ? rows.get(id)?.revision : undefined;
    const all = under(`history/${id}/`);
    const range = { gte: all.gte, lt: before === undefined ? all.lt : historyKey(id, before), reverse: true };
    const revisions: PolicyRevision[] = [];
    for await (const [key, bytes] of intactEntries(this.#kv, range, () => {})) {
      if (revisions.length >= limit) break;
      const { value: row } = RECORDS.history.reading(key, bytes);
      if (row !== undefined) revisions.push(revisionOf(row, row.revision === current));
    }
    return revisions;
  }

  async revision(id: string, revision: number): Promise<StoredRevision | null> {
    const { head, rows } = this.#state;
    const active = head.active === id && rows.get(id)?.revision === revision;
    return this.#ofRevision(id, revision, async (row) => ({
      record: revisionOf(row, active),
      body: await this.#bodyOfRow(row),
    }));
  }

  async slice(id: string, revision: number, from: number, to: number): Promise<Uint8Array | null> {
    return this.#ofRevision(id, revision, async ({ body_sha256: sha256 }) => {
      const restored = this.#restored.get(sha256);
      return restored?.subarray(from, to) ?? this.#bodies.slice(sha256, from, to);
    });
  }

  async generation(): Promise<number> {
    return this.#state.head.generation;
  }

  async headCommit(): Promise<string> {
    return this.#state.head.commit ?? '';
  }

  async reservedGeneration(): Promise<number> {
    return reservedGeneration(this.#state.head);
  }

  async everActivated(): Promise<boolean> {
    return this.#state.head.ever_activated;
  }

  async #commit(change: PolicyChange): Promise<void> {
    await this.#commits.settle();
    const { put } = change;
    const before = put === undefined ? undefined : this.#state.rows.get(put.record.id);
    const plan = await this.#planned(change);
    if (plan.head.sequence !== (this.#state.head.sequence ?? 0) + 1)
      throw new StoreError(
        'revision_conflict',
        'commit the policy: another write was committed first; nothing was changed',
      );
    if (plan.head.generation !== this.#state.head.generation) this.#refuseAfterDeadline();
    this.#copy.willCommit({ put, before, body: plan.body });
    // `#follow` writes the last-good copy later. The response need not wait for it, because etcd also stores
    // the policy.
    if (this.#shared !== null) return this.#shared.commit(plan);
    this.sweep.willCommit(plan.operations);
    await this.#commits.write(plan);
    this.#adopt(plan.operations);
    if (this.#copy.isOld) await this.#copy.write(this.#state);
  }

  /**
   * Throws if the time of the pending change has passed: Weir reverts it, and nothing may complete it any
   * more.
   */
  #refuseAfterDeadline(): void {
    if (!this.#time.hasPassed) return;
    throw new StoreError(
      'revision_conflict',
      'the time for the confirmation of the pending change has passed: Weir reverts it; nothing was changed',
    );
  }

  #noteTime(isOld: boolean): void {
    if (this.#shared !== null) return;
    const { pending } = this.#state.head;
    this.#time.note(pending === undefined ? null : withoutRow(pending), { isOld });
  }

  #planned(change: PolicyChange): Promise<Plan> {
    const known = this.#plans.get(change);
    if (known !== undefined) return known;
    const planned = this.#newPlan(change);
    this.#plans.set(change, planned);
    return planned;
  }

  async #newPlan(change: PolicyChange): Promise<Plan> {
    const listRevision = await this.#listRevision(change);
    return planOf(change, { ...this.#state, headRevision: this.#headRevision, listRevision }, (put, stored) =>
      this.#bodyOf(put, stored),
    );
  }

  /**
   * Returns the revision of the list of assertions in the shared store, which a commit needs unchanged; null
   * if the commit is valid with every list. Throws `revision_conflict` if the list has changed since the
   * check of the commit.
   */
  async #listRevision({ assertions: checked }: PolicyChange): Promise<bigint | null> {
    if (checked === undefined) return null;
    // Read the revision before the list: if the replica (local copy of the keys in etcd) stores another list
    // in between, the condition of the commit fails.
    const shared = this.#shared?.revisionOf(ASSERTIONS) ?? 0n;
    const { revision } = await readAssertionList(this.#kv);
    if (revision === checked) return shared;
    throw new StoreError(
      'revision_conflict',
      'commit the policy: the list of assertions was changed meanwhile; nothing was changed',
    );
  }

  /** Updates the state in memory after a batch of the cluster, or after the end of a pending change. */
  #follow(operations: readonly KvOperation[]): void {
    this.#adopt(operations);
    if (operations.some(({ key }) => key === HEAD)) this.#followed.next(this.#enforced.generation);
    if (this.#copy.isOld) {
      void this.#runExclusive(async () => {
        if (this.#copy.isOld) await this.#copy.write(this.#state);
      });
    }
  }

  /** Updates the record of the last commit (head) and the policy records in memory from a stored batch. */
  #adopt(operations: readonly KvOperation[]): void {
    const before = this.#state;
    let { head } = before;
    const rows = new Map(before.rows);
    for (const operation of operations) {
      const { key } = operation;
      if (key === HEAD && operation.type === 'put') head = RECORDS.head.read(key, operation.value);
      if (!key.startsWith(RECORDS.policy.prefix)) continue;
      const id = key.slice(RECORDS.policy.prefix.length);
      this.#damaged.delete(id);
      const row = operation.type === 'put' ? RECORDS.policy.reading(key, operation.value).value : undefined;
      if (row !== undefined) rows.set(id, row);
      else rows.delete(id);
      if (row === undefined && operation.type === 'put') this.#damaged.add(id);
    }
    const active = head.active ?? '';
    // If its record is missing, treat the active policy as damaged and not as absent, because
    // `policy.fallback` must not replace it.
    if (head.active !== null && !rows.has(active)) this.#damaged.add(active);
    this.#present.next({ head, rows });
    this.#noteTime(false);
    this.#copy.changed(before, { head, rows });
  }

  /**
   * Returns the write of the policy text. For an edit, applies the edit to the stored text; throws
   * `revision_conflict` if the edit refers to another revision than the stored one.
   */
  async #bodyOf(put: PolicyPut, stored: PolicyRow | undefined): Promise<BodyWrite | WholeBodyWrite> {
    if ('body' in put) return this.#bodies.whole(put.body, stored?.body_sha256 ?? null);
    if ('ofRevision' in put) return this.#bodyAgain(put.record.id, put.ofRevision);
    const { record, edit } = put;
    if (stored?.revision !== edit.revision) {
      const found = stored === undefined ? 'none' : `revision ${stored.revision}`;
      throw new StoreError(
        'revision_conflict',
        `edit revision ${edit.revision} of policy ${record.id}: ${found} is stored`,
      );
    }
    const restored = this.#restored.get(stored.body_sha256);
    return restored === undefined
      ? this.#bodies.edited(stored.body_sha256, edit)
      : this.#bodies.whole(edited(restored, edit));
  }

  /** Returns the write of the text of an earlier revision. Throws `revision_conflict` if it is not stored. */
  async #bodyAgain(id: string, revision: number): Promise<WholeBodyWrite> {
    const written = await this.#ofRevision(id, revision, async ({ body_sha256: sha256 }) => {
      const restored = this.#restored.get(sha256);
      return restored === undefined ? this.#bodies.again(sha256) : this.#bodies.whole(restored);
    });
    if (written !== null) return written;
    throw new StoreError('revision_conflict', `write revision ${revision} of policy ${id} again: it does not exist`);
  }

  /**
   * Reads the text of a revision. Returns null if the revision does not exist, or if the sweep of the history
   * removes it during the read.
   */
  async #ofRevision<T>(id: string, revision: number, read: (row: PolicyRow) => Promise<T>): Promise<T | null> {
    const row = await this.#revisionRow(id, revision);
    if (row === null) return null;
    try {
      return await read(row);
    } catch (failure) {
      if ((await this.#revisionRow(id, revision)) === null) return null;
      throw failure;
    }
  }

  async #stored(row: PolicyRow, active: boolean): Promise<StoredPolicy> {
    return { record: recordOf(row, active), body: await this.#bodyOfRow(row) };
  }

  async #bodyOfRow({ body_sha256: sha256 }: PolicyRow): Promise<Uint8Array> {
    return this.#restored.get(sha256) ?? (await this.#bodies.read(sha256));
  }

  async #revisionRow(id: string, revision: number): Promise<PolicyRow | null> {
    const key = historyKey(id, revision);
    const bytes = await this.#kv.get(key);
    return bytes === null ? null : RECORDS.history.read(key, bytes);
  }
}

const folded = (name: string): string => name.trim().toLowerCase();

function byName(a: PolicyRecord, b: PolicyRecord): number {
  if (a.name === null || b.name === null) return Number(a.name === null) - Number(b.name === null) || order(a.id, b.id);
  return order(folded(a.name), folded(b.name)) || order(a.id, b.id);
}

function order(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}
