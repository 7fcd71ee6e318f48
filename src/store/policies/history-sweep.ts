import { randomUUID } from 'node:crypto';
import { intactEntries, intactValues } from '#store/records/intact-values.js';
import { putJson, under } from '#store/records/json-value.js';
import { RECORDS } from '#store/records/records.js';
import { StoreError } from '#store/store-error.js';
import type { KvOperation, KvStore } from '#store/store-types.js';
import { listKey, partKey } from './bodies.js';
import {
  type FormerRevision,
  type HistoryBounds,
  type ListedRevision,
  listedRevision,
  oldRevisions,
} from './history-bounds.js';
import { historyKey } from './policy-plan.js';
import type { PolicyRow, PolicyState } from './policy-row.js';

/**
 * The time in milliseconds from the start to the first removal of old revisions (sweep), and the interval
 * after it.
 */
const FIRST_SWEEP_MS = 60_000;
const SWEEP_MS = 3_600_000;
/** A sweep (removal of old revisions) also runs after this number of commits. */
const COMMITS = 256;
const ROWS_PER_WRITE = 100;
const LISTS_PER_READ = 20;
const DELETES_PER_WRITE = 500;

/** The result of a sweep: the numbers of removed revisions, and of removed parts and lists of parts. */
export type Swept = { readonly revisions: number; readonly bodies: number };

/**
 * Removes the revisions beyond the bounds of the history from the store of a single node, and the parts of
 * policy texts that no revision needs any more.
 *
 * The batch that removes revisions also writes a note with the lists of parts of these revisions. The note is
 * removed after their parts. So the next sweep continues after a crash.
 */
export class HistorySweep {
  readonly #kv: KvStore;
  readonly #runExclusive: <T>(task: () => Promise<T>) => Promise<T>;
  readonly #state: () => PolicyState;
  readonly #bounds: HistoryBounds;
  readonly #former: () => Promise<readonly FormerRevision[]>;
  /**
   * The keys that commits have written since the running removal of old revisions (sweep) began; null if none
   * runs.
   */
  #written: Set<string> | null = null;
  #commits = 0;
  #running: Promise<unknown> = Promise.resolve();
  #timer: NodeJS.Timeout | undefined;
  #isStopped = false;

  /**
   * `runExclusive`: the mutex under which all commits run. `former`: returns the revisions that assertions
   * compare with. If it throws a `StoreError`, nothing is removed.
   */
  constructor(
    kv: KvStore,
    runExclusive: <T>(task: () => Promise<T>) => Promise<T>,
    state: () => PolicyState,
    bounds: HistoryBounds,
    former: () => Promise<readonly FormerRevision[]> = async () => [],
  ) {
    this.#kv = kv;
    this.#runExclusive = runExclusive;
    this.#state = state;
    this.#bounds = bounds;
    this.#former = former;
  }

  /** Starts sweeps (removal of old revisions) at regular intervals. */
  start(): void {
    this.#sweepIn(FIRST_SWEEP_MS);
  }

