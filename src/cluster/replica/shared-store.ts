import type { Observable } from 'rxjs';
import type { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { EtcdError } from '#cluster/etcd/etcd-error.js';
import type { KeyValue, Operation } from '#cluster/etcd/etcd-types.js';
import type { ClusterKeys } from '#cluster/keys.js';
import { storeFailure } from '#cluster/store-failure.js';
import { StoreError } from '#store/store-error.js';
import type { KvOperation, KvRange, KvStore, SharedStore } from '#store/store-types.js';
import type { Replica } from './replica.js';

const WRITE = { withinMs: 3_000 };
const APPLY_MS = 5_000;
/**
 * The number of attempts for a write without a response. etcd applies at most one of them, because the
 * conditions of the write then no longer hold.
 */
const ATTEMPTS = 3;

/** The settings and integrations that all nodes of a cluster share. */
export class EtcdSharedStore implements SharedStore {
  /** `isRemoved`: whether this node was removed from the cluster. */
  constructor(
    private readonly client: EtcdClient,
    private readonly keys: ClusterKeys,
    private readonly kv: KvStore,
    private readonly replica: Replica,
    private readonly isRemoved: () => Promise<boolean>,
  ) {}

  get applied(): Observable<readonly KvOperation[]> {
    return this.replica.applied;
  }

  get connected(): Observable<boolean> {
    return this.replica.connected;
  }

  get(key: string): Promise<Uint8Array | null> {
    return this.kv.get(key);
  }

  getMany(keys: readonly string[]): Promise<(Uint8Array | null)[]> {
    return this.kv.getMany(keys);
  }

  iterate(range: KvRange): AsyncIterable<readonly [string, Uint8Array]> {
    return this.kv.iterate(range);
  }

  put(key: string, value: Uint8Array): Promise<void> {
    return this.batch([{ type: 'put', key, value }]);
  }

  delete(key: string): Promise<void> {
    return this.batch([{ type: 'delete', key }]);
  }

  async batch(operations: readonly KvOperation[]): Promise<void> {
    if (!this.replica.isConnected)
      throw new StoreError('store_unavailable', 'write to etcd: this node has no connection to etcd');
    if (await this.isRemoved())
      throw new StoreError('store_unavailable', 'write to etcd: this node was removed from the cluster');
    const when = [
      { key: this.keys.meta, modRevision: this.replica.metaRevision },
      ...operations.map(({ key }) => ({
        key: this.keys.inEtcd(key),
        modRevision: this.replica.revisionOf(key),
      })),
    ];
    const apply = operations.map((operation): Operation => {
      const key = this.keys.inEtcd(operation.key);
      return operation.type === 'put' ? { type: 'put', key, value: operation.value } : { type: 'delete', key };
    });
    const otherwise = operations.map(({ key }): Operation => ({ type: 'get', key: this.keys.inEtcd(key) }));
    for (let attempt = 1; ; attempt++) {
      try {
        const { succeeded, found, revision } = await this.client.transact({ when, apply, otherwise }, WRITE);
        if (!succeeded && !(attempt > 1 && holds(operations, found)))
          throw new StoreError('revision_conflict', 'write to etcd: another node has changed the value');
        await this.replica.until(succeeded ? revision : newest(found), APPLY_MS);
        return;
      } catch (failure) {
        const isUnknown = failure instanceof EtcdError && failure.code === 'outcome_unknown';
        if (!isUnknown || attempt === ATTEMPTS) throw storeFailure('write to etcd', failure);
      }
    }
  }

  /** Closes the connections to etcd. The local store stays open. */
  async close(): Promise<void> {
    this.client.close();
  }
}

type Found = readonly (readonly KeyValue[])[];

function newest(found: Found): bigint {
  return found.flat().reduce((newest, { modRevision }) => (modRevision > newest ? modRevision : newest), 0n);
}

/** Whether etcd contains the values of a write already, because it applied an earlier attempt. */
function holds(operations: readonly KvOperation[], found: Found): boolean {
  return operations.every((operation, index) => {
    const value = found[index]?.[0]?.value;
    return operation.type === 'delete'
      ? value === undefined
      : value !== undefined && Buffer.compare(value, operation.value) === 0;
  });
}
