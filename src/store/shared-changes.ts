import { concatMap, from, type Observable } from 'rxjs';
import type { KvOperation, SharedStore } from './store-types.js';

/**
 * Emits the operations on the keys for which `concerns` returns true, in the order in which the replica
 * (local copy of the keys in etcd) stored them.
 */
export function changesOf(
  shared: Pick<SharedStore, 'applied'>,
  concerns: (key: string) => boolean,
): Observable<KvOperation> {
  return shared.applied.pipe(concatMap((operations) => from(operations.filter(({ key }) => concerns(key)))));
}
