import type { KeyObject } from 'node:crypto';
import type { PolicyPut, PolicyRecord, StoredPolicy } from '#contracts/policy-record.js';

/** An ordered store of bytes under string keys (order of their UTF-8 bytes). Every failure is a `StoreError`. */
export type KvStore = {
  /** Null where there is none. Throws `store_damaged` rather than serve a value that was not written. */
  get(key: string): Promise<Uint8Array | null>;
  /** In the order of `keys`. */
  getMany(keys: readonly string[]): Promise<(Uint8Array | null)[]>;
  put(key: string, value: Uint8Array, options: WriteOptions): Promise<void>;
  delete(key: string, options: WriteOptions): Promise<void>;
  /** All or nothing, also across a power cut. */
  batch(operations: readonly KvOperation[], options: WriteOptions): Promise<void>;
  /**
   * Read in pages, not from a snapshot: an entry written during the walk may or may not be seen. Safe to abandon,
   * and to have open while the store closes (then it throws `store_closed`).
   */
  iterate(range: KvRange): AsyncIterable<readonly [key: string, value: Uint8Array]>;
  /** Waits for what is under way; later calls throw `store_closed`. Idempotent. */
  close(): Promise<void>;
};

/** With `sync` the write has reached the disk when the promise resolves. */
type WriteOptions = { readonly sync: boolean };
export type KvOperation =
  | { readonly type: 'put'; readonly key: string; readonly value: Uint8Array }
  | { readonly type: 'delete'; readonly key: string };
/** `gte` is included, `lt` is not. `limit` counts entries. */
export type KvRange = {
  readonly gte: string;
  readonly lt: string;
  readonly reverse?: boolean;
  readonly limit?: number;
};

/** Policies with every revision that they ever had (B3). `active` in a record says whether it is the active one now. */
export type PolicyStore = {
  /** By name, those without a name last. */
  list(): Promise<PolicyRecord[]>;
  get(id: string): Promise<StoredPolicy | null>;
  /** Names are trimmed and compared case-insensitively (D5). */
  findByName(name: string): Promise<PolicyRecord | null>;
  active(): Promise<StoredPolicy | null>;
  /**
   * One atomic, synced batch. Throws `generation_regressed` for a generation below the stored one, and
   * `revision_conflict` for a revision that is not newer, or an edit of one that is not there.
   */
  commit(change: PolicyCommit): Promise<void>;
  /** Newest first; kept after the policy itself is removed. Empty where the id was never used. */
  history(id: string): Promise<PolicyRecord[]>;
  revision(id: string, revision: number): Promise<StoredPolicy | null>;
  /** The bytes `from` … `to` of the body of a revision; null where there is no such revision. */
  slice(id: string, revision: number, from: number, to: number): Promise<Uint8Array | null>;
  /** The generation of the last commit; 0 before the first. */
  generation(): Promise<number>;
  /** Whether a policy was ever active (D27). */
  everActivated(): Promise<boolean>;
};

export type PolicyCommit = {
  /** Its `record.active` decides whether it is the active one from now on. */
  readonly put?: PolicyPut;
  /** Id of the stored policy that is the active one from now on, as it is. */
  readonly activate?: string;
  /** Id of the policy that stops being the active one. */
  readonly deactivate?: string;
  /** Id of the policy to remove; its history stays. */
  readonly remove?: string;
  readonly generation: number;
};

/** Node settings: one JSON value a key. */
export type SettingsStore = {
  /** Null where there is none. */
  get(key: string): Promise<unknown>;
  put(key: string, value: unknown): Promise<void>;
};

/** A Kubernetes integration (D38). The service account token is never shown by the API. */
export type Integration = {
  readonly name: string;
  readonly kind: 'kubernetes';
  readonly api_server_url: string;
  readonly ca_cert_pem: string;
  readonly service_account_token: string;
};
export type IntegrationRecord = Integration & {
  /** Counts the writes from 1. */
  readonly revision: number;
  readonly created_at: string;
  readonly updated_at: string;
  readonly updated_by: string;
};

export type IntegrationStore = {
  /** By name. */
  list(): Promise<IntegrationRecord[]>;
  get(name: string): Promise<IntegrationRecord | null>;
  /** `expected` is the revision that must be stored now, 0 for none, left out for any; else `revision_conflict`. */
  put(integration: Integration, author: string, expected?: number): Promise<IntegrationRecord>;
  /** Whether there was one. */
  remove(name: string, expected?: number): Promise<boolean>;
};

/** The intercept CA as it is kept (D26). */
export type InterceptCaRecord = {
  readonly cert_pem: string;
  /** The certificates above it, its issuer first. */
  readonly chain_pem: string;
  /** SHA-256 of its DER: 64 hex digits in lower case. */
  readonly fingerprint: string;
  readonly sealed_key: string;
  /** Counts the writes from 1, also across removals. */
  readonly revision: number;
  readonly updated_at: string;
  readonly updated_by: string;
};
type InterceptCaWrite = {
  readonly certPem: string;
  readonly chainPem: string;
  readonly fingerprint: string;
  readonly key: KeyObject;
};

export type InterceptCaStore = {
  get(): Promise<InterceptCaRecord | null>;
  /** The key of a record. Throws `seal_broken`, or what keeps the sealing key from being read. */
  key(record: InterceptCaRecord): Promise<KeyObject>;
  /** `expected` is the revision that must be stored now, 0 for none, left out for any; else `revision_conflict`. */
  put(ca: InterceptCaWrite, author: string, expected?: number): Promise<InterceptCaRecord>;
  /** Whether there was one. */
  remove(expected?: number): Promise<boolean>;
};

export type Role = 'admin' | 'readonly';
/** What is kept of a token: never the token itself. Times are ISO 8601, UTC. */
export type TokenRecord = {
  readonly id: string;
  readonly subject: string;
  readonly role: Role;
  readonly created_at: string;
  /** Null: never. */
  readonly expires_at: string | null;
  readonly revoked_at: string | null;
};

export type TokenStore = {
  /** In the order of their making. */
  list(): Promise<TokenRecord[]>;
  get(id: string): Promise<TokenRecord | null>;
  put(record: TokenRecord): Promise<void>;
};
