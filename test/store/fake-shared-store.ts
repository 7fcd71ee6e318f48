import { BehaviorSubject, Subject } from 'rxjs';
import { createMutex } from '#store/mutex.js';
import type { SharedCommits } from '#store/policies/policy-store.js';
import { StoreError } from '#store/store-error.js';
import type { KvOperation, KvStore, PolicyPlan, SharedStore } from '#store/store-types.js';
import { createMemoryStore } from './memory-store.js';

type Entry = { readonly value: Uint8Array; readonly revision: number };
type Batch = { readonly revision: number; readonly operations: readonly KvOperation[] };

const EVERYTHING = { gte: '', lt: '\u{10ffff}' };

/** A fake of the shared store: one object stands for etcd, and each `nodeOf()` is a node with a replica. */
export class FakeSharedStore {
  readonly #nodes: FakeNode[] = [];
  #entries = new Map<string, Entry>();
  #revisions = new Map<string, number>();
  #revision = 0;

  /**
   * Adds a node that is connected. `local`: keys that stay on the node. `kv` is its local store, by default
   * an empty one in memory.
   */
  async nodeOf(local: readonly string[] = [], kv: KvStore = createMemoryStore()): Promise<FakeNode> {
    const node = new FakeNode(this, local, kv);
    this.#nodes.push(node);
    await node.connect();
    return node;
  }

  /** Returns the keys of the shared store that begin with `prefix`, sorted. */
  keys(prefix = ''): string[] {
    return [...this.#entries.keys()].filter((key) => key.startsWith(prefix)).sort();
  }

  json(key: string): unknown {
    const entry = this.#entries.get(key);
    return entry === undefined ? null : JSON.parse(Buffer.from(entry.value).toString());
  }

  get revision(): number {
    return this.#revision;
  }

  /** Returns the present content, for `restore`. */
  backup(): ReadonlyMap<string, Entry> {
    return new Map(this.#entries);
  }

  /** Replaces the content by that of a backup. Each connected node is disconnected and connects again. */
  async restore(backup: ReadonlyMap<string, Entry>): Promise<void> {
    const connected = this.#nodes.filter((node) => node.isConnected);
    for (const node of connected) node.disconnect();
    this.#entries = new Map(backup);
    this.#revisions = new Map([...backup].map(([key, { revision }]) => [key, revision]));
    await Promise.all(connected.map((node) => node.connect()));
  }

  /** Writes a batch for a node that has received all batches up to the revision `seen`. */
  write(operations: readonly KvOperation[], seen: number): number {
    for (const { key } of operations) {
      if ((this.#revisions.get(key) ?? 0) > seen)
        throw new StoreError('revision_conflict', `write ${key}: another node has changed the key`);
    }
    this.#revision += 1;
    for (const operation of operations) {
      const { key } = operation;
      this.#revisions.set(key, this.#revision);
      if (operation.type === 'put')
        this.#entries.set(key, { value: Uint8Array.from(operation.value), revision: this.#revision });
      else this.#entries.delete(key);
    }
    for (const node of this.#nodes) node.receive({ revision: this.#revision, operations });
    return this.#revision;
  }

  /** Returns the operations that make a replica with the given entries equal to the shared store. */
  differences(replica: ReadonlyMap<string, Uint8Array>): KvOperation[] {
    const missing = [...this.#entries].filter(([key, { value }]) => !isEqual(replica.get(key), value));
    const excess = [...replica.keys()].filter((key) => !this.#entries.has(key));
    return [
      ...excess.map((key) => ({ type: 'delete', key }) as const),
      ...missing.map(([key, { value }]) => ({ type: 'put', key, value }) as const),
    ];
  }
}

export class FakeNode implements SharedStore {
  /** The local store of the node: the replica of the shared keys, and the keys that only this node has. */
  readonly kv: KvStore;
  readonly #shared: FakeSharedStore;
  readonly #local: ReadonlySet<string>;
  readonly applied = new Subject<readonly KvOperation[]>();
  readonly connected = new BehaviorSubject(false);
  readonly #runExclusive = createMutex();
  readonly #arrived = new Subject<void>();
  readonly commits: SharedCommits;
  /** The batches that were sent to the node while it holds deliveries. */
  #held: Batch[] | null = null;
  #seen = 0;
  #receives = false;

  constructor(shared: FakeSharedStore, local: readonly string[], kv: KvStore) {
    this.#shared = shared;
    this.#local = new Set(local);
    this.kv = kv;
    this.commits = {
      applied: this.applied,
      node: 'node-a',
      headRevision: 0n,
      revisionOf: () => 0n,
      settle: ({ operations }: PolicyPlan) => this.batch(operations),
      commit: ({ operations }: PolicyPlan) => this.batch(operations),
    };
  }

  get isConnected(): boolean {
    return this.connected.value;
  }

  disconnect(): void {
    this.#receives = false;
    this.connected.next(false);
  }

  /** Makes the replica equal to the shared store. Deletes each key that the shared store lacks. */
  async connect(): Promise<void> {
    await this.#runExclusive(async () => {
      const replica = new Map<string, Uint8Array>();
      for await (const [key, value] of this.kv.iterate(EVERYTHING)) if (!this.#local.has(key)) replica.set(key, value);
      const operations = this.#shared.differences(replica);
      this.#seen = this.#shared.revision;
      this.#receives = true;
      if (operations.length > 0) {
        await this.kv.batch(operations, { sync: true });
        this.applied.next(operations);
      }
    });
    this.connected.next(true);
  }

  /** Delays the delivery of batches to this node until `release` is called. */
  hold(): void {
    this.#held ??= [];
  }

  async release(): Promise<void> {
    const held = this.#held ?? [];
    this.#held = null;
    await Promise.all(held.map((batch) => this.#apply(batch)));
  }

  receive(batch: Batch): void {
    if (!this.#receives) return;
    if (this.#held === null) void this.#apply(batch);
    else this.#held.push(batch);
  }

  /** Resolves when the node has applied everything that was sent to it. */
  async settled(): Promise<void> {
    await this.#runExclusive(async () => {});
  }

  get(key: string) {
    return this.kv.get(key);
  }
  getMany(keys: readonly string[]) {
    return this.kv.getMany(keys);
  }
  iterate(range: Parameters<KvStore['iterate']>[0]) {
    return this.kv.iterate(range);
  }
  put(key: string, value: Uint8Array): Promise<void> {
    return this.batch([{ type: 'put', key, value }]);
  }
  delete(key: string): Promise<void> {
    return this.batch([{ type: 'delete', key }]);
  }
  async batch(operations: readonly KvOperation[]): Promise<void> {
    if (!this.isConnected) throw new StoreError('store_unavailable', 'write to etcd: no member answers');
    const revision = this.#shared.write(operations, this.#seen);
    await new Promise<void>((resolve) => {
      if (this.#seen >= revision) return resolve();
      const waiting = this.#arrived.subscribe(() => {
        if (this.#seen < revision) return;
        waiting.unsubscribe();
        resolve();
      });
    });
  }
  async close(): Promise<void> {
    this.disconnect();
    this.applied.complete();
    this.connected.complete();
  }

  async #apply({ revision, operations }: Batch): Promise<void> {
    await this.#runExclusive(async () => {
      if (revision <= this.#seen) return;
      await this.kv.batch(operations, { sync: true });
      this.#seen = revision;
      this.applied.next(operations);
      this.#arrived.next();
    });
  }
}

function isEqual(a: Uint8Array | undefined, b: Uint8Array): boolean {
  return a !== undefined && Buffer.from(a).equals(b);
}
