import type { KeyObject } from 'node:crypto';
import type { Observable } from 'rxjs';
import type { Assertion } from '#contracts/analysis/assertion.js';
import type { ChangeEnd, PendingChange, RevertedChange } from '#contracts/policy/pending-change.js';
import type {
  PolicyChange,
  PolicyRecord,
  PolicyRevision,
  StoredPolicy,
  StoredRevision,
} from '#contracts/policy/policy-record.js';
import type { ChangeDeadline } from '#store/policies/confirmation-time.js';
import type { PolicyHead } from '#store/policies/policy-row.js';
import type { RecordKind } from '#store/records/record-kind.js';

export type { ChangeDeadline } from '#store/policies/confirmation-time.js';

/**
 * A key-value store that orders its entries by the UTF-8 bytes of their keys. Its methods report each failure
 * as a `StoreError`.
 */
export type KvStore = {
  /**
   * Returns the value of a key, or null if the store does not contain the key. Throws `store_damaged` for a
   * damaged value.
   */
  get(key: string): Promise<Uint8Array | null>;
  /** Returns the values in the order of `keys`, with null for a missing key. */
  getMany(keys: readonly string[]): Promise<(Uint8Array | null)[]>;
  put(key: string, value: Uint8Array, options: WriteOptions): Promise<void>;
  delete(key: string, options: WriteOptions): Promise<void>;
  /** Writes all operations or none of them, even if the power fails during the write. */
  batch(operations: readonly KvOperation[], options: WriteOptions): Promise<void>;
  /**
   * Iterates over the entries of a range in pages, without a snapshot: an entry written during the iteration
   * may be missing. The caller may stop before the last entry. After `close`, open iterators throw
   * `store_closed`.
   */
  iterate(range: KvRange): AsyncIterable<readonly [key: string, value: Uint8Array]>;
  /**
   * Waits for pending operations and closes the store. Later calls of other methods throw `store_closed`;
   * further calls of `close` do nothing.
   */
  close(): Promise<void>;
};

/**
 * The key-value store that the nodes of a cluster share. Reads come from the replica of this node, and work
 * without etcd. A write resolves when the replica contains it. Throws `revision_conflict` if another node has
 * changed a written key that this replica does not contain yet, and `store_unavailable` without etcd.
 */
export type SharedStore = KvStore & {
  /**
   * Emits each batch that the replica of this node has stored, with the writes of all nodes in the order of
   * etcd.
   */
  readonly applied: Observable<readonly KvOperation[]>;
  /** Emits true when the replica equals etcd after a connect, and false when the connection is lost. */
  readonly connected: Observable<boolean>;
};

/** With `sync`, the promise resolves only after the disk has stored the write. */
type WriteOptions = { readonly sync: boolean };
export type KvPut = { readonly type: 'put'; readonly key: string; readonly value: Uint8Array };
export type KvOperation = KvPut | { readonly type: 'delete'; readonly key: string };
/** The functions that read single values of the store. */
export type KvReads = Pick<KvStore, 'get' | 'getMany'>;
/**
 * A range of keys from `gte` (inclusive) to `lt` (exclusive), in descending order if `reverse` is true.
 * `limit` is the maximum number of entries.
 */
export type KvRange = {
  readonly gte: string;
  readonly lt: string;
  readonly reverse?: boolean;
  readonly limit?: number;
};

/**
 * The stored policies with all their revisions (B3). `active` in a returned record is true if the record is
 * the present revision of the active policy.
 */
