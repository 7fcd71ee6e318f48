import { randomInt } from 'node:crypto';
import { hashWith } from '#policy/model/names/name-hash.js';

type Entry<K, V> = {
  readonly key: K;
  value: V;
  /** The next entry in the chain of the same hash bucket; null at the end of the chain. */
  next: Entry<K, V> | null;
  /** `older` and `newer` are the neighbours of this entry in insertion order. */
  older: Entry<K, V> | null;
  newer: Entry<K, V> | null;
};

const LEAST_BUCKETS = 64;

/**
 * A map for entries that are added and deleted thousands of times a second. V8's `Map` would waste memory
 * between full garbage collections: V8 allocates a new hash table every few entries, and each old table
 * references the next table. Once an old table is in the old generation, it keeps all later tables and their
 * entries in memory.
 */
export class ExpiringMap<K extends string | number, V> {
  #buckets: (Entry<K, V> | null)[] = bucketsOf<K, V>(LEAST_BUCKETS);
  #oldest: Entry<K, V> | null = null;
  #newest: Entry<K, V> | null = null;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get(key: K): V | undefined {
    return this.#find(key)?.value;
  }

  has(key: K): boolean {
    return this.#find(key) !== null;
  }

  /** Sets the value of a key. A key that is already in the map keeps its place in the insertion order. */
  set(key: K, value: V): void {
    const known = this.#find(key);
    if (known !== null) {
      known.value = value;
      return;
    }
    if (this.#size === this.#buckets.length) this.#grow();
    const at = this.#bucketOf(key);
    const entry: Entry<K, V> = { key, value, next: this.#buckets[at] ?? null, older: this.#newest, newer: null };
    this.#buckets[at] = entry;
    if (this.#newest === null) this.#oldest = entry;
    else this.#newest.newer = entry;
    this.#newest = entry;
    this.#size++;
  }

  delete(key: K): boolean {
    const at = this.#bucketOf(key);
    let before: Entry<K, V> | null = null;
    let entry = this.#buckets[at] ?? null;
    while (entry !== null && entry.key !== key) {
      before = entry;
      entry = entry.next;
    }
    if (entry === null) return false;
    if (before === null) this.#buckets[at] = entry.next;
    else before.next = entry.next;
    const { older, newer } = entry;
    if (older === null) this.#oldest = newer;
    else older.newer = newer;
    if (newer === null) this.#newest = older;
    else newer.older = older;
    // Clear the links of the deleted entry. If the entry is already in V8's old generation, its links would
    // keep younger entries in memory until a full garbage collection.
    entry.next = entry.older = entry.newer = null;
    this.#size--;
    return true;
  }

  clear(): void {
    this.#buckets.fill(null);
    this.#oldest = this.#newest = null;
    this.#size = 0;
  }

  /** Returns the value of the key that was inserted first; undefined if the map is empty. */
  oldest(): V | undefined {
    return this.#oldest?.value;
  }

  /** Returns a copy of the current values in insertion order. */
  values(): V[] {
    const all: V[] = [];
    for (let entry = this.#oldest; entry !== null; entry = entry.newer) all.push(entry.value);
    return all;
  }

  #find(key: K): Entry<K, V> | null {
    let entry = this.#buckets[this.#bucketOf(key)] ?? null;
    while (entry !== null && entry.key !== key) entry = entry.next;
    return entry;
  }

  #bucketOf(key: K): number {
    return hashOf(key) & (this.#buckets.length - 1);
  }

  #grow(): void {
    this.#buckets = bucketsOf<K, V>(this.#buckets.length * 2);
    for (let entry = this.#oldest; entry !== null; entry = entry.newer) {
      const at = this.#bucketOf(entry.key);
      entry.next = this.#buckets[at] ?? null;
      this.#buckets[at] = entry;
    }
  }
}

function bucketsOf<K, V>(count: number): (Entry<K, V> | null)[] {
  return Array.from({ length: count }, () => null);
}

/**
 * The hash seed is random. With a known seed, a client that chooses keys could put all its keys into one
 * bucket, which makes each search slow.
 */
const SEED = randomInt(2 ** 32) | 0;

function hashOf(key: string | number): number {
  if (typeof key === 'number') return Math.imul(key ^ SEED, 0x9e37_79b1) >>> 16;
  let hash = SEED;
  for (let at = 0; at < key.length; at++) {
    hash = hashWith(hash, key.charCodeAt(at));
    // Without this shift, only the lowest byte of the seed would influence which keys collide. An attacker
    // could try the 256 values of that byte.
    hash ^= hash >>> 15;
  }
  return Math.imul(hash ^ (hash >>> 15), 0x85eb_ca6b) >>> 8;
}
