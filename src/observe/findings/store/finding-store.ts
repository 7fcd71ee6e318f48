import { append } from '#arrays/append.js';
import { addListener } from '#contracts/listeners.js';
import type { FindingDelta } from '#observe/findings/finding.js';
import type { FindingPage, FindingQuery } from '#observe/findings/finding-filter.js';
import { createMutex } from '#store/mutex.js';
import { encodeJson, putJson } from '#store/records/json-value.js';
import { StoreError } from '#store/store-error.js';
import type { KvOperation, KvStore } from '#store/store-types.js';
import { findingId, merged } from './finding-id.js';
import type { Change } from './finding-records.js';
import { FINDING_RECORDS, type State } from './finding-records.js';
import { indexesOf, readSortKey, rowKey, sortKeyOf, TIME, timeKey } from './index-keys.js';
import { type Outbox, OutboxLog } from './outbox.js';
import { findPage } from './page.js';

export type FindingStoreOptions = {
  /** A finding is removed this many milliseconds after it was last seen. */
  readonly retentionMs: number;
  /**
   * The maximum number of stored findings. Above the maximum, the findings that were last seen longest ago
   * are removed.
   */
  readonly maxEntries: number;
  /** Names of the sinks (file or webhook) that receive every change of a finding. */
  readonly sinks: readonly string[];
  /**
   * The maximum number of changes that the store keeps for a sink (file or webhook) that accepts no
   * deliveries. Above the maximum, the store drops the oldest changes for this sink, and reports them as a
   * `gap` finding.
   */
  readonly outboxEntries?: number;
  /** Returns the current time in milliseconds since 1970. */
  readonly now?: () => number;
};

export type FindingStore = {
  /**
   * Adds deltas to the stored findings, and removes findings that are too old. Rejects with a `MergeError` if
   * the store fails. The caller must call `merge` about once a second, even without deltas, so that old
   * findings are removed.
   */
  merge(deltas: readonly FindingDelta[]): Promise<void>;
  query(query: FindingQuery): Promise<FindingPage>;
  readonly count: number;
  readonly outbox: Outbox;
  close(): Promise<void>;
};

/**
 * The store failed to write findings. `unmerged` are the deltas that were not stored; the caller can pass
 * them to a later `merge`. All other deltas are stored.
 */
export class MergeError extends StoreError {
  constructor(
    readonly unmerged: readonly FindingDelta[],
    cause: StoreError,
  ) {
    super(cause.code, `merge findings: ${cause.message}`, { cause });
  }
}

const FORMAT = 1;
const OUTBOX_ENTRIES = 100_000;
/** The maximum number of deltas in one write batch. Writing such a batch takes some milliseconds. */
const CHUNK = 128;
/**
 * One merge removes at most this many findings more than it adds. The limit bounds the duration of a merge.
 */
const REMOVED_AT_ONCE = 512;
const STATE = 'state';
const PAST_ALL = 'g';

type Named = { readonly id: string; readonly delta: FindingDelta };

/**
 * Opens a finding store on `kv`. No other code may write to `kv`. Closing the finding store closes `kv`.
 * Throws `store_damaged` if a stored value cannot be read, or if another build wrote another format.
 */
export async function openFindingStore(kv: KvStore, options: FindingStoreOptions): Promise<FindingStore> {
  const now = options.now ?? Date.now;
  const stored = await kv.get(STATE);
  // Positions of outbox entries must rise even if an empty store replaces a lost store, because receivers of
  // findings see these positions. An empty store therefore starts at the current time in microseconds.
  const state = stored === null ? emptyState(now() * 1_000) : FINDING_RECORDS.state.read(STATE, stored);
  if (state.format !== FORMAT) {
    const message = `open the findings: their format is ${state.format}, and this build knows format ${FORMAT}`;
    throw new StoreError('store_damaged', message);
  }
  const log = await OutboxLog.open(kv, options.sinks, options.outboxEntries ?? OUTBOX_ENTRIES, state);
  return new KvFindingStore(kv, options, now, state, log);
}

