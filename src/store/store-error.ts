/** Why the store said no. The API answers with its own codes: `store_unavailable`, `precondition_failed`. */
export type StoreErrorCode =
  | 'data_dir_exposed' // another user can replace what is in the data folder
  | 'store_locked' // another instance has this data folder open
  | 'store_damaged' // what was read is not what was written
  | 'store_no_space' // the disk is full
  | 'store_read_only' // opened without the right or the space to write
  | 'store_closed'
  | 'store_library_missing' // RocksDB is not installed, or too old
  | 'store_unavailable' // any other failure of the disk or the engine
  | 'revision_conflict' // the stored revision is not the expected one
  | 'token_key_exposed' // others than the service's user may read the signing key
  | 'token_key_invalid' // the key file holds no Ed25519 private key
  | 'seal_key_missing' // what was sealed cannot be opened without this file
  | 'seal_key_exposed' // others than the service's user may read the sealing key
  | 'seal_key_invalid' // the file holds no sealing key
  | 'seal_broken' // sealed with another key, or changed
  | 'generation_regressed'; // a commit would go back behind the stored generation

/** A failure of the store: what was being done, then what came back. */
export class StoreError extends Error {
  override readonly name = 'StoreError';
  /** Where one value is damaged: its key. */
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
