import type { KeyObject } from 'node:crypto';
import type { PolicyPut, PolicyRecord, StoredPolicy } from '#contracts/policy-record.js';

/**
 * An ordered store of bytes under string keys, in the order of their UTF-8 bytes. Every failure is a
 * `StoreError`.
 */
export type KvStore = {
  /** Null for a missing key. Throws `store_damaged` instead of returning a damaged value. */
  get(key: string): Promise<Uint8Array | null>;
  /** Values in the order of `keys`. */
  getMany(keys: readonly string[]): Promise<(Uint8Array | null)[]>;
  put(key: string, value: Uint8Array, options: WriteOptions): Promise<void>;
  delete(key: string, options: WriteOptions): Promise<void>;
  /** Writes all operations or none, also across a power failure. */
  batch(operations: readonly KvOperation[], options: WriteOptions): Promise<void>;
  /**
   * Reads in pages, not from a snapshot: an entry written during the walk may or may not appear. The iterator
   * may be abandoned, or be open when the store closes (it then throws `store_closed`).
   */
  iterate(range: KvRange): AsyncIterable<readonly [key: string, value: Uint8Array]>;
  /** Waits for pending operations. Later calls throw `store_closed`. Idempotent. */
  close(): Promise<void>;
};

/** With `sync` the promise resolves after the write has reached the disk. */
type WriteOptions = { readonly sync: boolean };
export type KvOperation =
  | { readonly type: 'put'; readonly key: string; readonly value: Uint8Array }
  | { readonly type: 'delete'; readonly key: string };
/** `gte` is inclusive, `lt` exclusive. `limit` is a number of entries. */
export type KvRange = {
  readonly gte: string;
  readonly lt: string;
  readonly reverse?: boolean;
  readonly limit?: number;
};

/**
 * Policies with all their revisions (B3). `active` in a record says whether the policy is the active one now.
 */
export type PolicyStore = {
  /** Sorted by name; policies without a name come last. */
  list(): Promise<PolicyRecord[]>;
  get(id: string): Promise<StoredPolicy | null>;
  /** Names are trimmed and compared case-insensitively (D5). */
  findByName(name: string): Promise<PolicyRecord | null>;
  active(): Promise<StoredPolicy | null>;
  /**
   * Writes one atomic, synced batch. Throws `generation_regressed` for a generation below the stored one.
   * Throws `revision_conflict` for a revision that is not newer, or for an edit of a revision that does not
   * exist.
   */
  commit(change: PolicyCommit): Promise<void>;
  /** Newest first. The history is kept after the policy is removed. Empty if the id was never used. */
  history(id: string): Promise<PolicyRecord[]>;
  revision(id: string, revision: number): Promise<StoredPolicy | null>;
  /** The bytes from `from` to `to` of the body of a revision. Null if the revision does not exist. */
  slice(id: string, revision: number, from: number, to: number): Promise<Uint8Array | null>;
  /** The generation of the last commit; 0 before the first. */
  generation(): Promise<number>;
  /** Whether a policy was ever active (D27). */
  everActivated(): Promise<boolean>;
};

export type PolicyCommit = {
  /** The record to write. Its `record.active` decides whether it becomes the active one. */
  readonly put?: PolicyPut;
  /** The id of a stored policy that becomes active unchanged. */
  readonly activate?: string;
  /** The id of the policy that stops being active. */
  readonly deactivate?: string;
  /** The id of the policy to remove. Its history is kept. */
  readonly remove?: string;
  readonly generation: number;
};

/** Node settings: one JSON value per key. */
export type SettingsStore = {
  /** Null for a missing key. */
  get(key: string): Promise<unknown>;
  put(key: string, value: unknown): Promise<void>;
};

/** A Kubernetes integration (D38). The API never shows the service account token. */
export type Integration = {
  readonly name: string;
  readonly kind: 'kubernetes';
  readonly api_server_url: string;
  readonly ca_cert_pem: string;
  readonly service_account_token: string;
};
export type IntegrationRecord = Integration & {
  /** Incremented by each write, from 1. */
  readonly revision: number;
  readonly created_at: string;
  readonly updated_at: string;
  readonly updated_by: string;
};

export type IntegrationStore = {
  /** Sorted by name. */
  list(): Promise<IntegrationRecord[]>;
  get(name: string): Promise<IntegrationRecord | null>;
  /**
   * `expected` is the revision that must be stored now; 0 for none, omitted for any. Otherwise throws
   * `revision_conflict`.
   */
  put(integration: Integration, author: string, expected?: number): Promise<IntegrationRecord>;
  /** Returns whether the integration existed. */
  remove(name: string, expected?: number): Promise<boolean>;
};

/** The intercept CA as stored (D26). */
export type InterceptCaRecord = {
  readonly cert_pem: string;
  /** The certificates above it, starting with its issuer. */
  readonly chain_pem: string;
  /** SHA-256 of its DER: 64 hex digits in lower case. */
  readonly fingerprint: string;
  readonly sealed_key: string;
  /** Incremented by each write, from 1; removals do not reset it. */
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
  /** The private key of a record. Throws `seal_broken`, or the error of reading the sealing key. */
  key(record: InterceptCaRecord): Promise<KeyObject>;
  /**
   * `expected` is the revision that must be stored now; 0 for none, omitted for any. Otherwise throws
   * `revision_conflict`.
   */
  put(ca: InterceptCaWrite, author: string, expected?: number): Promise<InterceptCaRecord>;
  /** Returns whether the CA existed. */
  remove(expected?: number): Promise<boolean>;
};

export type Role = 'admin' | 'readonly';
/** The stored data of a token; the token itself is never stored. Times are ISO 8601, UTC. */
export type TokenRecord = {
  readonly id: string;
  readonly subject: string;
  readonly role: Role;
  readonly created_at: string;
  /** Null: it never expires. */
  readonly expires_at: string | null;
  readonly revoked_at: string | null;
};

export type TokenStore = {
  /** Sorted by time of creation. */
  list(): Promise<TokenRecord[]>;
  get(id: string): Promise<TokenRecord | null>;
  put(record: TokenRecord): Promise<void>;
};
