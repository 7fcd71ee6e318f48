import { randomUUID } from 'node:crypto';
import { append } from '#arrays/append.js';
import type { EtcdClient } from '#cluster/etcd/etcd-client.js';
import type { Condition, KeyValue, Operation } from '#cluster/etcd/etcd-types.js';
import { type ClusterKeys, chunks } from '#cluster/keys.js';
import { listKey, partKey, partsIn } from '#store/policies/bodies.js';
import {
  DEFAULT_BOUNDS,
  type FormerRevision,
  type HistoryBounds,
  listedRevision,
  oldRevisions,
} from '#store/policies/history-bounds.js';
import { historyKey } from '#store/policies/policy-plan.js';
import type { PolicyRow } from '#store/policies/policy-row.js';
import { RECORDS } from '#store/records/records.js';
import { ASSERTIONS, formerRevisions } from '#store/settings/assertion-store.js';

/** The number of commit ids that etcd keeps. */
const COMMITS = 10_000;
/** The number of keys that one transaction removes: etcd accepts at most 128 operations in a transaction. */
const KEYS_PER_WRITE = 100;
/** The number of lists of parts in one read. A list has up to 100 KiB, and gRPC accepts messages of 4 MiB. */
const LISTS_PER_READ = 30;
const READ = { withinMs: 30_000 };
const WRITE = { withinMs: 5_000 };

/**
 * The result of a collection. `removed`: the number of removed keys. `isComplete`: false if another write
 * ended the collection early.
 */
export type Collection = { readonly removed: number; readonly isComplete: boolean };

/**
 * Removes data that no policy needs from etcd: parts of policy texts and lists of these parts, the revisions
 * beyond the bounds of the history, and old commit ids. Only the leader collects. While a record cannot be
 * read, nothing is removed, because a newer build may have written the record and may need its text. Each
 * transaction has two conditions: `fence`, which proves that this node leads, and an unchanged head. A
 * transaction that removes texts or revisions also removes all entries of the write lock. So a writer that
 * relies on an old part in etcd must start again. The key `historySwept` tells the nodes that revisions were
 * removed.
 */
export async function collect(
  client: EtcdClient,
  keys: ClusterKeys,
  fence: Condition,
  bounds: HistoryBounds = DEFAULT_BOUNDS,
): Promise<Collection> {
  const { entries } = await client.range(keys.shared, READ);
  const head = entries.find(({ key }) => keys.local(key) === 'head');
  if (head === undefined) return { removed: 0, isComplete: true };
  const list = entries.find(({ key }) => keys.local(key) === ASSERTIONS);
  const when = [
    fence,
    { key: head.key, modRevision: head.modRevision },
    { key: keys.inEtcd(ASSERTIONS), modRevision: list?.modRevision ?? 0n },
  ];
  const history = await client.range(keys.history, READ);
  const { value: state } = RECORDS.head.reading(RECORDS.head.prefix, head.value);
  const policies = entries.filter(({ key }) => keys.local(key)?.startsWith('policy/'));
  const present = policies.map(({ key, value }) => RECORDS.policy.reading(keys.nameOf(key), value).value);
  const needed = [...present, state?.pending?.before.row].filter((row) => row != null);
  const assertions = list === undefined ? [] : RECORDS.assertions.reading(ASSERTIONS, list.value).value?.assertions;
  // Remove nothing if this build cannot read the list of assertions: the list may refer to any revision.
  if (assertions === undefined) return { removed: 0, isComplete: true };
  const former = formerRevisions(assertions);
  const old = oldKeys(history.entries, { keys, needed, former, bounds });
  const kept = history.entries.filter(({ key }) => !old.has(key));
  const rows = [
    ...present,
    ...kept.map(({ key, value }) => RECORDS.history.reading(keys.nameOf(key), value).value),
  ].filter((row) => row !== undefined);
  if (state === undefined || rows.length < policies.length + kept.length) return { removed: 0, isComplete: true };
  const { sequence = 0, pending } = state;
  const before = pending?.before.row ?? null;
  const dead = [...old, ...(await deadBodies(client, keys, before === null ? rows : [...rows, before]))];
  const unlock: Operation = { type: 'delete_range', range: keys.lockEntries };
  const firstKept = Math.max(0, sequence - COMMITS);
  const apply: Operation[] = [{ type: 'delete_range', range: { from: keys.commit(0), to: keys.commit(firstKept) } }];
  if (firstKept > 0 && !(await client.transact({ when, apply }, WRITE)).succeeded)
    return { removed: 0, isComplete: false };
  let removed = 0;
  for (const page of chunks(dead, KEYS_PER_WRITE)) {
    const deletes = page.map((key): Operation => ({ type: 'delete', key }));
    const isHistory = page.some((key) => old.has(key));
    const told: Operation = { type: 'put', key: keys.historySwept, value: Buffer.from(randomUUID()) };
    const apply = [unlock, ...deletes, ...(isHistory ? [told] : [])];
    const { succeeded } = await client.transact({ when, apply }, WRITE);
    if (!succeeded) return { removed, isComplete: false };
    removed += page.length;
  }
  return { removed, isComplete: true };
}

type Kept = {
  readonly keys: ClusterKeys;
  readonly needed: readonly PolicyRow[];
  readonly former: readonly FormerRevision[];
  readonly bounds: HistoryBounds;
};

/**
 * Returns the etcd keys of the revisions beyond the limits of the history. Keeps the revisions of the policy
 * records `needed`, and the revisions `former` with which assertions compare.
 */
function oldKeys(history: readonly KeyValue[], { keys, needed, former, bounds }: Kept): ReadonlySet<string> {
  const listed = history.map(({ key, value }) => {
    const local = keys.nameOf(key);
    return listedRevision(key, local, RECORDS.history.reading(local, value).value);
  });
  const names = new Map(needed.map(({ id, name }) => [id, name]));
  const kept = needed.map(({ id, revision }) => keys.inEtcd(historyKey(id, revision)));
  return oldRevisions(listed, { needed: kept, former, nameOf: (policy) => names.get(policy) ?? null }, bounds);
}

/** Returns the keys of the parts and lists of parts in etcd that no policy in `rows` needs. */
async function deadBodies(client: EtcdClient, keys: ClusterKeys, rows: readonly PolicyRow[]): Promise<string[]> {
  const lists = new Set(rows.map(({ body_sha256: list }) => listKey(list)));
  const live = new Set([...lists].map((list) => keys.inEtcd(list)));
  for (const page of chunks([...lists], LISTS_PER_READ)) {
    const apply = page.map((list): Operation => ({ type: 'get', key: keys.inEtcd(list) }));
    const { found } = await client.transact({ when: [], apply }, READ);
    for (const list of found.flat()) for (const part of partsIn(list.value)) live.add(keys.inEtcd(partKey(part)));
  }
  const all: string[] = [];
  for (const range of keys.bodies) {
    const { entries } = await client.range(range, { ...READ, keysOnly: true });
    append(
      all,
      entries.map(({ key }) => key),
    );
  }
  return all.filter((key) => !live.has(key));
}
