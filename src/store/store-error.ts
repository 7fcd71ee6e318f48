/**
 * The codes of store failures. The API maps them to API error codes, for example `store_unavailable` and
 * `precondition_failed`.
 */
export type StoreErrorCode =
  | 'data_dir_exposed' // another user can replace files in the data folder
  | 'store_locked' // another process has the same data folder open
  | 'store_damaged' // the stored bytes differ from the bytes that Weir wrote
  | 'store_no_space' // the disk is full
  | 'store_read_only' // a write to a store that cannot be opened for writing, for example on a full disk
  | 'store_closed'
  | 'store_full' // the database of etcd is full
  | 'outcome_unknown' // etcd or the disk did not report whether it applied a write
  | 'store_library_missing' // RocksDB is not installed, or the installed version is too old
  | 'store_unavailable' // any other failure of the disk or of RocksDB
  | 'node_unknown' // the cluster has no node with this id
  | 'revision_conflict' // the stored revision differs from the revision that the write expects
  | 'token_key_exposed' // users other than the user of this process can read the key that signs tokens
  | 'token_key_invalid' // the file of the signing key contains no Ed25519 private key
  | 'seal_key_missing' // the file of the sealing key does not exist, so sealed values cannot be opened
  | 'seal_key_exposed' // users other than the user of this process can read the sealing key
  | 'seal_key_invalid' // the file of the sealing key contains no valid key
  | 'seal_broken' // the value was sealed with another key, or was modified
  | 'generation_regressed'; // the generation of a commit is lower than the stored generation

/** A failure of the store. The message names the operation, then the error. */
export class StoreError extends Error {
  override readonly name = 'StoreError';
  /** The store key of the damaged value. Undefined if the failure does not concern a single value. */
  readonly key: string | undefined;
  constructor(
    readonly code: StoreErrorCode,
    message: string,
    options?: { readonly cause?: unknown; readonly key?: string },
  ) {
    super(message, options);
    this.key = options?.key;
  }
}
