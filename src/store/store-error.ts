/**
 * Codes of store failures. The API maps them to its own codes: `store_unavailable`, `precondition_failed`.
 */
export type StoreErrorCode =
  | 'data_dir_exposed' // another user can replace what is in the data folder
  | 'store_locked' // another instance has this data folder open
  | 'store_damaged' // the stored bytes are not those that were written
  | 'store_no_space' // the disk is full
  | 'store_read_only' // opened without permission or space to write
  | 'store_closed'
  | 'store_library_missing' // RocksDB is not installed, or too old
  | 'store_unavailable' // any other failure of the disk or the engine
  | 'revision_conflict' // the stored revision is not the expected one
  | 'token_key_exposed' // users other than the service's user can read the signing key
  | 'token_key_invalid' // the key file holds no Ed25519 private key
  | 'seal_key_missing' // a sealed value cannot be opened without this file
  | 'seal_key_exposed' // users other than the service's user can read the sealing key
  | 'seal_key_invalid' // the file holds no sealing key
  | 'seal_broken' // sealed with another key, or modified
  | 'generation_regressed'; // a commit has a lower generation than the store

/** A store failure. The message has the operation, then the error. */
export class StoreError extends Error {
  override readonly name = 'StoreError';
  /** The key of the damaged value, if the damage is limited to one value. */
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
