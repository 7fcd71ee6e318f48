import { setTimeout as pause } from 'node:timers/promises';
import { distinctUntilChanged, map, type Observable, Subscription } from 'rxjs';
import type { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { EtcdError } from '#cluster/etcd/etcd-error.js';
import type { Condition, KeyValue, Operation } from '#cluster/etcd/etcd-types.js';
import type { ClusterKeys } from '#cluster/keys.js';
import { CLUSTER_RECORDS } from '#cluster/records.js';
import type { Replica } from '#cluster/replica/replica.js';
import { encodeJson } from '#store/records/json-value.js';
import type { Membership } from './membership.js';

const WITHIN = { withinMs: 2_000 };
const RETRY_MS = 500;

/**
 * The election of the leader, which performs the tasks that only one node may perform. A node becomes leader
 * when its transaction creates the key `leader` on its lease. The revision that created the key is a fence:
 * each transaction of the leader has this revision as a condition.
 */
export class Election {
  constructor(
    private readonly client: EtcdClient,
    private readonly keys: ClusterKeys,
    private readonly replica: Replica,
    private readonly membership: Membership,
    private readonly node: string,
  ) {}

  /** Emits the id of the node that leads, or null. */
  get leader(): Observable<string | null> {
    return this.replica.live.pipe(
      map((live) => live.get(this.keys.leader)),
      map(leaderIn),
      distinctUntilChanged(),
    );
  }

  /** The condition of a transaction that this node still leads; null while this node does not lead. */
  get fence(): Condition | null {
    const entry = this.replica.present.get(this.keys.leader);
    if (entry === undefined || leaderIn(entry) !== this.node) return null;
    return { key: entry.key, createRevision: entry.createRevision };
  }

  /** Takes part in the election, until the subscription ends. */
  run(): Subscription {
    let isWanted = true;
    let isTrying = false;
    const runWhileVacant = async (): Promise<void> => {
      if (isTrying) return;
      isTrying = true;
      while (isWanted && this.#isVacant) {
        await this.#takeLead();
        await pause(RETRY_MS);
      }
      isTrying = false;
    };
    const watching = this.replica.live
      .pipe(
        map(() => this.#isVacant),
        distinctUntilChanged(),
      )
      .subscribe((isVacant) => {
        if (isVacant) void runWhileVacant();
      });
    return new Subscription(() => {
      isWanted = false;
      watching.unsubscribe();
    });
  }

  get #isVacant(): boolean {
    const entry = this.replica.present.get(this.keys.leader);
    return entry === undefined || entry.lease === 0n;
  }

  async #takeLead(): Promise<void> {
    const lease = this.membership.lease;
    if (lease === null || !this.replica.isConnected) return;
    const key = this.keys.leader;
    const known = this.replica.present.get(key);
    // Delete a `leader` key without a lease first, because it belongs to no node and etcd never removes it.
    // The fence is the revision that creates the key.
    const put: Operation = { type: 'put', key, value: encodeJson({ node: this.node }), lease: lease.id };
    const apply = [known === undefined ? put : ({ type: 'delete', key } as const)];
    try {
      await this.client.transact({ when: [{ key, modRevision: known?.modRevision ?? 0n }], apply }, WITHIN);
    } catch (failure) {
      if (!(failure instanceof EtcdError)) throw failure;
    }
  }
}

/** Returns the node that leads; null if the key is missing, belongs to no node, or cannot be read. */
function leaderIn(entry: KeyValue | undefined): string | null {
  if (entry === undefined || entry.lease === 0n) return null;
  const { leader } = CLUSTER_RECORDS;
  return leader.reading(leader.prefix, entry.value).value?.node ?? null;
}
