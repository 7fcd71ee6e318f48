import { defer, from, merge, type Observable, Subject } from 'rxjs';
import type { RecordKind } from '#store/records/record-kind.js';
import type { KeyRange, KeyValue } from './etcd/etcd-types.js';
import type { ClusterKeys } from './keys.js';

/** A value of etcd that this node left out. `reason`: null when the key has another value, or none. */
type UnreadableChange = { readonly key: string; readonly reason: string | null };

/** The values of etcd that do not fit, as this node has read them last. Nothing uses such a value. */
export class UnreadableValues {
  readonly #keys: ClusterKeys;
  readonly #reasons = new Map<string, string>();
  readonly #changes = new Subject<UnreadableChange>();

  constructor(keys: ClusterKeys) {
    this.#keys = keys;
  }

  /** The reasons by key in etcd. */
  get reasons(): ReadonlyMap<string, string> {
    return this.#reasons;
  }

  /** The changes. A subscriber gets the present reasons first. */
  get changes(): Observable<UnreadableChange> {
    const present = (): UnreadableChange[] => Array.from(this.#reasons, ([key, reason]) => ({ key, reason }));
    return defer(() => merge(from(present()), this.#changes));
  }

  /** Returns the record of an entry, or null if its value does not fit. `isLeased`: it must be on a lease. */
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

  /** Forgets the keys of a range that were read and do not exist. */
  retain({ from, to }: KeyRange, entries: readonly KeyValue[]): void {
    if (this.#reasons.size === 0) return;
    const present = new Set(entries.map(({ key }) => key));
    for (const key of [...this.#reasons.keys()]) if (key >= from && key < to && !present.has(key)) this.forget(key);
  }
}
