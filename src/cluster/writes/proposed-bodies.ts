import { randomUUID } from 'node:crypto';
import { chunks } from '#cluster/keys.js';
import { NODE_RECORDS } from '#cluster/records.js';
import { listKey, partKey, partsIn } from '#store/policies/bodies.js';
import { intactEntries, intactRecord, intactRecords } from '#store/records/intact-values.js';
import { putJson, under } from '#store/records/json-value.js';
import { RECORDS } from '#store/records/records.js';
import type { KvOperation, KvPut, KvReads, KvStore } from '#store/store-types.js';

const PROPOSED = NODE_RECORDS.proposed.prefix;
const LISTS_PER_READ = 100;
const DELETES_PER_WRITE = 1_000;

/**
 * Returns the parts of the policy text of a write before its commit, as operations for the local store. They
 * include a record with the lock entry of the write, with which `collectProposed` finds the parts if the
 * write is not committed.
 */
export function proposedBodies(lock: string, bodies: readonly KvOperation[]): readonly KvOperation[] {
  return bodies.length === 0
    ? []
    : [
        ...bodies,
        putJson(
          PROPOSED + lock,
          bodies.map(({ key }) => key),
        ),
      ];
}

/**
 * Returns the operation that notes the keys of the text parts of removed revisions, which `collectProposed`
 * then removes unless another revision needs them.
 */
export function sweptBodies(keys: readonly string[]): readonly KvOperation[] {
  return keys.length === 0 ? [] : [putJson(`${PROPOSED}${randomUUID()}`, keys)];
}

/** A view of the local store that also contains `bodies`: parts of policy texts that are not stored. */
export function withBodies(kv: KvReads, bodies: readonly KvPut[]): KvReads {
  const values = new Map(bodies.map(({ key, value }) => [key, value]));
  const getMany: KvReads['getMany'] = async (keys) => {
    const stored = keys.filter((key) => !values.has(key));
    const found = stored.length === 0 ? [] : await kv.getMany(stored);
    return keys.map((key) => values.get(key) ?? found[stored.indexOf(key)] ?? null);
  };
  return { getMany, get: async (key) => (await getMany([key]))[0] ?? null };
}

/**
 * Removes the policy texts of ended writes and removed revisions that no policy and no revision in the local
 * store needs. `isLive`
 * returns whether a lock entry exists. Must not run at the same time as a change of policies in the store.
 */
export async function collectProposed(kv: KvStore, isLive: (lock: string) => boolean): Promise<void> {
  const notes: string[] = [];
  const candidates = new Set<string>();
  for await (const [key, value] of intactEntries(kv, under(PROPOSED as `${string}/`), (_, key) => notes.push(key))) {
    if (isLive(key.slice(PROPOSED.length))) continue;
    notes.push(key);
    for (const body of NODE_RECORDS.proposed.reading(key, value).value ?? []) candidates.add(body);
  }
  if (notes.length === 0) return;
  const needed = await neededBodies(kv);
  if (needed === null) return;
  for (const body of needed) candidates.delete(body);
  const deletes = [...candidates, ...notes].map((key): KvOperation => ({ type: 'delete', key }));
  for (const page of chunks(deletes, DELETES_PER_WRITE)) await kv.batch(page, { sync: false });
}

/**
 * Returns the keys of the text parts of all policies and revisions in the local store, and of the former
 * policy of a pending change. Null if one of these
 * cannot be read, so that the parts that it needs are unknown.
 */
async function neededBodies(kv: KvStore): Promise<ReadonlySet<string> | null> {
  const lists = new Set<string>();
  let isComplete = true;
  const damaged = (): void => {
    isComplete = false;
  };
  for (const kind of [RECORDS.policy, RECORDS.history])
    for await (const [, row] of intactRecords(kv, kind, damaged)) lists.add(listKey(row.body_sha256));
  const { prefix } = RECORDS.head;
  const before = (await intactRecord(kv, RECORDS.head, prefix, damaged))?.pending?.before.row ?? null;
  if (before !== null) lists.add(listKey(before.body_sha256));
  if (!isComplete) return null;
  const needed = new Set(lists);
  for (const page of chunks([...lists], LISTS_PER_READ))
    for (const list of await kv.getMany(page))
      for (const part of list === null ? [] : partsIn(list)) needed.add(partKey(part));
  return needed;
}
