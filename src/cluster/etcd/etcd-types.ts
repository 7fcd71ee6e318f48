/** A key of etcd with its value. Keys are UTF-8 texts. */
export type KeyValue = {
  readonly key: string;
  readonly value: Uint8Array;
  /** The revision that created the key; 0 never occurs. */
  readonly createRevision: bigint;
  /** The revision of the last write of the key. */
  readonly modRevision: bigint;
  /** The id of the lease that deletes the key when the lease ends; 0 for a key without a lease. */
  readonly lease: bigint;
};

/** Keys from `from` (inclusive) to `to` (exclusive), in the order of their UTF-8 bytes. */
export type KeyRange = { readonly from: string; readonly to: string };

/**
 * A condition of a transaction. A revision of 0 means that the key does not exist; `empty` means that the
 * range contains no key.
 */
export type Condition =
  | { readonly key: string; readonly modRevision: bigint }
  | { readonly key: string; readonly createRevision: bigint }
  | { readonly empty: KeyRange };

export type Operation =
  | { readonly type: 'put'; readonly key: string; readonly value: Uint8Array; readonly lease?: bigint }
  | { readonly type: 'delete'; readonly key: string }
  | { readonly type: 'delete_range'; readonly range: KeyRange }
  /** With `keysOnly`, the values of the found keys are empty. */
  | { readonly type: 'get'; readonly key: string; readonly keysOnly?: boolean }
  | { readonly type: 'get_range'; readonly range: KeyRange; readonly keysOnly?: boolean };

/**
 * If all conditions of `when` hold, etcd executes `apply`, otherwise `otherwise`, as one change with one
 * revision.
 */
export type Transaction = {
  readonly when: readonly Condition[];
  readonly apply: readonly Operation[];
  readonly otherwise?: readonly Operation[];
};

export type TransactionResult = {
  /** Whether all conditions of the transaction held, so that etcd executed `apply`. */
  readonly succeeded: boolean;
  /** The revision of etcd after the transaction. */
  readonly revision: bigint;
  /** The values that each `get` and `get_range` of the applied list found, in the order of the list. */
  readonly found: readonly (readonly KeyValue[])[];
};

export type RangeResult = { readonly revision: bigint; readonly entries: readonly KeyValue[] };

export type KeyChange =
  | { readonly type: 'put'; readonly entry: KeyValue }
  | { readonly type: 'delete'; readonly key: string; readonly modRevision: bigint };

/** All changes of a watched range by one or more transactions, in the order of their revisions. */
export type WatchBatch = {
  /** The revision of etcd when it sent these changes. */
  readonly revision: bigint;
  readonly changes: readonly KeyChange[];
};

export type EtcdOptions = {
  /** Client URLs, for example `https://10.0.0.1:2379`. All are `https`, or all are `http`. */
  readonly endpoints: readonly string[];
  /** The contents of PEM files for mutual TLS; null for `http` endpoints. */
  readonly tls: { readonly ca: Buffer; readonly cert: Buffer; readonly key: Buffer } | null;
  /**
   * The etcd user and password; null if the client certificate names the user, or if etcd needs no
   * authentication.
   */
  readonly user: { readonly name: string; readonly password: string } | null;
};

/** Returns the range of all keys that begin with `prefix`. The prefix must end with an ASCII character. */
export function under(prefix: string): KeyRange {
  const last = prefix.charCodeAt(prefix.length - 1);
  return { from: prefix, to: prefix.slice(0, -1) + String.fromCharCode(last + 1) };
}

export type RangeOptions = Deadline & {
  /** Returns only the keys that were written at this revision or later. */
  readonly writtenSince?: bigint;
  readonly keysOnly?: boolean;
};

export type Deadline = {
  /** The time in milliseconds within which the request must end. */
  readonly withinMs: number;
};
