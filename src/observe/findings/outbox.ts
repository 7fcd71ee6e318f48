import { decodeJson, putJson, under } from '#store/json-value.js';
import type { KvOperation, KvStore } from '#store/store-types.js';
import type { Finding, FindingDelta } from './finding.js';
import { gap } from './gap.js';

/** A finding that a merge changed: its new state, and how much its count increased. */
export type Change = { readonly position: number; readonly finding: Finding; readonly newCount: number };
export type Changes = {
  readonly items: readonly Change[];
  /** Pass this to `acknowledge` when all of the changes were delivered. */
  readonly next: number;
};

/** The changes of all merges in order, kept until every sink has acknowledged them. */
export type Outbox = {
  /** Returns the oldest changes that the sink has not acknowledged. */
  read(sink: string, limit: number): Promise<Changes>;
  /** Marks all changes before `next` as delivered. */
  acknowledge(sink: string, next: number): Promise<void>;
  /** The number of changes that wait for a sink, and of those dropped for it since the start. */
  standing(sink: string): { readonly waiting: number; readonly dropped: number };
  /** Calls `listener` after every merge with changes. Returns a function that stops this. */
  watch(listener: () => void): () => void;
};

const TRIMMED_AT_ONCE = 1_000;
const entryKey = (position: number): string => `outbox/${String(position).padStart(16, '0')}`;
const sinkKey = (sink: string): string => `sink/${sink}`;

/** Entries have positions from `first` (inclusive) to `next` (exclusive); some may be missing. */
export type OutboxEnds = { readonly first: number; readonly next: number };

/**
 * The position of each sink, and the entries kept for the sinks. Changes are returned as operations for the
 * ledger's batch.
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

  /** A new sink starts at the end. The state of a removed sink is deleted, with the entries kept for it. */
  static async open(kv: KvStore, names: readonly string[], limit: number, { next }: OutboxEnds): Promise<OutboxLog> {
    const sinks = new Map(names.map((name) => [name, next]));
    const operations: KvOperation[] = [];
    for await (const [key, value] of kv.iterate(under('sink/'))) {
      const name = key.slice(sinkKey('').length);
      if (sinks.has(name)) sinks.set(name, decodeJson<number>(value));
      else operations.push({ type: 'delete', key });
    }
    for (const [name, position] of sinks) operations.push(putJson(sinkKey(name), position));
    await kv.batch(operations, { sync: false });
    return new OutboxLog(kv, limit, sinks);
  }

  get used(): boolean {
    return this.#sinks.size > 0;
  }

  standing(sink: string, { next }: OutboxEnds): ReturnType<Outbox['standing']> {
    return { waiting: next - this.#positionOf(sink), dropped: this.#dropped.get(sink) ?? 0 };
  }

  async read(sink: string, limit: number): Promise<Changes> {
    const from = this.#positionOf(sink);
    const items: Change[] = [];
    for await (const [key, value] of this.#kv.iterate({ gte: entryKey(from), lt: 'outbox0', limit })) {
      const position = Number(key.slice('outbox/'.length));
      items.push({ position, ...decodeJson<Omit<Change, 'position'>>(value) });
    }
    return { items, next: (items.at(-1)?.position ?? from - 1) + 1 };
  }

  /** Returns the operations that append changes at `next`. */
  puts(changes: readonly Omit<Change, 'position'>[], next: number): KvOperation[] {
    return this.used ? changes.map((change, at) => putJson(entryKey(next + at), change)) : [];
  }

  /** Returns a gap for every sink that loses waiting entries so that `coming` new entries fit. */
  overflow(coming: number, { next }: OutboxEnds, nowMs: number): FindingDelta[] {
    const floor = this.#floor(coming, next);
    return [...this.#sinks].flatMap(([name, position]) =>
      position < floor ? [gap(`sink ${name}`, floor - position, nowMs, nowMs)] : [],
    );
  }

  /** Moves the sinks that `overflow` reported. Call `commit` after the operations were written. */
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

  /** Returns operations that remove a limited number of entries for which no sink waits. */
  trimmed({ first, next }: OutboxEnds): { readonly operations: KvOperation[]; readonly ends: OutboxEnds } {
    const end = Math.min(first + TRIMMED_AT_ONCE, next, ...this.#sinks.values());
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
    if (position === undefined) throw new RangeError(`the ledger was not opened with a sink ${sink}`);
    return position;
  }
}
