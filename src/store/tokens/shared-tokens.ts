import { createPublicKey, type KeyObject } from 'node:crypto';
import { Observable } from 'rxjs';
import { intactEntries } from '#store/records/intact-values.js';
import { encodeJson, under } from '#store/records/json-value.js';
import type { RecordKind } from '#store/records/record-kind.js';
import { RECORDS, type RemovedNode, type SharedKey } from '#store/records/records.js';
import { changesOf } from '#store/shared-changes.js';
import type { SharedStore, TokenRecord } from '#store/store-types.js';

const RECORD = RECORDS.clusterToken.prefix;
const KEY = RECORDS.tokenKey.prefix;
const REMOVED_NODE = RECORDS.removedNode.prefix;
const PREFIXES = [RECORD, KEY, REMOVED_NODE] as const;

/** The token records and public keys of all nodes of a cluster, read from the replica of this node. */
export class SharedTokens {
  readonly #store: SharedStore;
  readonly #records = new Map<string, TokenRecord>();
  readonly #keys = new Map<string, KeyObject>();
  readonly #removed = new Map<string, RemovedNode>();
  /** Store keys whose value cannot be read, until the replica gets another value from etcd. */
  readonly #damaged = new Set<string>();

  private constructor(store: SharedStore) {
    this.#store = store;
  }

  static async load(store: SharedStore): Promise<SharedTokens> {
    const tokens = new SharedTokens(store);
    for (const prefix of PREFIXES)
      for await (const [key, value] of intactEntries(store, under(prefix as `${string}/`), (_, key) =>
        tokens.#damaged.add(key),
      ))
        tokens.#apply(key, value);
    return tokens;
  }

  /** Emits after each change of a record or key, by any node. The new values can be read then. */
  get changed(): Observable<void> {
    return new Observable((subscriber) =>
      changesOf(this.#store, (key) => PREFIXES.some((prefix) => key.startsWith(prefix))).subscribe((operation) => {
        this.#apply(operation.key, operation.type === 'put' ? operation.value : null);
        subscriber.next();
      }),
    );
  }

  /** Emits true when the replica equals etcd, and false when the connection is lost. */
  get connected(): Observable<boolean> {
    return this.#store.connected;
  }

  get records(): ReadonlyMap<string, TokenRecord> {
    return this.#records;
  }

  /** Whether the record of a token cannot be read, so that it is unknown whether it is revoked. */
  isDamaged(id: string): boolean {
    return this.#damaged.has(RECORD + id);
  }

  /**
   * Returns the public key with an id (RFC 7638 thumbprint); undefined if no node of the cluster has this
   * key, or if it is unknown whether the node of the key was removed.
   */
  key(id: string): KeyObject | undefined {
    if ([...this.#damaged].some((key) => key.startsWith(REMOVED_NODE))) return undefined;
    const isRemoved = [...this.#removed.values()].some(({ tokenKeys }) => tokenKeys.includes(id));
    return isRemoved ? undefined : this.#keys.get(id);
  }

  /** Whether the cluster lacks the public key with an id. */
  lacksKey(id: string): boolean {
    return !this.#keys.has(id);
  }

  /** Whether the cluster has no record of a token, not even one that cannot be read. */
  lacksRecord(id: string): boolean {
    return !this.#records.has(id) && !this.isDamaged(id);
  }

  putRecord(record: TokenRecord): Promise<void> {
    return this.#store.put(RECORD + record.id, encodeJson(record), { sync: true });
  }

  putKey(id: string, key: SharedKey): Promise<void> {
    return this.#store.put(KEY + id, encodeJson(key), { sync: true });
  }

  #apply(key: string, bytes: Uint8Array | null): void {
    this.#damaged.delete(key);
    const [record, removed] = [RECORDS.clusterToken, RECORDS.removedNode];
    if (key.startsWith(RECORD)) setOrDelete(this.#records, key.slice(RECORD.length), this.#read(record, key, bytes));
    else if (key.startsWith(REMOVED_NODE)) setOrDelete(this.#removed, key, this.#read(removed, key, bytes));
    else {
      const shared = this.#read(RECORDS.tokenKey, key, bytes);
      setOrDelete(this.#keys, key.slice(KEY.length), shared && createPublicKey({ key: shared.jwk, format: 'jwk' }));
    }
  }

  #read<T>(kind: RecordKind<T>, key: string, bytes: Uint8Array | null): T | null {
    if (bytes === null) return null;
    const { value = null } = kind.reading(key, bytes);
    if (value === null) this.#damaged.add(key);
    return value;
  }
}

function setOrDelete<T>(map: Map<string, T>, id: string, value: T | null): void {
  if (value === null) map.delete(id);
  else map.set(id, value);
}
