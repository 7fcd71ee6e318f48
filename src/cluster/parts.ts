import { append } from '#arrays/append.js';
import { isBodyValue, listKey, partKey, partsIn } from '#store/policies/bodies.js';
import { StoreError } from '#store/store-error.js';
import type { KvPut, KvReads, PolicyPlan } from '#store/store-types.js';
import type { EtcdClient } from './etcd/etcd-client.js';
import type { Operation } from './etcd/etcd-types.js';
import { type ClusterData, type ClusterKeys, chunks, isBody } from './keys.js';
import type { UnreadableValues } from './unreadable-values.js';

/**
 * The number of parts of policy texts in one read. A part has at most 128 KiB, gRPC messages at most 4 MiB.
 */
const PARTS_PER_READ = 16;
/** The number of keys in one read: etcd accepts at most 128 operations in a transaction, and 1.5 MiB. */
const KEYS_PER_READ = 100;
const BYTES_PER_WRITE = 1024 * 1024;
/**
 * Policy texts of at most this many bytes are written in the same transaction as the commit of the policy.
 */
const SMALL_BYTES = 256 * 1024;
const FEW = 60;
const WITHIN = { withinMs: 10_000 };

/**
 * Reads from etcd the policy texts that the local store lacks. `lists` are hashes of lists of parts. Returns
 * the operations that write the missing lists and parts to the local store. Throws `store_damaged` if etcd
 * lacks a part, or if the bytes of a part do not match its hash.
 */
export async function fetchBodies(
  client: EtcdClient,
  keys: ClusterKeys,
  kv: KvReads,
  lists: readonly string[],
): Promise<KvPut[]> {
  const wanted = [...new Set(lists)].map(listKey);
  const held = await kv.getMany(wanted);
  const absent = wanted.filter((_, index) => held[index] === null);
  const fetched = await fetchValues(client, keys, absent);
  const values = [...held.flatMap((value) => (value === null ? [] : [value])), ...fetched.map(({ value }) => value)];
  const parts = [...new Set(values.flatMap((list) => partsIn(list)))].map(partKey);
  const heldParts = await kv.getMany(parts);
  const absentParts = parts.filter((_, index) => heldParts[index] === null);
  return [...fetched, ...(await fetchValues(client, keys, absentParts))];
}

/**
 * Reads from etcd the policy texts that the local store lacks. `lists`: for each list of parts, the key in
 * etcd that refers to it. `missing`: the lists that etcd lacks entirely or partly; `unreadable` then contains
 * their keys.
 */
export async function fetchReadable(
  { client, keys, unreadable }: FetchPorts,
  kv: KvReads,
  lists: ReadonlyMap<string, string>,
): Promise<{ readonly bodies: readonly KvPut[]; readonly missing: ReadonlySet<string> }> {
  const fetch = (wanted: readonly string[]) => fetchBodies(client, keys, kv, wanted);
  const missing = new Set<string>();
  try {
    return { bodies: await fetch([...lists.keys()]), missing };
  } catch (failure) {
    if (!(failure instanceof StoreError) || failure.code !== 'store_damaged') throw failure;
  }
  const bodies: KvPut[] = [];
  for (const [list, key] of lists)
    try {
      append(bodies, await fetch([list]));
    } catch (failure) {
      if (!(failure instanceof StoreError) || failure.code !== 'store_damaged') throw failure;
      missing.add(list);
      unreadable.note(key, failure.message);
    }
  return { bodies, missing };
}

type FetchPorts = ClusterData & {
  readonly unreadable: Pick<UnreadableValues, 'note'>;
};

async function fetchValues(client: EtcdClient, keys: ClusterKeys, wanted: readonly string[]): Promise<KvPut[]> {
  const pages = chunks(wanted, PARTS_PER_READ);
  const found: KvPut[] = [];
  for (const page of pages) {
    const apply = page.map((key): Operation => ({ type: 'get', key: keys.inEtcd(key) }));
    const result = await client.transact({ when: [], apply }, WITHIN);
    for (const [index, key] of page.entries()) {
      const value = result.found[index]?.[0]?.value;
      if (value === undefined) throw new StoreError('store_damaged', `read a policy from etcd: ${key} is missing`);
      if (!(await isBodyValue(key, value)))
        throw new StoreError('store_damaged', `read a policy from etcd: the content of ${key} does not match its hash`);
      found.push({ type: 'put', key, value });
    }
  }
  return found;
}

/** Returns the operations of a planned policy write that write parts of its text and lists of parts. */
export const bodiesOf = ({ operations }: PolicyPlan): KvPut[] =>
  operations.filter((operation) => operation.type === 'put').filter(({ key }) => isBody(key));

/** Returns whether the text of a planned policy write fits into one transaction. */
export function hasSmallBodies(plan: PolicyPlan): boolean {
  const bodies = bodiesOf(plan);
  return bodies.length <= FEW && bodies.reduce((sum, { value }) => sum + value.length, 0) <= SMALL_BYTES;
}

/**
 * Returns the operations that write the text of a planned policy, for the transaction of the caller. If the
 * text is too large for one transaction, writes it to etcd before.
 */
export async function bodyWrites(client: EtcdClient, keys: ClusterKeys, plan: PolicyPlan): Promise<Operation[]> {
  const bodies = bodiesOf(plan);
  if (hasSmallBodies(plan))
    return bodies.map(({ key, value }): Operation => ({ type: 'put', key: keys.inEtcd(key), value }));
  await storeBodies(client, keys, bodies);
  return [];
}

/** Writes parts of policy texts and lists of parts to etcd, except for those that etcd already contains. */
export async function storeBodies(client: EtcdClient, keys: ClusterKeys, bodies: readonly KvPut[]): Promise<void> {
  const absent: KvPut[] = [];
  for (const page of chunks(bodies, KEYS_PER_READ)) {
    const apply = page.map(({ key }): Operation => ({ type: 'get', key: keys.inEtcd(key), keysOnly: true }));
    const { found } = await client.transact({ when: [], apply }, WITHIN);
    append(
      absent,
      page.filter((_, index) => found[index]?.length === 0),
    );
  }
  for (const page of packed(absent)) {
    const apply = page.map(({ key, value }): Operation => ({ type: 'put', key: keys.inEtcd(key), value }));
    await client.transact({ when: [], apply }, WITHIN);
  }
}

function packed(puts: readonly KvPut[]): KvPut[][] {
  const pages: KvPut[][] = [];
  let bytes = Number.POSITIVE_INFINITY;
  for (const put of puts) {
    bytes += put.value.length;
    if (bytes > BYTES_PER_WRITE || (pages.at(-1)?.length ?? 0) >= KEYS_PER_READ) {
      pages.push([]);
      bytes = put.value.length;
    }
    pages.at(-1)?.push(put);
  }
  return pages;
}
