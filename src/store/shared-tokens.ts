import { createPublicKey, type KeyObject } from 'node:crypto';
import type { JWK } from 'jose';
import { Observable } from 'rxjs';
import { decodeJson, encodeJson, under } from './json-value.js';
import { changesOf } from './shared-changes.js';
import type { SharedStore, TokenRecord } from './store-types.js';

const RECORD = 'cluster-token/';
const KEY = 'token-key/';

/** The public half of the key with which a node signs tokens, and the id of the node. */
type SharedKey = { readonly jwk: JWK; readonly node: string };

/** The token records and public keys of all nodes of a cluster, as the replica of this node has them. */
export class SharedTokens {
  readonly #store: SharedStore;
  readonly #records = new Map<string, TokenRecord>();
  readonly #keys = new Map<string, KeyObject>();

  private constructor(store: SharedStore) {
    this.#store = store;
  }

  static async load(store: SharedStore): Promise<SharedTokens> {
    const tokens = new SharedTokens(store);
    for (const prefix of [RECORD, KEY] as const)
      for await (const [key, value] of store.iterate(under(prefix))) tokens.#take(key, value);
    return tokens;
  }

  /** Emits after each change of a record or key, by any node. The new values can be read then. */
  get changed(): Observable<void> {
    return new Observable((subscriber) =>
      changesOf(this.#store, (key) => key.startsWith(RECORD) || key.startsWith(KEY)).subscribe((operation) => {
        this.#take(operation.key, operation.type === 'put' ? operation.value : null);
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

  /** Returns the public key with an id (RFC 7638 thumbprint); undefined if no node of the cluster has it. */
  key(id: string): KeyObject | undefined {
    return this.#keys.get(id);
  }

  putRecord(record: TokenRecord): Promise<void> {
    return this.#store.put(RECORD + record.id, encodeJson(record), { sync: true });
  }

  putKey(id: string, key: SharedKey): Promise<void> {
    return this.#store.put(KEY + id, encodeJson(key), { sync: true });
  }

  #take(key: string, value: Uint8Array | null): void {
    if (key.startsWith(RECORD)) {
      const id = key.slice(RECORD.length);
      if (value === null) this.#records.delete(id);
      else this.#records.set(id, decodeJson<TokenRecord>(value));
      return;
    }
    const id = key.slice(KEY.length);
    if (value === null) this.#keys.delete(id);
    else this.#keys.set(id, createPublicKey({ key: decodeJson<SharedKey>(value).jwk, format: 'jwk' }));
  }
}
