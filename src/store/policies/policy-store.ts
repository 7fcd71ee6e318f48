import { BehaviorSubject, distinctUntilChanged, map, type Observable, Subject } from 'rxjs';
import { append } from '#arrays/append.js';
import type { ChangeEnd, PendingChange, RevertedChange } from '#contracts/policy/pending-change.js';
import type { PolicyPut, PolicyRecord, StoredPolicy } from '#contracts/policy/policy-record.js';
import { createMutex } from '#store/mutex.js';
import { intactEntries, intactRecords } from '#store/records/intact-values.js';
import { putJson, under } from '#store/records/json-value.js';
import { RECORDS } from '#store/records/records.js';
import { StoreError } from '#store/store-error.js';
import type { FindingListener } from '#store/store-finding.js';
import type {
  EnforcedRecord,
  KvOperation,
  KvStore,
  PolicyCommit,
  PolicyPlan,
  PolicyStore,
  PolicyToEnforce,
  SharedStore,
} from '#store/store-types.js';
import { Bodies, type BodyWrite, edited, type WholeBodyWrite } from './bodies.js';
import type { LastGood, LastGoodFile } from './last-good.js';
import { type Enforced, enforcedAt, reservedGeneration, settled, withoutRow } from './pending-change.js';
import { HEAD, historyKey, type Plan, planOf, policyKey, writesOf } from './policy-plan.js';
import { type PolicyHead, type PolicyRow, type PolicyState, recordOf } from './policy-row.js';

/** A commit of this node: the policy that it writes, the stored policy before it, and the body. */
type Written = {
  readonly put?: PolicyPut | undefined;
  readonly before?: PolicyRow | undefined;
  readonly body?: BodyWrite | WholeBodyWrite | undefined;
};

/**
 * The commits of a cluster: a node writes them to the shared store, and every node applies them from there.
 */
export type SharedCommits = Pick<SharedStore, 'applied'> & {
  /** The id of this node. */
  readonly node: string;
  /** The revision of the head that `applied` has emitted last. */
  readonly headRevision: bigint;
  /**
   * Writes a commit to the shared store. Resolves when `applied` has emitted the commit on this node. Throws
   * `revision_conflict` if another node has committed since.
   */
  commit(plan: PolicyPlan): Promise<void>;
  /** Writes the end of a pending change, like `commit`. Throws `revision_conflict` if its condition fails. */
  settle(plan: PolicyPlan, end: ChangeEnd): Promise<void>;
};

/**
 * Loads the policies and compares them with the last-good copy. Repairs the store from the copy in three
 * cases: the head is damaged, the copy has a higher generation, or the active policy is damaged and the copy
 * has the same generation. In all other cases a damaged active policy stays damaged, and `active` throws
 * `store_damaged`. With `shared`, commits go to the cluster, and `kv` is the replica of this node.
 */
export async function loadPolicyStore(
  kv: KvStore,
  lastGood: LastGoodFile,
  onFinding: FindingListener,
  shared: SharedCommits | null = null,
): Promise<PolicyStore> {
  const store = new KvPolicyStore(kv, lastGood, onFinding, shared);
  await store.load();
  return store;
}

/** The time in milliseconds before a store checks again whether it contains a commit. */
const SETTLE_MS = 5_000;

