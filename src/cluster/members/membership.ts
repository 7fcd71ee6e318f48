import { setTimeout as pause } from 'node:timers/promises';
import {
  BehaviorSubject,
  EMPTY,
  exhaustMap,
  filter,
  firstValueFrom,
  map,
  Observable,
  of,
  type Subscription,
  switchMap,
  timeout,
  timer,
} from 'rxjs';
import type { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { EtcdError } from '#cluster/etcd/etcd-error.js';
import type { Operation } from '#cluster/etcd/etcd-types.js';
import type { Lease } from '#cluster/etcd/lease.js';
import type { ClusterKeys } from '#cluster/keys.js';
import { CLUSTER_RECORDS, type ClusterMember, type RegisteredNode } from '#cluster/records.js';
import type { UnreadableValues } from '#cluster/unreadable-values.js';
import { encodeJson } from '#store/records/json-value.js';
import { RECORDS } from '#store/records/records.js';
import { StoreError } from '#store/store-error.js';
import { nodeKey, removedKey } from './node-registry.js';

/** The address at which other nodes connect to a node, and the certificates that they accept from it. */
export type NodeAddress = Pick<ClusterMember, 'id' | 'address' | 'certificates'>;

export type MemberEvent =
  | { readonly type: 'member.joined' }
  /** Another node has the id of this node. This node waits until the other node has gone. */
  | { readonly type: 'member.refused'; readonly reason: string };

const TTL_SECONDS = 5;
const WITHIN = { withinMs: 3_000 };
const RETRY_MS = 1_000;
/** The interval in milliseconds at which a member tests whether a full etcd accepts writes again. */
const FULL_RETRY_MS = 5_000;

/**
 * The membership of this node: a key on a lease. etcd deletes the key 5 s after the node died, was frozen or
 * lost its connection to etcd.
 */
export class Membership {
  readonly #client: EtcdClient;
  readonly #keys: ClusterKeys;
  readonly #identity: () => Promise<string>;
  readonly #unreadable: UnreadableValues;
  #self: ClusterMember;
  /**
   * The lease of this node. Null while there is no lease; a text with the reason if the cluster refuses this
   * node.
   */
  readonly #leaseOrRefusal = new BehaviorSubject<Lease | string | null>(null);
  /** The etcd revision that created the key of this node. */
  #createRevision = 0n;
  #joinedAt = '';

  /** `identity` reads the identity of the data folder. */
  constructor(
    client: EtcdClient,
    keys: ClusterKeys,
    self: Omit<ClusterMember, 'identity'>,
    identity: () => Promise<string>,
    unreadable: UnreadableValues,
  ) {
    this.#unreadable = unreadable;
    this.#client = client;
    this.#keys = keys;
    this.#self = { ...self, identity: '' };
    this.#identity = identity;
  }

  /** The lease of this node; null while the node is not a member. */
  get lease(): Lease | null {
    const found = this.#leaseOrRefusal.value;
    return typeof found === 'object' && found?.isValid === true ? found : null;
  }

  /**
   * Returns the lease of this node. Waits for at most `withinMs` while the node becomes a member again, for
   * example after a short outage of etcd. Throws `store_unavailable` if the node is still not a member after
   * this time. Throws it at once if the cluster refuses this node.
   */
  async leaseWithin(withinMs: number): Promise<Lease> {
    const leaseOrReason = await firstValueFrom(
      this.#leaseOrRefusal.pipe(
        map((each) => (typeof each === 'string' ? each : this.lease)),
        filter((each) => each !== null),
        timeout({ first: withinMs, with: () => of('it has no lease in etcd') }),
      ),
    );
    if (typeof leaseOrReason !== 'string') return leaseOrReason;
    throw new StoreError(
      'store_unavailable',
      `this node is not a member of the cluster, see the check cluster: ${leaseOrReason}`,
    );
  }

  /** Keeps this node a member while there is a subscriber. Ends with an error when the membership ends. */
  join(): Observable<MemberEvent> {
    return new Observable((subscriber) => {
      let isWanted = true;
      const run = async (): Promise<void> => {
        this.#self = { ...this.#self, identity: await this.#identity() };
        const lease = await this.#client.lease(TTL_SECONDS, WITHIN);
        try {
          if (!isWanted) return;
          lease.ended.subscribe((reason) => subscriber.error(new EtcdError('lease_expired', reason)));
          for (;;) {
            const refusal = await this.#take(lease);
            if (!isWanted) return;
            if (refusal === null) break;
            this.#leaseOrRefusal.next(refusal);
            subscriber.next({ type: 'member.refused', reason: refusal });
            await pause(RETRY_MS);
          }
          this.#leaseOrRefusal.next(lease);
          subscriber.next({ type: 'member.joined' });
          subscriber.add(this.#retryWhileFull());
          await new Promise<void>((resolve) => subscriber.add(() => resolve()));
        } finally {
          this.#leaseOrRefusal.next(null);
          await lease.revoke(WITHIN).catch(() => {});
        }
      };
      run().catch((failure: unknown) => subscriber.error(failure));
      return () => {
        isWanted = false;
      };
    });
  }

  /**
   * Writes to etcd which generation this node enforces, or which certificates it uses. All nodes store the
   * certificates, so that they can compare them while etcd cannot be reached.
   */
  async announce(change: Partial<Pick<ClusterMember, 'generation' | 'certificates'>>): Promise<void> {
    this.#self = { ...this.#self, ...change };
    const lease = this.lease;
    if (lease === null) return;
    const key = this.#keys.member(this.#self.id);
    const when = [{ key, createRevision: this.#createRevision }];
    const apply: Operation[] = [{ type: 'put', key, value: encodeJson(this.#self), lease: lease.id }];
    if (change.certificates !== undefined)
      apply.push({ type: 'put', key: this.#keys.inEtcd(nodeKey(this.#self.id)), value: this.#registration() });
    await this.#client.transact({ when, apply }, WITHIN);
  }

  #registration(): Uint8Array {
    const { id, identity, address, version, certificates = [] } = this.#self;
    const registered: RegisteredNode = { id, identity, address, version, since: this.#joinedAt, certificates };
    return encodeJson(registered);
  }

  /** Writes the key of this node every `FULL_RETRY_MS` while etcd is full, to detect free space. */
  #retryWhileFull(): Subscription {
    return this.#client.full
      .pipe(
        switchMap((isFull) => (isFull ? timer(FULL_RETRY_MS, FULL_RETRY_MS) : EMPTY)),
        exhaustMap(() => this.announce({}).catch(() => {})),
      )
      .subscribe();
  }

  /** The members are sorted by id. Writes the key of this node again if its value cannot be read. */
  async list(): Promise<readonly ClusterMember[]> {
    const { entries } = await this.#client.range(this.#keys.members, WITHIN);
    this.#unreadable.retain(this.#keys.members, entries);
    const own = this.#keys.member(this.#self.id);
    const members: ClusterMember[] = [];
    for (const entry of entries) {
      const member = this.#unreadable.read(CLUSTER_RECORDS.member, entry, true);
      if (member !== null) members.push(member);
      else if (entry.key === own) void this.announce({}).catch(() => {});
    }
    return members;
  }

  /**
   * Writes the key of this node, and registers the node. Replaces the key of an earlier process of the same
   * node. Returns null on success, and a text with the reason if another node has the id or this node was
   * removed from the cluster.
   */
  async #take(lease: Lease): Promise<string | null> {
    const { id, identity } = this.#self;
    const key = this.#keys.member(id);
    const registered = this.#keys.inEtcd(nodeKey(id));
    const reads = [key, registered, this.#keys.inEtcd(removedKey(identity))];
    const { found } = await this.#client.transact(
      { when: [], apply: reads.map((read): Operation => ({ type: 'get', key: read })) },
      WITHIN,
    );
    const [entry, known, removal] = found.map(([first]) => first);
    if (removal !== undefined) {
      const { value } = RECORDS.removedNode.reading(removedKey(identity), removal.value);
      const removed = value === undefined ? 'this node was removed' : `${value.by} removed this node`;
      const when = value === undefined ? '' : ` at ${value.at}`;
      return `${removed} from the cluster${when}; it needs an empty data folder to join again`;
    }
    if (entry !== undefined) {
      const other = this.#unreadable.read(CLUSTER_RECORDS.member, entry, true);
      if (other === null && entry.lease !== 0n)
        return `the key ${key} in etcd cannot be read, so that another node can have the id ${id}`;
      if (other !== null && other.identity !== identity)
        return `the node at ${other.address} has the id ${other.id} since ${other.since}; each node needs an id of its own`;
    }
    const before = known === undefined ? null : this.#unreadable.read(CLUSTER_RECORDS.node, known);
    this.#joinedAt = before?.identity === identity ? before.since : this.#self.since;
    const registration = this.#registration();
    const isSame = known !== undefined && Buffer.compare(known.value, registration) === 0;
    const { succeeded, revision } = await this.#client.transact(
      {
        when: [
          { key, modRevision: entry?.modRevision ?? 0n },
          { key: registered, modRevision: known?.modRevision ?? 0n },
        ],
        apply: [
          { type: 'put', key, value: encodeJson(this.#self), lease: lease.id },
          ...(isSame ? [] : [{ type: 'put' as const, key: registered, value: registration }]),
        ],
      },
      WITHIN,
    );
    if (!succeeded) return `another node takes the id ${id}`;
    this.#createRevision = entry?.createRevision ?? revision;
    return null;
  }
}
