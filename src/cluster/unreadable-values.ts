import { defer, from, merge, type Observable, Subject } from 'rxjs';
import type { RecordKind } from '#store/records/record-kind.js';
import type { KeyRange, KeyValue } from './etcd/etcd-types.js';
import type { ClusterKeys } from './keys.js';

/**
 * A value of etcd that this node ignores. `reason`: null when the value was replaced by a readable value, or
 * removed.
 */
type UnreadableChange = { readonly key: string; readonly reason: string | null };

/**
 * The values of etcd that do not match their schema, as of the last read of each key. The node ignores these
 * values.
 */
export class UnreadableValues {
  readonly #keys: ClusterKeys;
  readonly #reasons = new Map<string, string>();
  readonly #changes = new Subject<UnreadableChange>();

  constructor(keys: ClusterKeys) {
    this.#keys = keys;
  }

  /** The reason for each unreadable value, by key in etcd. */
  get reasons(): ReadonlyMap<string, string> {
    return this.#reasons;
  }

  /** Emits each change of `reasons`, and to a new subscriber first the present reasons. */
  get changes(): Observable<UnreadableChange> {
    const present = (): UnreadableChange[] => Array.from(this.#reasons, ([key, reason]) => ({ key, reason }));
    return defer(() => merge(from(present()), this.#changes));
  }

  /**
   * Returns the record of an entry, or null if its value does not match the schema. `isLeased`: the key must
   * also have a lease.
   */
  read<T>(kind: RecordKind<T>, { key, value, lease }: KeyValue, isLeased = false): T | null {
    const reading = kind.reading(this.#keys.nameOf(key), value);
    const reason = isLeased && lease === 0n ? 'it is on no lease, so that no node has written it' : reading.reason;
    if (reason === undefined) this.forget(key);
    else this.note(key, reason);
    return reason === undefined ? (reading.value ?? null) : null;
  }

  note(key: string, reason: string): void {
    if (this.#reasons.get(key) === reason) return;
    this.#reasons.set(key, reason);
    this.#changes.next({ key, reason });
  }

  forget(key: string): void {
    if (this.#reasons.delete(key)) this.#changes.next({ key, reason: null });
  }

  /**
   * Forgets the unreadable values whose keys no longer exist. `entries`: all entries that a read of the range
   * found.
   */
  retain({ from, to }: KeyRange, entries: readonly KeyValue[]): void {
    if (this.#reasons.size === 0) return;
    const present = new Set(entries.map(({ key }) => key));
    for (const key of [...this.#reasons.keys()]) if (key >= from && key < to && !present.has(key)) this.forget(key);
  }
}