export type PolicyStore = {
  /** Returns the records sorted by name; policies without a name come last. */
  list(): Promise<PolicyRecord[]>;
  get(id: string): Promise<StoredPolicy | null>;
  /**
   * Returns the policy with this name. Ignores letter case, and white space at both ends of the name (D5).
   */
  findByName(name: string): Promise<PolicyRecord | null>;
  active(): Promise<StoredPolicy | null>;
  /**
   * Returns the policy that this node must enforce. This is not the active policy while this node does not
   * take part in a roll-out yet, and after this node reverted a pending change by itself.
   */
  toEnforce(): Promise<PolicyToEnforce>;
  /**
   * Returns the same as `toEnforce` without the text of the policy. `record` is null if no policy is active,
   * or if the policy is damaged.
   */
  enforced(): Promise<EnforcedRecord>;
  /**
   * Emits the generation that this node must enforce, after each change that was not written by this node.
   */
  readonly followed: Observable<number>;
  /**
   * Emits the present policy change that is unconfirmed or being rolled out, or null, and then each new one.
   */
  readonly pending: Observable<PendingChange | null>;
  /**
   * On a single node: emits the pending change that must be confirmed with its deadline, or null, and then
   * each new one. A deadline can be corrected. Emits null in a cluster.
   */
  readonly deadline: Observable<ChangeDeadline | null>;
  /** Corrects the deadline of this pending change, in milliseconds of `performance.now()`. */
  correctDeadline(change: string, atMs: number): void;
  /** The last pending change that was reverted; null after a later write has changed the policy in force. */
  readonly reverted: RevertedChange | null;
  /**
   * Ends a pending change: completes it, or makes the former policy active again with a new revision and a
   * new generation. Throws `revision_conflict` if the change is not pending, if the condition of the end is
   * not met, or if the change shall be completed on a single node after its deadline.
   */
  settle(end: ChangeEnd): Promise<void>;
  /** Makes this node alone enforce the policy before a pending change, while the change is pending. */
  revertHere(change: string): void;
  /**
   * Writes a commit as one atomic batch and waits until the disk has stored it. Throws `generation_regressed`
   * if the generation is lower than the stored one. Throws `revision_conflict` if the revision is not newer
   * than the stored one, or if an edit refers to another revision than the stored one. Also throws
   * `revision_conflict` if `activate` names no stored policy, if there was another commit after `base`, if
   * the list of assertions has another revision than `assertions`, or if the commit would end a pending
   * change of a single node after its deadline.
   */
  commit(change: PolicyChange): Promise<void>;
  /**
   * Returns the operations of a commit without writing them. A later `commit` of the same object writes these
   * operations. Throws like `commit`.
   */
  plan(change: PolicyChange): Promise<PolicyPlan>;
  /** Returns the hash of the list of parts of a policy, after a planned commit. */
  bodySha256(id: string, plan: PolicyPlan): Promise<string>;
  /**
   * Returns revisions of a policy, newest first. The revisions remain after the policy is removed. Returns an
   * empty list if the id was never used. Omits revisions whose record is damaged.
   */
  history(id: string, page?: HistoryPage): Promise<PolicyRevision[]>;
  revision(id: string, revision: number): Promise<StoredRevision | null>;
  /**
   * Returns the bytes from `from` to `to` (exclusive) of the policy text of a revision. Returns null if the
   * revision does not exist.
   */
  slice(id: string, revision: number, from: number, to: number): Promise<Uint8Array | null>;
  /** Returns the generation of the last commit; 0 before the first commit. */
  generation(): Promise<number>;
  /** Returns the id of the last commit; empty before the first one. */
  headCommit(): Promise<string>;
  /** Returns the highest generation number that is used, or that the revert of a pending change would use. */
  reservedGeneration(): Promise<number>;
  /** Returns whether any policy was ever active on this node (D27). */
  everActivated(): Promise<boolean>;
};

/** A page of a history: at most `limit` revisions below the revision `before`. By default all revisions. */
export type HistoryPage = { readonly before?: number; readonly limit?: number };

/** The policy that this node must enforce. `stored`: null if no policy is active. */
export type PolicyToEnforce = Omit<EnforcedRecord, 'record'> & { readonly stored: StoredPolicy | null };

export type EnforcedRecord = {
  readonly record: PolicyRecord | null;
  readonly generation: number;
  readonly everActivated: boolean;
};

/**
 * A commit as operations of the key-value store, with the head that they write. `headRevision`: the revision
 * of the head before the commit in the shared store; the commit is valid only for this head. 0 on a single
 * node. `listRevision`: the same for the list of assertions; null if the commit is valid with every list.
 */
export type PolicyPlan = {
  readonly head: PolicyHead;
  readonly headRevision: bigint;
  readonly listRevision: bigint | null;
  readonly operations: readonly KvOperation[];
};

/** Settings of the node or of its cluster. The key of a setting is the prefix of its kind. */
export type SettingsStore = {
  /** Where the settings are stored: on this node, or in the store that the nodes of a cluster share. */
  readonly source: 'local' | 'cluster';
  /** Returns null if there is no such setting, or if its value does not match its schema. */
  get<T>(setting: RecordKind<T>): Promise<T | null>;
  put<T>(setting: RecordKind<T>, value: T): Promise<void>;
  /**
   * Writes the value that `next` returns for the stored value, and resolves with it. `next` gets null if
   * there is no setting with this key. If another node changes the setting at the same time, `next` is called
   * once more with the changed value. If `expected` is given, the promise rejects with `revision_conflict`
   * instead. An error that `next` throws rejects the promise.
   */
  update<T>(setting: RecordKind<T>, expected: number | undefined, next: (stored: T | null) => T): Promise<T>;
  /**
   * Emits the new value after each change of a setting in the shared store, by this node or by another node;
   * null after a removal, and for a value that does not match its schema. Never emits on a single node.
   */
  changed<T>(setting: RecordKind<T>): Observable<T | null>;
};

