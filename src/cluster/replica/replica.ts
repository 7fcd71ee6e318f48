import {
  BehaviorSubject,
  concat,
  concatMap,
  defer,
  filter,
  finalize,
  firstValueFrom,
  from,
  interval,
  map,
  merge,
  type Observable,
  of,
  Subject,
  startWith,
  switchMap,
  tap,
  timeout,
  timer,
} from 'rxjs';
import { append } from '#arrays/append.js';
import { Contradiction } from '#cluster/contradiction.js';
import type { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { EtcdError } from '#cluster/etcd/etcd-error.js';
import type { KeyChange, KeyValue, RangeResult, WatchBatch } from '#cluster/etcd/etcd-types.js';
import type { ClusterKeys } from '#cluster/keys.js';
import { fetchReadable } from '#cluster/parts.js';
import { CLUSTER_RECORDS, type ClusterMeta, NODE_RECORDS, type ReplicaState } from '#cluster/records.js';
import type { UnreadableValues } from '#cluster/unreadable-values.js';
import { collectProposed, withBodies } from '#cluster/writes/proposed-bodies.js';
import { listKey } from '#store/policies/bodies.js';
import type { PolicyRow } from '#store/policies/policy-row.js';
import { intactEntries, intactValues } from '#store/records/intact-values.js';
import { encodeJson, putJson } from '#store/records/json-value.js';
import { RECORDS } from '#store/records/records.js';
import { StoreError } from '#store/store-error.js';
import type { KvOperation, KvPut } from '#store/store-types.js';
import type { ReplicaStore } from './replica-store.js';
import { type ReplicaPorts, RevisionHistory } from './revision-history.js';
import { headIn, metaIn, READ, requireSuccessor } from './succession.js';

const KEPT = NODE_RECORDS.replica.prefix;
const HEAD = RECORDS.head.prefix;
const POLICY = RECORDS.policy.prefix;

/**
 * The interval in milliseconds at which the replica is compared with etcd. A watch does not detect that etcd
 * was restored from a backup, because etcd accepts a watch from a future revision and sends nothing.
 */
const REREAD_MS = 30_000;
/**
 * The time in milliseconds before the texts of uncommitted policy writes are first removed from the local
 * store, and the interval after it.
 */
const FIRST_COLLECTION_MS = 60_000;
const COLLECTION_MS = 3_600_000;

export type ReplicaEvent =
  /**
   * Events of the replica (copy of the etcd keys). `replica.caught_up`: it equals etcd, and now gets changes
   * from the watch.
   */
  { readonly type: 'replica.caught_up' } | { readonly type: 'replica.applied'; readonly revision: bigint };

/**
 * The copy of the shared keys in the local store of this node. The node reads only this copy, so reads work
 * without etcd.
 */
export class Replica {
  readonly #client: EtcdClient;
  readonly #kv: ReplicaStore;
  readonly #keys: ClusterKeys;
  readonly #unreadable: UnreadableValues;
  readonly #ports: ReplicaPorts;
  readonly #applied = new Subject<readonly KvOperation[]>();
  readonly #revision = new BehaviorSubject(0n);
  readonly #live = new BehaviorSubject<ReadonlyMap<string, KeyValue>>(new Map());
  readonly #connected = new BehaviorSubject(false);
  /** The revision of the last write of each shared key, by local key. */
  readonly #known = new Map<string, bigint>();
  #clusterId: string | null = null;
  #keptClusterId: string | null = null;
  #recoveries = 0;
  #isLoaded = false;
  #metaRevision = 0n;
  readonly #history: RevisionHistory;
  #seen = 0n;
  /**
   * The parts of the policy text in the newest proposal that this node has received, and the hash of their
   * list.
   */
  #offered: { readonly list: string; readonly bodies: readonly KvPut[] } | null = null;

  /**
   * `unreadable` receives the values of etcd that do not match their schema. The local store contains these
   * values unchanged.
   */
  constructor(client: EtcdClient, kv: ReplicaStore, keys: ClusterKeys, unreadable: UnreadableValues) {
    this.#unreadable = unreadable;
    this.#client = client;
    this.#kv = kv;
    this.#keys = keys;
    this.#ports = { client, keys, kv, unreadable };
    this.#history = new RevisionHistory(this.#ports, (revision) => this.#keptAt(revision));
  }

  /** Reads which cluster the local store is a copy of. */
  async #load(): Promise<void> {
    if (this.#isLoaded) return;
    this.#isLoaded = true;
    const bytes = await this.#kv.get(KEPT);
    if (bytes === null) return;
    const { line, recoveries, revision, history } = NODE_RECORDS.replica.read(KEPT, bytes);
    this.#clusterId = line;
    this.#recoveries = recoveries;
    this.#keptClusterId = line;
    this.#history.revision = BigInt(history);
    this.#revision.next(BigInt(revision));
  }

  /** Emits each batch of changes after it was written to the local store. */
  get applied(): Observable<readonly KvOperation[]> {
    return this.#applied;
  }

  /** Emits whether the replica is equal to etcd and receives its changes. */
  get connected(): Observable<boolean> {
    return this.#connected;
  }

  get isConnected(): boolean {
    return this.#connected.value;
  }

  /** The id of the cluster that the local store is a copy of; null if the node was in no cluster. */
  get clusterId(): string | null {
    return this.#clusterId;
  }

  /** The number of times that the cluster was recovered from a contradiction, as far as this node knows. */
  get recoveries(): number {
    return this.#recoveries;
  }

  /** The revision of etcd up to which the local store contains the shared keys. */
  get revision(): bigint {
    return this.#revision.value;
  }

  /** The revision of the newest change of the shared keys that this node has received. */
  get seen(): bigint {
    return this.#seen > this.revision ? this.#seen : this.revision;
  }

  /**
   * Passes parts of a proposed policy text to the replica, which then need not read them from etcd after the
   * commit. `list` is the hash of the list of the parts.
   */
  offer(list: string, bodies: readonly KvPut[]): void {
    this.#offered = { list, bodies };
  }

  #noteSeen(changes: readonly KeyChange[]): void {
    const last = changes.at(-1);
    if (last !== undefined) this.#seen = revisionOf(last);
  }

  /** The revision of the last write of the key `meta`; a condition of each write. */
  get metaRevision(): bigint {
    return this.#metaRevision;
  }

  /**
   * The present entries of the write lock and the leader, by their key in etcd. Emits after the batch that
   * changed them.
   */
  get live(): Observable<ReadonlyMap<string, KeyValue>> {
    return this.#live;
  }

  /** The last value that `live` emitted. */
  get present(): ReadonlyMap<string, KeyValue> {
    return this.#live.value;
  }

  /**
   * Returns the revision of the last write of a shared key; 0 if the replica (local copy of the keys in etcd)
   * lacks the key.
   */
  revisionOf(local: string): bigint {
    return this.#known.get(local) ?? 0n;
  }

  /**
   * Resolves when the replica contains a write that etcd applied as `revision`. Throws the `StoreError`
   * `outcome_unknown` after `withinMs`.
   */
  async until(revision: bigint, withinMs: number): Promise<void> {
    const isApplied = await firstValueFrom(
      this.#revision.pipe(
        map((applied) => applied >= revision),
        filter((applied) => applied),
        timeout({ first: withinMs, with: () => of(false) }),
      ),
    );
    if (!isApplied)
      throw new StoreError(
        'outcome_unknown',
        `the write is in etcd as revision ${revision}, but this node could not apply it yet`,
      );
  }

  /**
   * Makes the replica equal to etcd and follows the changes of etcd, while there is a subscriber. Reads the
   * old revisions of policies last, because after a long absence they take longest. Ends with a
   * `Contradiction`, an `EtcdError` or a `StoreError`.
   */
  follow(): Observable<ReplicaEvent> {
    return defer(() => from(this.#read())).pipe(
      switchMap((revision) => {
        this.#connected.next(true);
        const watched = this.#client.watch(this.#keys.shared, revision + 1n);
        const steps = merge(
          watched.pipe(
            tap(({ changes }) => this.#noteSeen(changes)),
            map((batch) => () => this.#applyBatch(batch)),
          ),
          interval(REREAD_MS).pipe(map(() => () => this.#read().then((read) => this.#history.fetch(read)))),
          timer(FIRST_COLLECTION_MS, COLLECTION_MS).pipe(map(() => () => this.#removeSwept())),
        ).pipe(
          startWith(() => this.#history.fetch(revision).then(() => this.#removeSwept())),
          concatMap((step) => step()),
          map((): ReplicaEvent => ({ type: 'replica.applied', revision: this.revision })),
        );
        return concat(of<ReplicaEvent>({ type: 'replica.caught_up' }), steps);
      }),
      finalize(() => {
        this.#connected.next(false);
        this.#live.next(new Map());
      }),
    );
  }

  /**
   * Makes the local store a copy of etcd despite a contradiction. Removes policies of the node that etcd
   * lacks.
   */
  async adopt(): Promise<void> {
    const found = await this.#client.range(this.#keys.shared, READ);
    this.#startAgain();
    await this.#applyAll(found);
    await this.#history.fetch(found.revision);
  }

  /** Records that this node belongs to a cluster that it has just written to etcd. */
  async expect(clusterId: string, recoveries: number): Promise<void> {
    this.#clusterId = clusterId;
    this.#recoveries = recoveries;
    this.#startAgain();
    await this.#kv.batch([this.#keptAt(0n)], { sync: true });
    this.#keptClusterId = clusterId;
  }

  /** Resets the known revisions of etcd, because etcd may begin its revisions anew after a recovery. */
  #startAgain(): void {
    this.#revision.next(0n);
    this.#history.revision = 0n;
    this.#known.clear();
  }

  /**
   * Reads all shared keys from etcd, and stores those that differ from the local store. Returns the revision
   * of the read.
   */
  async #read(): Promise<bigint> {
    await this.#load();
    const found = await this.#client.range(this.#keys.shared, READ);
    await requireSuccessor(found, this, () => this.#startAgain(), this.#ports);
    await this.#applyAll(found);
    return found.revision;
  }

  async #applyAll(found: RangeResult): Promise<void> {
    const { entries, revision } = found;
    const changes: KeyChange[] = [];
    const live = new Map<string, KeyValue>();
    const present = new Set<string>();
    const unknown: KeyValue[] = [];
    this.#unreadable.retain(this.#keys.shared, entries);
    for (const entry of entries) {
      const local = this.#keys.local(entry.key);
      if (local === null) {
        if (entry.key === this.#keys.meta) this.#applyMeta(entry);
        else this.#setLive(live, entry);
        continue;
      }
      present.add(local);
      if (this.revisionOf(local) !== entry.modRevision) unknown.push(entry);
    }
    // Treat a damaged value in the local store as absent, so that the value of etcd replaces it.
    const held = await intactValues(
      this.#kv,
      unknown.map(({ key }) => this.#keys.local(key) ?? ''),
    );
    for (const [index, entry] of unknown.entries()) {
      const value = held[index];
      if (value == null || Buffer.compare(value, entry.value) !== 0) changes.push({ type: 'put', entry });
      else {
        const local = this.#keys.local(entry.key) ?? '';
        this.#known.set(local, entry.modRevision);
        this.#readable(local, entry);
      }
    }
    append(changes, await this.#withoutBody(entries, changes));
    for (const local of await this.#localKeys())
      if (!present.has(local)) changes.push({ type: 'delete', key: this.#keys.inEtcd(local), modRevision: revision });
    await this.#apply(changes, revision);
    this.#live.next(live);
  }

  /**
   * Returns the changes that store policies whose text etcd lacked at an earlier read, if etcd has the text
   * now; in this case also the change of the head (record of the last commit).
   */
  async #withoutBody(entries: readonly KeyValue[], changes: readonly KeyChange[]): Promise<readonly KeyChange[]> {
    const changed = new Set(changes.map(keyOf));
    const policies = entries.flatMap((entry) => {
      const local = this.#keys.local(entry.key) ?? '';
      const list = changed.has(entry.key) ? undefined : bodyOf(local, entry.value);
      return list === undefined ? [] : [{ entry, list }];
    });
    const held = await intactValues(
      this.#kv,
      policies.map(({ list }) => listKey(list)),
    );
    const lacking = policies.filter((_, index) => held[index] === null);
    const found = await fetchReadable(
      this.#ports,
      this.#kv,
      new Map(lacking.map(({ entry, list }) => [list, entry.key])),
    );
    const again = lacking.filter(({ list }) => !found.missing.has(list)).map(({ entry }) => entry);
    const head = entries.filter(({ key }) => again.length > 0 && this.#keys.local(key) === HEAD && !changed.has(key));
    return [...again, ...head].map((entry) => ({ type: 'put', entry }));
  }

  /** Records whether the value of a replicated key matches its schema. */
  #readable(local: string, entry: KeyValue): void {
    const kind = this.#keys.kindOf(local);
    if (kind !== null) this.#unreadable.read(kind, entry);
  }

  #setLive(live: Map<string, KeyValue>, entry: KeyValue): void {
    if (entry.key === this.#keys.historySwept) return;
    live.set(entry.key, entry);
    const { leader, lockEntry } = CLUSTER_RECORDS;
    if (entry.key === this.#keys.leader) this.#unreadable.read(leader, entry, true);
    else if (this.#keys.lockId(entry.key) !== null) this.#unreadable.read(lockEntry, entry, true);
    else if (entry.key.startsWith(this.#keys.changes.from) && entry.lease === 0n)
      this.#unreadable.note(entry.key, 'it is on no lease, so that its time does not end');
  }

  /**
   * Removes the texts of uncommitted policy writes from the local store. Ignores a failure, for example on a
   * full disk.
   */
  async #collect(): Promise<void> {
    try {
      await collectProposed(this.#kv, (lock) => this.present.has(this.#keys.lockEntry(lock)));
    } catch (failure) {
      if (!(failure instanceof StoreError)) throw failure;
    }
  }

  /** Returns the local keys that this replica may have stored. */
  async #localKeys(): Promise<string[]> {
    const found: string[] = [];
    const take = (key: string): void => {
      if (this.#keys.isReplicated(key)) found.push(key);
    };
    for (const prefix of this.#keys.replicated)
      for await (const [key] of intactEntries(this.#kv, { gte: prefix, lt: `${prefix}\uffff` }, (_, key) => take(key)))
        take(key);
    return found;
  }

  async #applyBatch({ changes }: WatchBatch): Promise<void> {
    const newer = changes.filter((change) => revisionOf(change) > this.revision);
    const last = newer.at(-1);
    if (last === undefined) return;
    const live = new Map(this.#live.value);
    const data: KeyChange[] = [];
    if (newer.some((change) => change.type === 'delete' && change.key === this.#keys.meta))
      throw new Contradiction('wiped', 'the key meta was deleted in etcd');
    for (const change of newer) {
      const key = keyOf(change);
      const local = this.#keys.local(key);
      if (change.type === 'delete') {
        if (local === HEAD) throw new Contradiction('older', 'the key head was deleted in etcd');
        this.#unreadable.forget(key);
      }
      if (local === HEAD && change.type === 'put') headIn(change.entry, this.#unreadable);
      if (local !== null) data.push(change);
      else if (change.type === 'delete') live.delete(key);
      else if (key === this.#keys.meta) this.#applyMeta(change.entry);
      else this.#setLive(live, change.entry);
    }
    // A removal of a policy also adds a fact to its last revision. That revision is not part of this batch,
    // so it is read separately.
    const isRemoval = data.some((change) => change.type === 'delete' && keyOf(change).startsWith(this.#policies));
    const before = this.#history.revision;
    if (!isRemoval) this.#history.revision = revisionOf(last);
    try {
      await this.#apply(data, revisionOf(last));
    } catch (failure) {
      this.#history.revision = before;
      throw failure;
    }
    this.#live.next(live);
    if (isRemoval) await this.#history.fetch(revisionOf(last));
    if (newer.some((change) => keyOf(change) === this.#keys.historySwept)) await this.#removeSwept();
  }

  get #policies(): string {
    return this.#keys.inEtcd(POLICY);
  }

  /**
   * Removes the old revisions that the leader has removed, and their texts. Ignores a failure; the next call
   * continues.
   */
  async #removeSwept(): Promise<void> {
    try {
      await this.#history.removeSwept();
    } catch (failure) {
      if (!(failure instanceof StoreError) && !(failure instanceof EtcdError)) throw failure;
    }
    await this.#collect();
  }

  #applyMeta(entry: KeyValue): void {
    const { line, recoveries } = metaIn(entry, this.#unreadable);
    this.#clusterId = line;
    this.#recoveries = recoveries;
    this.#metaRevision = entry.modRevision;
  }

  /** Stores changes together with the policy texts to which they refer, and then emits them. */
  async #apply(changes: readonly KeyChange[], revision: bigint): Promise<void> {
    const operations: KvOperation[] = [];
    const lists = new Map<string, string>();
    for (const change of changes) {
      const key = this.#keys.local(keyOf(change)) ?? '';
      if (change.type === 'delete') {
        operations.push({ type: 'delete', key });
        continue;
      }
      const { entry } = change;
      const { value } = entry;
      operations.push({ type: 'put', key, value });
      this.#readable(key, entry);
      const list = bodyOf(key, value);
      if (list !== undefined) lists.set(list, entry.key);
      const row = key.startsWith(POLICY) ? RECORDS.policy.reading(key, value).value : undefined;
      if (row !== undefined) operations.push({ type: 'put', key: historyKey(row), value });
    }
    if (operations.length > 0 || this.#keptClusterId !== this.#clusterId) {
      const offered = this.#offered !== null && lists.has(this.#offered.list) ? this.#offered.bodies : [];
      const fetched = (await fetchReadable(this.#ports, withBodies(this.#kv, offered), lists)).bodies;
      await this.#kv.keep([...offered, ...fetched, ...operations, this.#keptAt(revision)]);
      this.#keptClusterId = this.#clusterId;
    }
    for (const change of changes) {
      const key = this.#keys.local(keyOf(change)) ?? '';
      if (change.type === 'delete') this.#known.delete(key);
      else this.#known.set(key, change.entry.modRevision);
    }
    if (operations.length > 0) this.#applied.next(operations);
    this.#revision.next(revision);
  }

  #keptAt(revision: bigint): KvOperation {
    const kept: ReplicaState = {
      line: this.#clusterId ?? '',
      recoveries: this.#recoveries,
      revision: String(revision),
      history: String(this.#history.revision),
    };
    return putJson(KEPT, kept);
  }
}

export function metaValue(meta: ClusterMeta): Uint8Array {
  return encodeJson(meta);
}

/**
 * Returns the hash of the list of parts to which a record refers. For the record `head`, this is the former
 * policy of a pending change, which a node needs to revert the change.
 */
function bodyOf(local: string, value: Uint8Array): string | undefined {
  if (local === HEAD) return RECORDS.head.reading(local, value).value?.pending?.before.row?.body_sha256;
  return local.startsWith(POLICY) ? RECORDS.policy.reading(local, value).value?.body_sha256 : undefined;
}

const keyOf = (change: KeyChange): string => (change.type === 'put' ? change.entry.key : change.key);
const revisionOf = (change: KeyChange): bigint =>
  change.type === 'put' ? change.entry.modRevision : change.modRevision;
const historyKey = ({ id, revision }: PolicyRow): string => `history/${id}/${String(revision).padStart(12, '0')}`;