  /** Stops the sweeps (removal of old revisions). Resolves when no sweep runs any more. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    await this.#running;
  }

  /** Must be called under the mutex before the batch of each commit. */
  willCommit(operations: readonly KvOperation[]): void {
    if (this.#written !== null) for (const { key } of operations) this.#written.add(key);
    if (++this.#commits === COMMITS && this.#timer !== undefined) this.#sweepIn(0);
  }

  #sweepIn(ms: number): void {
    clearTimeout(this.#timer);
    if (this.#isStopped) return;
    this.#timer = setTimeout(() => {
      this.#running = this.sweep()
        .catch((failure: unknown) => {
          if (!(failure instanceof StoreError)) throw failure;
        })
        .finally(() => this.#sweepIn(SWEEP_MS));
    }, ms).unref();
  }

  #requireRunning(): void {
    if (this.#isStopped) throw new StoreError('store_closed', 'sweep the history: the store is being closed');
  }

  /** Must not be called while another sweep runs. */
  async sweep(): Promise<Swept> {
    this.#commits = 0;
    this.#written = new Set();
    try {
      return await this.#sweep(this.#written);
    } finally {
      this.#written = null;
    }
  }

  async #sweep(written: ReadonlySet<string>): Promise<Swept> {
    const { listed, lists, isComplete } = await this.#listed();
    const { rows } = this.#state();
    const former = await this.#former();
    const kept = { needed: this.#needed(), former, nameOf: (policy: string) => rows.get(policy)?.name ?? null };
    const beyond = oldRevisions(listed, kept, this.#bounds);
    const removed = await this.#removeRows([...beyond], lists);
    const notes = await this.#notes();
    // Remove no parts: a revision that this build cannot read may need any of them.
    if (notes.keys.length === 0 || !isComplete(beyond)) return { revisions: removed.size, bodies: 0 };
    for (const key of removed) lists.delete(key);
    const live = new Set(lists.values());
    for (const row of this.#neededRows()) live.add(row.body_sha256);
    const candidates = await this.#bodiesOf(notes.lists.filter((list) => !live.has(list)));
    const needed = candidates.size === 0 ? new Set<string>() : await this.#bodiesOf([...live]);
    const dead = [...candidates].filter((key) => !needed.has(key));
    const bodies = await this.#removeBodies(dead, written);
    await this.#runExclusive(() => this.#kv.batch(notes.keys.map(deletion), { sync: false }));
    return { revisions: removed.size, bodies };
  }

  /** Lists all revisions in the history. `lists`: the hashes of their lists of parts, by key. */
  async #listed() {
    const listed: ListedRevision[] = [];
    const lists = new Map<string, string>();
    const unreadable: string[] = [];
    const unread = (key: string): void => {
      unreadable.push(key);
      listed.push(listedRevision(key, key, undefined));
    };
    for await (const [key, value] of intactEntries(this.#kv, under('history/'), (_, damaged) => unread(damaged))) {
      const { value: row } = RECORDS.history.reading(key, value);
      if (row === undefined) {
        unread(key);
        continue;
      }
      lists.set(key, row.body_sha256);
      listed.push(listedRevision(key, key, row));
    }
    const isComplete = (beyond: ReadonlySet<string>): boolean => unreadable.every((key) => beyond.has(key));
    return { listed, lists, isComplete };
  }

  /**
   * Returns the present policies, and the policy that would be in force after a revert of the unconfirmed
   * change.
   */
  #neededRows(): readonly PolicyRow[] {
    const { head, rows } = this.#state();
    const before = head.pending?.before.row ?? null;
    return [...rows.values(), ...(before === null ? [] : [before])];
  }

  #needed(): ReadonlySet<string> {
    return new Set(this.#neededRows().map(({ id, revision }) => historyKey(id, revision)));
  }

  /**
   * Removes revisions, and stores which lists of parts they had. Returns the keys of the removed revisions.
   */
  async #removeRows(keys: readonly string[], lists: ReadonlyMap<string, string>): Promise<ReadonlySet<string>> {
    const removed = new Set<string>();
    for (let at = 0; at < keys.length; at += ROWS_PER_WRITE)
      await this.#runExclusive(async () => {
        this.#requireRunning();
        const needed = this.#needed();
        const page = keys.slice(at, at + ROWS_PER_WRITE).filter((key) => !needed.has(key));
        const note = page.flatMap((key) => lists.get(key) ?? []);
        await this.#kv.batch([...page.map(deletion), putJson(`${RECORDS.sweptLists.prefix}${randomUUID()}`, note)], {
          sync: true,
        });
        for (const key of page) removed.add(key);
      });
    return removed;
  }

  async #notes(): Promise<{ readonly keys: readonly string[]; readonly lists: readonly string[] }> {
    const keys: string[] = [];
    const lists = new Set<string>();
    const kind = RECORDS.sweptLists;
    for await (const [key, value] of intactEntries(this.#kv, under(kind.prefix as `${string}/`), (_, damaged) =>
      keys.push(damaged),
    )) {
      keys.push(key);
      for (const list of kind.reading(key, value).value ?? []) lists.add(list);
    }
    return { keys, lists: [...lists] };
  }

  /**
   * Returns the keys of these lists of parts and of the parts in them. Treats a list that cannot be read as
   * empty.
   */
  async #bodiesOf(lists: readonly string[]): Promise<Set<string>> {
    const bodies = new Set<string>();
    for (let at = 0; at < lists.length; at += LISTS_PER_READ) {
      this.#requireRunning();
      const keys = lists.slice(at, at + LISTS_PER_READ).map(listKey);
      const values = await intactValues(this.#kv, keys);
      for (const [index, key] of keys.entries()) {
        bodies.add(key);
        const value = values[index];
        const parts = value == null ? [] : (RECORDS.parts.reading(key, value).value ?? []);
        for (const { sha256 } of parts) bodies.add(partKey(sha256));
      }
    }
    return bodies;
  }

  /** Removes parts and lists of parts, except for those that a commit has written again meanwhile. */
  async #removeBodies(keys: readonly string[], written: ReadonlySet<string>): Promise<number> {
    let removed = 0;
    for (let at = 0; at < keys.length; at += DELETES_PER_WRITE)
      await this.#runExclusive(async () => {
        this.#requireRunning();
        const page = keys.slice(at, at + DELETES_PER_WRITE).filter((key) => !written.has(key));
        await this.#kv.batch(page.map(deletion), { sync: false });
        removed += page.length;
      });
    return removed;
  }
}

const deletion = (key: string): KvOperation => ({ type: 'delete', key });
