import { smallest } from '#arrays/extremes.js';
import type { FindingDelta } from '#observe/findings/finding.js';
import { gap } from '#observe/findings/gap.js';
import { putJson, under } from '#store/records/json-value.js';
import type { KvOperation, KvStore } from '#store/store-types.js';
import { type Change, FINDING_RECORDS, type OutboxEnds } from './finding-records.js';

export type Changes = {
  readonly items: readonly Change[];
  /**
   * The position after the last change. Pass this value to `acknowledge` when all of the changes were
   * delivered.
   */
  readonly next: number;
};

/**
 * The changes of all merges in order. The outbox keeps a change until every sink (file or webhook) has
 * acknowledged the change.
 */
export type Outbox = {
  /** Returns the oldest changes that the sink (file or webhook) has not acknowledged, at most `limit`. */
  read(sink: string, limit: number): Promise<Changes>;
  /** Marks all changes before position `next` as delivered to the sink (file or webhook for findings). */
  acknowledge(sink: string, next: number): Promise<void>;
  /**
   * Returns how many changes wait for the sink (file or webhook for findings), and how many were dropped for
   * the sink since the store was opened.
   */
  progressOf(sink: string): { readonly waiting: number; readonly dropped: number };
  /** Calls `listener` after every merge with changes. Returns a function that removes the listener. */
  watch(listener: () => void): () => void;
};

const TRIMMED_AT_ONCE = 1_000;
const entryKey = (position: number): string => `outbox/${String(position).padStart(16, '0')}`;
const sinkKey = (sink: string): string => `sink/${sink}`;

/**
 * Keeps the read position of each sink (file or webhook) and the outbox entries. The caller adds the returned
 * operations to the write batch of the findings, so that findings and outbox entries are stored atomically.
 */
export class OutboxLog {
  readonly #kv: KvStore;
  readonly #limit: number;
  readonly #sinks: Map<string, number>;
  readonly #dropped = new Map<string, number>();

  private constructor(kv: KvStore, limit: number, sinks: Map<string, number>) {
    this.#kv = kv;
    this.#limit = limit;
    this.#sinks = sinks;
  }

  /**
   * Reads the position of each sink (file or webhook). A new sink starts at the end of the outbox. The
   * position of a sink that is no longer configured is deleted, so that the outbox keeps no entries for the
   * sink.
   */
  static async open(kv: KvStore, names: readonly string[], limit: number, { next }: OutboxEnds): Promise<OutboxLog> {
    const sinks = new Map(names.map((name) => [name, next]));
    const operations: KvOperation[] = [];
    for await (const [key, value] of kv.iterate(under('sink/'))) {
      const name = key.slice(sinkKey('').length);
      if (sinks.has(name)) sinks.set(name, FINDING_RECORDS.sink.read(key, value));
      else operations.push({ type: 'delete', key });
    }
    for (const [name, position] of sinks) operations.push(putJson(sinkKey(name), position));
    await kv.batch(operations, { sync: false });
    return new OutboxLog(kv, limit, sinks);
  }

  get used(): boolean {
    return this.#sinks.size > 0;
  }

  progressOf(sink: string, { next }: OutboxEnds): ReturnType<Outbox['progressOf']> {
    return { waiting: next - this.#positionOf(sink), dropped: this.#dropped.get(sink) ?? 0 };
  }

  async read(sink: string, limit: number): Promise<Changes> {
    const from = this.#positionOf(sink);
    const items: Change[] = [];
    for await (const [key, value] of this.#kv.iterate({ gte: entryKey(from), lt: 'outbox0', limit })) {
      const position = Number(key.slice('outbox/'.length));
      items.push({ position, ...FINDING_RECORDS.outbox.read(key, value) });
    }
    return { items, next: (items.at(-1)?.position ?? from - 1) + 1 };
  }

  /**
   * Returns the store operations that append changes of findings to the outbox (the queue for sinks), from
   * position `next`.
   */
  puts(changes: readonly Omit<Change, 'position'>[], next: number): KvOperation[] {
    return this.used ? changes.map((change, at) => putJson(entryKey(next + at), change)) : [];
  }

  /**
   * Returns a `gap` finding for each sink (file or webhook) for which undelivered outbox entries must be
   * dropped, so that `coming` new entries fit into the outbox.
   */
  overflow(coming: number, { next }: OutboxEnds, nowMs: number): FindingDelta[] {
    const floor = this.#floor(coming, next);
    return [...this.#sinks].flatMap(([name, position]) =>
      position < floor ? [gap(`sink ${name}`, floor - position, nowMs, nowMs)] : [],
    );
  }

  /**
   * Returns the operations for the sinks that `overflow` reports: the read position of each sink (file or
   * webhook for findings) moves past the dropped entries. Call `commit` after the caller has written these
   * operations.
   */
  moved(coming: number, { next }: OutboxEnds): { readonly operations: KvOperation[]; commit(): void } {
    const floor = this.#floor(coming, next);
    const late = [...this.#sinks].filter(([, position]) => position < floor);
    return {
      operations: late.map(([name]) => putJson(sinkKey(name), floor)),
      commit: () => {
        for (const [name, position] of late) {
          this.#sinks.set(name, floor);
          this.#dropped.set(name, (this.#dropped.get(name) ?? 0) + floor - position);
        }
      },
    };
  }

  acknowledged(sink: string, next: number): { readonly operations: KvOperation[]; commit(): void } {
    const position = Math.max(next, this.#positionOf(sink));
    return {
      operations: [putJson(sinkKey(sink), position)],
      commit: () => {
        this.#sinks.set(sink, position);
      },
    };
  }

  /**
   * Returns operations that delete outbox entries which every sink (file or webhook for findings) has
   * acknowledged, at most `TRIMMED_AT_ONCE` entries.
   */
  trimmed({ first, next }: OutboxEnds): { readonly operations: KvOperation[]; readonly ends: OutboxEnds } {
    const end = Math.min(first + TRIMMED_AT_ONCE, next, smallest(this.#sinks.values()));
    const operations: KvOperation[] = [];
    for (let position = first; position < end; position++) {
      operations.push({ type: 'delete', key: entryKey(position) });
    }
    return { operations, ends: { first: Math.max(first, end), next } };
  }

  #floor(coming: number, next: number): number {
    return Math.min(next, next + coming - this.#limit);
  }

  #positionOf(sink: string): number {
    const position = this.#sinks.get(sink);
    if (position === undefined) throw new RangeError(`the finding store was opened without the sink ${sink}`);
    return position;
  }
}
