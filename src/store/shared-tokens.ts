import { createPublicKey, type KeyObject } from 'node:crypto';
import type { JWK } from 'jose';
import { Observable } from 'rxjs';
import { intactEntries } from './intact-values.js';
import { decodeJson, encodeJson, under } from './json-value.js';
import { changesOf } from './shared-changes.js';
import type { SharedStore, TokenRecord } from './store-types.js';

const RECORD = 'cluster-token/';
const KEY = 'token-key/';
/** The prefix of the local keys of nodes that were removed from the cluster. */
export const REMOVED_NODE = 'removed-node/';
const PREFIXES = [RECORD, KEY, REMOVED_NODE] as const;

/** A node that was removed from the cluster. */
export type RemovedNode = {
  readonly id: string;
  readonly by: string;
  readonly at: string;
  /** The ids of its signing keys. No node accepts a token that they have signed. */
  readonly tokenKeys: readonly string[];
};

/** The public half of the key with which a node signs tokens, and the id of the node. */
type SharedKey = { readonly jwk: JWK; readonly node: string };

/** The token records and public keys of all nodes of a cluster, as the replica of this node has them. */
export class SharedTokens {
  readonly #store: SharedStore;
  readonly #records = new Map<string, TokenRecord>();
  readonly #keys = new Map<string, KeyObject>();
  readonly #removed = new Map<string, RemovedNode>();
  /** Store keys with a damaged value, until the replica gets the value from etcd. */
  readonly #damaged = new Set<string>();

  private constructor(store: SharedStore) {
    this.#store = store;
  }

  static async load(store: SharedStore): Promise<SharedTokens> {
    const tokens = new SharedTokens(store);
    for (const prefix of PREFIXES)
      for await (const [key, value] of intactEntries(store, under(prefix), (_, key) => tokens.#damaged.add(key)))
        tokens.#take(key, value);
    return tokens;
  }

  /** Emits after each change of a record or key, by any node. The new values can be read then. */
  get changed(): Observable<void> {
    return new Observable((subscriber) =>
      changesOf(this.#store, (key) => PREFIXES.some((prefix) => key.startsWith(prefix))).subscribe((operation) => {
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

  /** Whether the record of a token is damaged on this node, so that it is unknown whether it is revoked. */
  isDamaged(id: string): boolean {
    return this.#damaged.has(RECORD + id);
  }

  /**
   * Returns the public key with an id (RFC 7638 thumbprint); undefined if no node of the cluster has it, or
   * if it is unknown whether its node was removed.
   */
  key(id: string): KeyObject | undefined {
    if ([...this.#damaged].some((key) => key.startsWith(REMOVED_NODE))) return undefined;
    const isRemoved = [...this.#removed.values()].some(({ tokenKeys }) => tokenKeys.includes(id));
    return isRemoved ? undefined : this.#keys.get(id);
  }

  putRecord(record: TokenRecord): Promise<void> {
    return this.#store.put(RECORD + record.id, encodeJson(record), { sync: true });
  }

  putKey(id: string, key: SharedKey): Promise<void> {
    return this.#store.put(KEY + id, encodeJson(key), { sync: true });
  }

  #take(key: string, value: Uint8Array | null): void {
    this.#damaged.delete(key);
    if (key.startsWith(RECORD)) {
      const id = key.slice(RECORD.length);
      if (value === null) this.#records.delete(id);
      else this.#records.set(id, decodeJson<TokenRecord>(value));
      return;
    }
    if (key.startsWith(REMOVED_NODE)) {
      if (value === null) this.#removed.delete(key);
      else this.#removed.set(key, decodeJson<RemovedNode>(value));
      return;
    }
    const id = key.slice(KEY.length);
    if (value === null) this.#keys.delete(id);
    else this.#keys.set(id, createPublicKey({ key: decodeJson<SharedKey>(value).jwk, format: 'jwk' }));
  }
}
