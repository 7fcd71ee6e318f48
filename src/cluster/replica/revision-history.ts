import { append } from '#arrays/append.js';
import type { KeyValue } from '#cluster/etcd/etcd-types.js';
import { chunks } from '#cluster/keys.js';
import { fetchReadable } from '#cluster/parts.js';
import { sweptBodies } from '#cluster/writes/proposed-bodies.js';
import { listKey, partKey } from '#store/policies/bodies.js';
import { ALWAYS_KEPT, placeInHistory } from '#store/policies/history-bounds.js';
import { intactEntries, intactValues } from '#store/records/intact-values.js';
import { under } from '#store/records/json-value.js';
import { RECORDS } from '#store/records/records.js';
import type { KvOperation } from '#store/store-types.js';
import type { ReplicaStore } from './replica-store.js';
import { READ, type SuccessionPorts } from './succession.js';

/** The number of attempts to read the old revisions of policies if a part of them is missing. */
const ATTEMPTS = 3;
/** The number of keys in one read: etcd accepts at most 128 operations in a transaction. */
const KEYS_PER_READ = 100;

export type ReplicaPorts = SuccessionPorts & { readonly kv: ReplicaStore };

/** The old revisions of policies in the local store of this node. */
export class RevisionHistory {
  /** The revision of etcd up to which the local store contains the old revisions of policies. */
  revision = 0n;

  /** `keptAt` returns the operation that stores up to which revision of etcd the local store is complete. */
  constructor(
    private readonly ports: ReplicaPorts,
    private readonly keptAt: (revision: bigint) => KvOperation,
  ) {}

  /**
   * Stores the old revisions of policies that were written while this node did not follow etcd. Reads them
   * again if a part is missing, because the leader may have removed a revision with its parts since the first
   * read.
   */
  async fetch(revision: bigint): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      const isComplete = await this.#fetchOnce(revision, attempt === ATTEMPTS);
      if (isComplete || attempt === ATTEMPTS) return;
    }
  }

  /**
   * Does one attempt of `fetch`. Returns false if a policy text is missing. With `isLast`, ignores revisions
   * without a text.
   */
  async #fetchOnce(revision: bigint, isLast: boolean): Promise<boolean> {
    const { client, keys, kv, unreadable } = this.ports;
    const writtenSince = this.revision + 1n;
    const { entries } = await client.range(keys.history, { ...READ, writtenSince });
    const all = new Map([...(await this.#readAgain()), ...entries].map((entry) => [entry.key, entry]));
    const revisions = [...all.values()].map((entry) => ({
      entry,
      put: { type: 'put' as const, key: keys.nameOf(entry.key), value: entry.value },
      row: unreadable.read(RECORDS.history, entry),
    }));
    const held = await intactValues(
      kv,
      revisions.map(({ put }) => put.key),
    );
    const absent = revisions.filter(({ put: { value } }, index) => {
      const stored = held[index];
      return stored == null || Buffer.compare(stored, value) !== 0;
    });
    const named = absent.flatMap(({ row, entry }) => (row === null ? [] : [[row.body_sha256, entry.key] as const]));
    const { bodies, missing } = await fetchReadable(this.ports, this.ports.kv, new Map(named));
    if (missing.size > 0 && !isLast) return false;
    this.revision = revision;
    const kept = absent.filter(({ row }) => row === null || !missing.has(row.body_sha256)).map(({ put }) => put);
    if (kept.length > 0) await kv.keep([...bodies, ...kept, this.keptAt(revision)]);
    return true;
  }

  /**
   * Removes the revisions that etcd does not contain any more, and notes the parts of their texts for
   * `collectProposed`. Keeps the last revisions of each policy, and all revisions of a policy of which etcd
   * contains none: the leader removes neither.
   */
  async removeSwept(): Promise<void> {
    const { client, keys, kv } = this.ports;
    const { entries } = await client.range(keys.history, { ...READ, keysOnly: true });
    const names = new Set(entries.map(({ key }) => keys.nameOf(key)));
    const policies = new Set([...names].map((name) => placeInHistory(name).policy));
    /** The local revisions by policy, in their order: the keys, and the hashes of their lists of parts. */
    const held = new Map<string, { readonly key: string; readonly list: string | undefined }[]>();
    const note = (key: string, value: Uint8Array | null): void => {
      const { policy } = placeInHistory(key);
      if (!policies.has(policy)) return;
      const row = value === null ? undefined : RECORDS.history.reading(key, value).value;
      const own = held.get(policy) ?? [];
      held.set(policy, own);
      own.push({ key, list: row?.body_sha256 });
    };
    for await (const [key, value] of intactEntries(kv, under('history/'), (_, damaged) => note(damaged, null)))
      note(key, value);
    const gone = [...held.values()].flatMap((own) => own.slice(0, -ALWAYS_KEPT).filter(({ key }) => !names.has(key)));
    for (const page of chunks(gone, KEYS_PER_READ)) {
      const lists = page.flatMap(({ list }) => (list === undefined ? [] : [listKey(list)]));
      const values = await intactValues(kv, lists);
      const parts = values.flatMap((value) =>
        value === null ? [] : (RECORDS.parts.reading('parts/', value).value ?? []).map(({ sha256 }) => partKey(sha256)),
      );
      const deletes = page.map(({ key }): KvOperation => ({ type: 'delete', key }));
      await kv.batch([...deletes, ...sweptBodies([...new Set([...lists, ...parts])])], { sync: false });
    }
  }

  /** Reads the old revisions again that this node could not read before. */
  async #readAgain(): Promise<readonly KeyValue[]> {
    const { client, keys, unreadable } = this.ports;
    const { history } = keys;
    const unread = [...unreadable.reasons.keys()].filter((key) => key.startsWith(history.from));
    const entries: KeyValue[] = [];
    for (const page of chunks(unread, KEYS_PER_READ)) {
      const apply = page.map((key) => ({ type: 'get' as const, key }));
      append(entries, (await client.transact({ when: [], apply }, READ)).found.flat());
    }
    unreadable.retain(history, entries);
    return entries;
  }
}