class KvFindingStore implements FindingStore {
  readonly outbox: Outbox;
  readonly #kv: KvStore;
  readonly #options: FindingStoreOptions;
  readonly #now: () => number;
  readonly #log: OutboxLog;
  readonly #runExclusive = createMutex();
  readonly #listeners = new Set<() => void>();
  #state: State;
  /**
   * The place (sort key) of every stored finding is below this value. A walk from the oldest finding to newer
   * ones starts at this value, and so skips deleted RocksDB keys with higher places. These keys would slow
   * down the walk.
   */
  #end = PAST_ALL;

  constructor(kv: KvStore, options: FindingStoreOptions, now: () => number, state: State, log: OutboxLog) {
    this.#kv = kv;
    this.#options = options;
    this.#now = now;
    this.#state = state;
    this.#log = log;
    this.outbox = {
      read: (sink, limit) => log.read(sink, limit),
      progressOf: (sink) => log.progressOf(sink, this.#state),
      acknowledge: (sink, next) => this.#runExclusive(() => this.#acknowledge(sink, next)),
      watch: (listener) => {
        return addListener(this.#listeners, listener);
      },
    };
  }

  get count(): number {
    return this.#state.count;
  }

  merge(deltas: readonly FindingDelta[]): Promise<void> {
    return this.#runExclusive(async () => {
      const gathered = new Map<string, FindingDelta>();
      for (const delta of deltas) {
        const id = findingId(delta);
        gathered.set(id, merged(gathered.get(id), delta));
      }
      const changes = [...gathered].map(([id, delta]) => ({ id, delta }));
      const before = this.#state.count;
      for (let at = 0; at < changes.length; at += CHUNK) {
        await this.#add(changes.slice(at, at + CHUNK)).catch((error: unknown) => {
          const unmerged = changes.slice(at).map(({ delta }) => delta);
          throw mergeFailure(unmerged, error);
        });
      }
      await this.#removeOldest(REMOVED_AT_ONCE + this.#state.count - before).catch((error: unknown) => {
        throw mergeFailure([], error);
      });
      if (changes.length > 0) for (const listener of this.#listeners) listener();
    });
  }

  query({ filter, limit, cursor }: FindingQuery): Promise<FindingPage> {
    const sinceMs = Math.max(filter.sinceMs ?? 0, this.#now() - this.#options.retentionMs);
    return findPage(this.#kv, { filter: { ...filter, sinceMs }, limit, cursor });
  }

  close(): Promise<void> {
    return this.#runExclusive(() => this.#kv.close());
  }

  /** Adds the deltas to the stored findings in one write batch. If the batch fails, no delta is stored. */
  async #add(changes: readonly Named[]): Promise<void> {
    const coming = changes.length + this.#options.sinks.length;
    const moved = this.#log.moved(coming, this.#state);
    const gaps = this.#log.overflow(coming, this.#state, this.#now());
    const all = [...changes, ...gaps.map((delta) => ({ id: findingId(delta), delta }))];
    const rows = await this.#kv.getMany(all.map(({ id }) => rowKey(id)));

    const operations: KvOperation[] = moved.operations;
    const changed = new Map<string, Omit<Change, 'position'>>();
    let { count } = this.#state;
    let end = this.#end;
    for (const [at, { id, delta }] of all.entries()) {
      const row = rows[at] ?? null;
      const before =
        changed.get(id)?.finding ?? (row === null ? undefined : FINDING_RECORDS.finding.read(rowKey(id), row));
      const after = merged(before, delta);
      const place = sortKeyOf(after.lastMs, id);
      operations.push(putJson(rowKey(id), after));
      append(operations, placed(after, place, before, id));
      changed.set(id, { finding: { ...after, id }, newCount: delta.count + (changed.get(id)?.newCount ?? 0) });
      if (before === undefined) count += 1;
      if (place >= end) end = `${place}\0`;
    }
    const state = { ...this.#state, count, next: this.#state.next + (this.#log.used ? changed.size : 0) };
    append(operations, this.#log.puts([...changed.values()], this.#state.next));
    operations.push(stateOperation(state));
    await this.#kv.batch(operations, { sync: changes.some(({ delta }) => isOfTheApi(delta)) });
    moved.commit();
    this.#state = state;
    this.#end = end;
    await this.#trim();
  }

  async #trim(): Promise<void> {
    const { operations, ends } = this.#log.trimmed(this.#state);
    if (operations.length === 0) return;
    const state = { ...this.#state, ...ends };
    await this.#kv.batch([...operations, stateOperation(state)], { sync: false });
    this.#state = state;
  }

  async #acknowledge(sink: string, next: number): Promise<void> {
    const moved = this.#log.acknowledged(sink, next);
    await this.#kv.batch(moved.operations, { sync: false });
    moved.commit();
    await this.#trim();
  }

  /**
   * Removes findings that are too old, and the oldest findings above the maximum number. Removes at most
   * `limit` findings.
   */
  async #removeOldest(limit: number): Promise<void> {
    const oldest = timeKey(this.#now() - this.#options.retentionMs);
    for (let left = limit; left > 0; left -= CHUNK) {
      const places: string[] = [];
      const surplus = this.#state.count - this.#options.maxEntries;
      const range = { gte: TIME, lt: TIME + this.#end, reverse: true, limit: Math.min(left, CHUNK) };
      for await (const [key] of this.#kv.iterate(range)) {
        const place = key.slice(TIME.length);
        if (places.length >= surplus && place.slice(0, oldest.length) <= oldest) break;
        places.push(place);
      }
      const last = places.at(-1);
      if (last === undefined) return;
      await this.#remove(places);
      this.#end = last;
    }
  }

  async #remove(places: readonly string[]): Promise<void> {
    const ids = places.map((place) => readSortKey(place).id);
    const rows = await this.#kv.getMany(ids.map(rowKey));
    const operations = ids.flatMap((id, at): KvOperation[] => {
      const row = rows[at] ?? null;
      const indexes = row === null ? [TIME] : indexesOf(FINDING_RECORDS.finding.read(rowKey(id), row));
      const keys = [rowKey(id), ...indexes.map((index) => `${index}${places[at]}`)];
      return keys.map((key) => ({ type: 'delete', key }));
    });
    const state = { ...this.#state, count: this.#state.count - ids.length };
    await this.#kv.batch([...operations, stateOperation(state)], { sync: false });
    this.#state = state;
  }
}

function mergeFailure(unmerged: readonly FindingDelta[], error: unknown): unknown {
  return error instanceof StoreError ? new MergeError(unmerged, error) : error;
}

const NOTHING = new Uint8Array(0);

/**
 * Returns the operations that update the index keys of a changed finding. An index key consists of a prefix,
 * which stays the same, and of the finding's place (sort key), which changes with the time of its last event.
 */
function placed(after: FindingDelta, place: string, before: FindingDelta | undefined, id: string): KvOperation[] {
  if (before?.lastMs === after.lastMs) return [];
  const indexes = indexesOf(after);
  const puts = indexes.map((index): KvOperation => ({ type: 'put', key: index + place, value: NOTHING }));
  if (before === undefined) return puts;
  const old = sortKeyOf(before.lastMs, id);
  return [...puts, ...indexes.map((index): KvOperation => ({ type: 'delete', key: index + old }))];
}

function isOfTheApi({ type }: FindingDelta): boolean {
  return type === 'auth_denied' || type === 'config_change';
}

function emptyState(position: number): State {
  return { format: FORMAT, count: 0, first: position, next: position };
}

function stateOperation(state: State): KvOperation {
  return { type: 'put', key: STATE, value: encodeJson(state) };
}