class KvPolicyStore implements PolicyStore {
  readonly #kv: KvStore;
  readonly #bodies: Bodies;
  readonly #lastGood: LastGoodFile;
  readonly #onFinding: FindingListener;
  readonly #shared: SharedCommits | null;
  readonly #runExclusive = createMutex();
  /** The plan of each change for which `plan` was called before `commit`. */
  readonly #plans = new WeakMap<PolicyCommit, Promise<Plan>>();
  /** Ids of policies whose stored record is damaged. */
  readonly #damaged = new Set<string>();
  /**
   * Policy bodies from the last-good copy that could not be written back to the store. The key is the body
   * hash.
   */
  readonly #restored = new Map<string, Uint8Array>();
  readonly #present = new BehaviorSubject<PolicyState>({
    head: { generation: 0, active: null, ever_activated: false },
    rows: new Map(),
  });
  readonly #followed = new Subject<number>();
  /** The id of the pending change that this node reverted by itself, without a change of the store. */
  #revertedHere: string | null = null;

  /** Whether the last-good copy is older than the active policy. */
  #copyIsOld = false;
  /** The last commit of this node, if it is unknown whether the store contains it. */
  #unknown: PolicyPlan | null = null;
  #settling: NodeJS.Timeout | undefined;
  /** The last commit of this node, until the last-good copy contains it. */
  #written: Written = {};

  constructor(kv: KvStore, lastGood: LastGoodFile, onFinding: FindingListener, shared: SharedCommits | null) {
    this.#kv = kv;
    this.#shared = shared;
    this.#bodies = new Bodies(kv);
    this.#lastGood = lastGood;
    this.#onFinding = onFinding;
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

  get reverted(): RevertedChange | null {
    return this.#state.head.reverted ?? null;
  }

  get followed(): Observable<number> {
    return this.#followed;
  }

  /** The revision of the head in the shared store that `#state` contains. */
  get #headRevision(): bigint {
    return this.#shared?.headRevision ?? 0n;
  }

  get #enforced(): Enforced {
    return enforcedAt(this.#state, this.#shared?.node ?? '', this.#revertedHere);
  }

  async load(): Promise<void> {
    this.#shared?.applied.subscribe((operations) => this.#follow(operations));
    const rows = await this.#loadRows();
    const head = await this.#loadHead();
    const copy = await this.#lastGood.read();
    if (head === null && rows.size === 0 && copy === null) return;
    this.#present.next({ head: head ?? this.#state.head, rows });

    if (head === null) {
      if (copy === null)
        throw new StoreError('store_damaged', 'the store has no valid head, and there is no last-good copy');
      await this.#restore(copy);
      this.#onFinding({
        code: 'head_damaged',
        message: `the store does not contain which policy is active; generation ${copy.head.generation} of the last-good copy is used`,
      });
    } else if (copy !== null && copy.head.generation > head.generation) {
      await this.#restore(copy);
      this.#onFinding({
        code: 'store_behind',
        message: `the store is at generation ${head.generation} and has lost later generations; generation ${copy.head.generation} of the last-good copy is used`,
      });
    } else if (await this.#activeIsDamaged()) {
      if (copy !== null && copy.head.generation === head.generation && copy.head.active === head.active) {
        await this.#restore(copy);
        this.#onFinding({
          code: 'active_damaged',
          message: `the active policy was damaged; it is restored from the last-good copy of the same generation ${head.generation}`,
        });
      } else {
        if (head.active !== null && !this.#state.rows.has(head.active)) this.#damaged.add(head.active);
        this.#onFinding({
          code: 'active_lost',
          message: `the active policy of generation ${head.generation} is damaged, and ${
            copy === null ? 'there is no last-good copy' : `the last-good copy is of generation ${copy.head.generation}`
          }`,
        });
      }
    } else if (copy?.head.generation !== head.generation) {
      await this.#copyActive();
    }
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
      await this.#settleUnknown();
      const { pending } = this.#state.head;
      if (pending?.id !== end.change)
        throw new StoreError('revision_conflict', 'the change is not pending any more; nothing was changed');
      const { head, row } = settled(this.#state, end, pending);
      const plan = {
        head,
        headRevision: this.#headRevision,
        operations: [...(row === null ? [] : writesOf(row)), putJson(HEAD, head)],
      };
      if (this.#shared !== null) await this.#shared.settle(plan, end);
      else {
        await this.#store(plan);
        this.#follow(plan.operations);
      }
    });
  }

  revertHere(change: string): void {
    if (this.#state.head.pending?.id !== change || this.#revertedHere === change) return;
    this.#revertedHere = change;
    this.#followed.next(this.#enforced.generation);
  }

  async plan(change: PolicyCommit): Promise<PolicyPlan> {
    return this.#planned(change);
  }

  commit(change: PolicyCommit): Promise<void> {
    return this.#runExclusive(() => this.#commit(change));
  }

  async bodySha256(id: string, { operations }: PolicyPlan): Promise<string> {
    const written = operations.find(({ key }) => key === policyKey(id));
    const row = written?.type === 'put' ? RECORDS.policy.read(written.key, written.value) : this.#state.rows.get(id);
    if (row === undefined) throw new StoreError('revision_conflict', `read policy ${id}: the policy does not exist`);
    return row.body_sha256;
  }

  async history(id: string): Promise<PolicyRecord[]> {
    const { head, rows } = this.#state;
    const current = head.active === id ? rows.get(id)?.revision : undefined;
    const records: PolicyRecord[] = [];
    for await (const [key, bytes] of intactEntries(this.#kv, under(`history/${id}/`), () => {})) {
      const { value: row } = RECORDS.history.reading(key, bytes);
      if (row !== undefined) records.push(recordOf(row, row.revision === current));
    }
    return records.reverse();
  }

  async revision(id: string, revision: number): Promise<StoredPolicy | null> {
    const { head, rows } = this.#state;
    const row = await this.#revisionRow(id, revision);
    return row === null ? null : this.#stored(row, head.active === id && rows.get(id)?.revision === revision);
  }

  async slice(id: string, revision: number, from: number, to: number): Promise<Uint8Array | null> {
    const row = await this.#revisionRow(id, revision);
    if (row === null) return null;
    const restored = this.#restored.get(row.body_sha256);
    return restored?.subarray(from, to) ?? this.#bodies.slice(row.body_sha256, from, to);
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

  async #commit(change: PolicyCommit): Promise<void> {
    await this.#settleUnknown();
    const { put } = change;
    const before = put === undefined ? undefined : this.#state.rows.get(put.record.id);
    const plan = await this.#planned(change);
    if (plan.head.sequence !== (this.#state.head.sequence ?? 0) + 1)
      throw new StoreError(
        'revision_conflict',
        'commit the policy: another write was committed first; nothing was changed',
      );
    this.#written = { put, before, body: plan.body };
    // `#follow` writes the last-good copy later. The response need not wait for it, because etcd also stores
    // the policy.
    if (this.#shared !== null) return this.#shared.commit(plan);
    await this.#store(plan);
    this.#adopt(plan.operations);
    if (this.#copyIsOld) await this.#copyActive();
  }

  /**
   * Writes the batch of a commit. A failed batch can be in the log of RocksDB, and then the next start
   * applies it. So after a failure, this method reads whether the store contains the commit. Throws
   * `outcome_unknown` if that read fails too.
   */
  async #store(plan: PolicyPlan): Promise<void> {
    try {
      await this.#kv.batch(plan.operations, { sync: true });
    } catch (failure) {
      this.#unknown = plan;
      const isStored = await this.#isStored(plan).catch((unknown: unknown) => {
        this.#settleLater();
        throw unknown;
      });
      this.#unknown = null;
      if (!isStored) throw failure;
    }
  }

  /**
   * Checks at intervals whether the store contains the last commit, until this is known, so that reads of
   * policies return the right state.
   */
  #settleLater(): void {
    const settle = (): void => {
      void this.#runExclusive(() => this.#settleUnknown()).catch((failure: unknown) => {
        if (this.#unknown === null) throw failure;
        this.#settleLater();
      });
    };
    clearTimeout(this.#settling);
    this.#settling = setTimeout(settle, SETTLE_MS).unref();
  }

  /**
   * Updates the state in memory from the last commit if its outcome was unknown and the store contains it.
   */
  async #settleUnknown(): Promise<void> {
    const plan = this.#unknown;
    if (plan === null) return;
    const isStored = await this.#isStored(plan).catch((cause: unknown) => {
      const reason = 'it is unknown whether the write before is stored';
      throw new StoreError('store_unavailable', `${reason}; nothing was changed`, { cause });
    });
    this.#unknown = null;
    if (isStored) this.#follow(plan.operations);
  }

  /**
   * Whether the store contains a commit whose batch failed. The empty batch makes RocksDB open the database
   * again, apply its log and write the result to the disk. Until this succeeds, a power failure can remove
   * the commit from the log.
   */
  async #isStored({ head }: PolicyPlan): Promise<boolean> {
    try {
      const synced = await this.#kv.batch([], { sync: true }).then(
        () => null,
        (failure: unknown) => ({ failure }),
      );
      const bytes = await this.#kv.get(HEAD);
      const commit = bytes === null ? undefined : RECORDS.head.read(HEAD, bytes).commit;
      if (commit !== head.commit) return false;
      if (synced !== null) throw synced.failure;
      return true;
    } catch (cause) {
      throw new StoreError('outcome_unknown', 'the disk does not report whether it has stored the write', { cause });
    }
  }

  #planned(change: PolicyCommit): Promise<Plan> {
    const known = this.#plans.get(change);
    if (known !== undefined) return known;
    const planned = planOf(change, { ...this.#state, headRevision: this.#headRevision }, (put, stored) =>
      this.#bodyOf(put, stored),
    );
    this.#plans.set(change, planned);
    return planned;
  }

  /** Updates the state in memory after a batch of the cluster, or after the end of a pending change. */
  #follow(operations: readonly KvOperation[]): void {
    this.#adopt(operations);
    if (operations.some(({ key }) => key === HEAD)) this.#followed.next(this.#enforced.generation);
    if (this.#copyIsOld) {
      void this.#runExclusive(async () => {
        if (this.#copyIsOld) await this.#copyActive();
      });
    }
  }

  /** Updates the head and the records in memory from a stored batch. */
  #adopt(operations: readonly KvOperation[]): void {
    const { head: before, rows: rowsBefore } = this.#state;
    let head = before;
    const rows = new Map(rowsBefore);
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
    // Without its record, treat the active policy as damaged and not as absent, because the fallback must not
    // replace it.
    if (head.active !== null && !rows.has(active)) this.#damaged.add(active);
    this.#present.next({ head, rows });
    this.#copyIsOld ||=
      head.generation !== before.generation ||
      head.active !== before.active ||
      head.pending?.id !== before.pending?.id ||
      rows.get(active)?.body_sha256 !== rowsBefore.get(active)?.body_sha256 ||
      rows.get(active)?.revision !== rowsBefore.get(active)?.revision;
  }

  /**
   * Returns the write of the policy body. For an edit, applies the edit to the stored body; throws
   * `revision_conflict` if the edit refers to another revision than the stored one.
   */
  async #bodyOf(put: PolicyPut, stored: PolicyRow | undefined): Promise<BodyWrite | WholeBodyWrite> {
    if ('body' in put) return this.#bodies.whole(put.body);
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

  /**
   * Writes the active policy to the last-good copy. If this write fails, only `onFinding` reports the
   * failure: the commit to the store has already succeeded.
   */
  async #copyActive(): Promise<void> {
    const { head, rows } = this.#state;
    const row = head.active === null ? undefined : rows.get(head.active);
    // Keep the last-good copy while the record of the active policy cannot be read.
    if (head.active !== null && row === undefined) return;
    this.#copyIsOld = false;
    const { put, before, body } = this.#written;
    this.#written = {};
    try {
      if (row === undefined) {
        await this.#lastGood.write({ head, active: null });
        return;
      }
      // Compare the body and not the revision: a failed commit and a later record can have the same revision.
      const isPut = put?.record.id === row.id && body?.sha256 === row.body_sha256;
      if (isPut && 'edit' in put && before !== undefined) {
        const { edit } = put;
        if (await this.#lastGood.append({ head, row, of: before.body_sha256, edit })) return;
      }
      const compressed =
        isPut && 'compressed' in body ? body.compressed : await this.#bodies.compressed(row.body_sha256);
      await this.#lastGood.write({ head, active: { row, compressed } });
    } catch (error) {
      this.#onFinding({
        code: 'last_good_unwritable',
        message: `write the last-good copy of generation ${head.generation}: ${error instanceof Error ? error.message : String(error)}`,
      });
    }
  }

  async #restore({ head: copied, active }: LastGood): Promise<void> {
    const head = await this.#withoutLostChange(copied);
    const rows = new Map(this.#state.rows);
    const operations: KvOperation[] = [putJson(HEAD, head)];
    let restored: { readonly sha256: string; readonly body: Uint8Array } | undefined;
    if (active !== null) {
      const body = await active.body();
      const write = await this.#bodies.whole(body);
      const row = { ...active.row, body_sha256: write.sha256 };
      restored = { sha256: write.sha256, body };
      rows.set(row.id, row);
      append(operations, write.operations);
      append(operations, writesOf(row));
      this.#damaged.delete(row.id);
    }
    this.#present.next({ head, rows });
    try {
      await this.#kv.batch(operations, { sync: true });
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      if (restored !== undefined) this.#restored.set(restored.sha256, restored.body);
    }
  }

  /**
   * Removes the pending change from a head if its former policy is lost, because the change can then not be
   * reverted.
   */
  async #withoutLostChange(head: PolicyHead): Promise<PolicyHead> {
    const { pending, ...others } = head;
    const row = pending?.before.row ?? null;
    if (row === null) return head;
    try {
      await this.#bodies.read(row.body_sha256);
      return head;
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      this.#onFinding({
        code: 'pending_lost',
        message: `generation ${head.generation} was a pending change; it stays in force, because its former policy is lost`,
      });
      return others;
    }
  }

  async #loadHead(): Promise<PolicyHead | null> {
    try {
      const bytes = await this.#kv.get(HEAD);
      return bytes === null ? null : RECORDS.head.read(HEAD, bytes);
    } catch (error) {
      if (error instanceof StoreError && error.code === 'store_damaged') return null;
      throw error;
    }
  }

  async #loadRows(): Promise<Map<string, PolicyRow>> {
    const rows = new Map<string, PolicyRow>();
    const entries = intactRecords(this.#kv, RECORDS.policy, ({ message }, key) => {
      this.#damaged.add(key.slice(RECORDS.policy.prefix.length));
      this.#onFinding({ code: 'record_damaged', message });
    });
    for await (const [, row] of entries) rows.set(row.id, row);
    return rows;
  }

  async #activeIsDamaged(): Promise<boolean> {
    const { active } = this.#state.head;
    if (active === null) return false;
    try {
      return (await this.get(active)) === null;
    } catch (error) {
      if (error instanceof StoreError && error.code === 'store_damaged') return true;
      throw error;
    }
  }

  async #stored(row: PolicyRow, active: boolean): Promise<StoredPolicy> {
    const body = this.#restored.get(row.body_sha256) ?? (await this.#bodies.read(row.body_sha256));
    return { record: recordOf(row, active), body };
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
