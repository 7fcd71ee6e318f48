import { decodeJson, putJson, under } from '#store/json-value.js';
import type { KvOperation, KvStore } from '#store/store-types.js';
import type { Finding, FindingDelta } from './finding.js';
import { gap } from './gap.js';

/** A finding that a merge changed: what it is now, and by how much its count grew. */
export type Change = { readonly position: number; readonly finding: Finding; readonly newCount: number };
export type Changes = {
  readonly items: readonly Change[];
  /** What `acknowledge` takes once all of them were delivered. */
  readonly next: number;
};

/** What merges changed, in their order, until every sink has it. */
export type Outbox = {
  /** The oldest that the sink has not acknowledged. */
  read(sink: string, limit: number): Promise<Changes>;
  /** Everything before `next` was delivered. */
  acknowledge(sink: string, next: number): Promise<void>;
  /** What waits for a sink, and what was given up for it since the start. */
  standing(sink: string): { readonly waiting: number; readonly dropped: number };
  /** Calls `listener` after every merge that changed something, until the function that it returns is called. */
  watch(listener: () => void): () => void;
};

const TRIMMED_AT_ONCE = 1_000;
const entryKey = (position: number): string => `outbox/${String(position).padStart(16, '0')}`;
const sinkKey = (sink: string): string => `sink/${sink}`;

/** `first` … `next` are the positions of the entries that may be there; `next` is excluded. */
export type OutboxEnds = { readonly first: number; readonly next: number };

/** How far each sink is, and what is kept for them. What it changes is a batch of the ledger's. */
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

  /** A sink that was not there before begins at the end; one that is gone is forgotten, with what was kept for it. */
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

  /** Puts the changes behind `next`. */
  puts(changes: readonly Omit<Change, 'position'>[], next: number): KvOperation[] {
    return this.used ? changes.map((change, at) => putJson(entryKey(next + at), change)) : [];
  }

  /** A gap for every sink that must lose what it has waiting, so that `coming` more entries fit. */
  overflow(coming: number, { next }: OutboxEnds, nowMs: number): FindingDelta[] {
    const floor = this.#floor(coming, next);
    return [...this.#sinks].flatMap(([name, position]) =>
      position < floor ? [gap(`sink ${name}`, floor - position, nowMs, nowMs)] : [],
    );
  }

  /** The sinks that `overflow` told of, moved on. `commit` when it is written. */
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

  /** Removes entries that no sink waits for, a limited number of them. */
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