/** The connection to a Kubernetes API server (D38). Weir's own API never returns `service_account_token`. */
export type Integration = {
  readonly name: string;
  readonly kind: 'kubernetes';
  readonly api_server_url: string;
  readonly ca_cert_pem: string;
  readonly service_account_token: string;
};
/** The last write of a stored value. */
export type LastWrite = {
  /** The number of writes of the value, beginning with 1. */
  readonly revision: number;
  /** ISO 8601, UTC. */
  readonly updated_at: string;
  /** The author of the write: the subject of a token, or the part of the node that wrote. */
  readonly updated_by: string;
};
/** After a removal of the integration, the next write has revision 1 again. `created_at`: ISO 8601, UTC. */
export type IntegrationRecord = Integration & LastWrite & { readonly created_at: string };

export type IntegrationStore = {
  /** Returns all integrations sorted by name. */
  list(): Promise<IntegrationRecord[]>;
  /** The names of the integrations that the last `list` left out, because their records cannot be read. */
  readonly unreadable: ReadonlySet<string>;
  get(name: string): Promise<IntegrationRecord | null>;
  /**
   * Writes an integration (a Kubernetes API server). `expected` is the revision that must be stored: 0 if
   * there must be no integration, omitted if any revision is accepted. Throws `revision_conflict` if another
   * revision is stored.
   */
  put(integration: Integration, author: string, expected?: number): Promise<IntegrationRecord>;
  /** Removes an integration (a Kubernetes API server). Returns whether the integration existed. */
  remove(name: string, expected?: number): Promise<boolean>;
  /** Emits after each change of an integration, by this node or by another node of the cluster. */
  readonly changed: Observable<void>;
};

/** The intercept CA as stored (D26). A removal does not reset the revision. */
export type InterceptCaRecord = LastWrite & {
  readonly cert_pem: string;
  /** The certificates of the CAs above the intercept CA, beginning with its issuer. */
  readonly chain_pem: string;
  /** SHA-256 of the DER form of the CA certificate, as 64 hexadecimal digits in lower case. */
  readonly fingerprint: string;
  readonly sealed_key: string;
};
type InterceptCaWrite = {
  readonly certPem: string;
  readonly chainPem: string;
  readonly fingerprint: string;
  readonly key: KeyObject;
};

export type InterceptCaStore = {
  get(): Promise<InterceptCaRecord | null>;
  /**
   * Decrypts the private key of a record. Throws `seal_broken`, or the code of a failure to read the sealing
   * key.
   */
  key(record: InterceptCaRecord): Promise<KeyObject>;
  /**
   * Writes the intercept CA. `expected` is the revision that must be stored: 0 if there must be no CA,
   * omitted if any revision is accepted. Throws `revision_conflict` if another revision is stored.
   */
  put(ca: InterceptCaWrite, author: string, expected?: number): Promise<InterceptCaRecord>;
  /** Removes the intercept CA. Returns whether the CA existed. */
  remove(expected?: number): Promise<boolean>;
  /**
   * Emits after each change of the CA in the shared store, by this node or by another node. Never emits if
   * the CA is stored on this node alone.
   */
  readonly changed: Observable<unknown>;
};

/** The list of assertions. Without a list, its revision is 0, and time and author are null. */
export type AssertionList = {
  readonly revision: number;
  readonly assertions: readonly Assertion[];
  readonly updated_at: string | null;
  readonly updated_by: string | null;
};

export type AssertionStore = {
  /**
   * Returns the same object while the list is unchanged. Throws `store_damaged` for a list that this build
   * cannot read.
   */
  read(): Promise<AssertionList>;
  /**
   * Writes the list that `next` returns for the stored one, which is null if this build cannot read it.
   * `expected` is the revision that must be stored: 0 if there must be no list, undefined if any revision is
   * accepted. Throws `revision_conflict` if another revision is stored. An error that `next` throws rejects
   * the promise.
   */
  write(
    author: string,
    expected: number | undefined,
    next: (stored: readonly Assertion[] | null) => readonly Assertion[],
  ): Promise<AssertionList>;
  /** Emits after each change of the list, by this node or by another node of the cluster. */
  readonly changed: Observable<void>;
};

export type Role = 'admin' | 'readonly';
/** The stored data about an API token. The token itself is never stored. Times are in ISO 8601, UTC. */
export type TokenRecord = {
  readonly id: string;
  readonly subject: string;
  readonly role: Role;
  readonly created_at: string;
  /** Null if the token never expires. */
  readonly expires_at: string | null;
  readonly revoked_at: string | null;
};

export type TokenStore = {
  /** Returns all token records sorted by time of creation. */
  list(): Promise<TokenRecord[]>;
  get(id: string): Promise<TokenRecord | null>;
  put(record: TokenRecord): Promise<void>;
};
