import { createHash } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import {
  auditTime,
  BehaviorSubject,
  defer,
  EMPTY,
  exhaustMap,
  filter,
  firstValueFrom,
  ignoreElements,
  map,
  merge,
  type Observable,
  of,
  Subject,
  type Subscription,
  switchMap,
  tap,
  throttleTime,
  timeout,
  timer,
} from 'rxjs';
import type { PolicyProposal } from '#bus/bus-messages.js';
import { Election } from '#cluster/members/election.js';
import { type MemberEvent, Membership } from '#cluster/members/membership.js';
import { type NodeRemoval, nodeKey, registeredNodes, removedKey, removeNode } from '#cluster/members/node-registry.js';
import { initialize, type Keep, type RecoveryPorts, recover } from '#cluster/replica/recovery.js';
import { Replica, type ReplicaEvent } from '#cluster/replica/replica.js';
import { ReplicaStore } from '#cluster/replica/replica-store.js';
import { EtcdSharedStore } from '#cluster/replica/shared-store.js';
import { collect } from '#cluster/writes/collector.js';
import { Commits } from '#cluster/writes/commits.js';
import { proposedBodies, withBodies } from '#cluster/writes/proposed-bodies.js';
import { type Rehearsal, Rehearsals } from '#cluster/writes/rehearsals.js';
import { WriteLock } from '#cluster/writes/write-lock.js';
import type { Refusal } from '#contracts/refusal.js';
import { Bodies, isBodyValue } from '#store/policies/bodies.js';
import type { HistoryBounds } from '#store/policies/history-bounds.js';
import { encodeJson } from '#store/records/json-value.js';
import type { Seal } from '#store/settings/seal.js';
import { changesOf } from '#store/shared-changes.js';
import { StoreError } from '#store/store-error.js';
import type { KvStore, PolicyPlan, SharedStore } from '#store/store-types.js';
import { Contradiction, type ContradictionCode } from './contradiction.js';
import { EtcdClient } from './etcd/etcd-client.js';
import { EtcdError } from './etcd/etcd-error.js';
import type { EtcdOptions } from './etcd/etcd-types.js';
import { ClusterKeys, isBody } from './keys.js';
import { bodiesOf, fetchBodies, hasSmallBodies } from './parts.js';
import { type ClusterAccess, encodeJoinToken, JoinTokens } from './peers/join-tokens.js';
import { type NextIdentity, PeerCertificate } from './peers/peer-certificate.js';
import { PeerClient } from './peers/peer-client.js';
import { Peers } from './peers/peers.js';
import type { ClusterMember, RegisteredNode } from './records.js';
import { NODE_RECORDS } from './records.js';
import { Rollouts } from './rollout/rollouts.js';
import { failureBeforeCommit } from './store-failure.js';
import { UnreadableValues } from './unreadable-values.js';

export type ClusterOptions = {
  readonly etcd: EtcdOptions;
  /** The prefix of all keys in etcd, for example `/weir`. */
  readonly prefix: string;
  readonly self: Pick<ClusterMember, 'id' | 'address' | 'version' | 'ipv6'>;
  /** Returns the certificate with which this node authenticates to other nodes. */
  readonly identity: NextIdentity;
  /** Returns the addresses and credentials that another node needs to join the cluster. */
  readonly access: () => ClusterAccess;
  /**
   * Keys of the local store that this node does not share, for example the intercept CA without a sealing
   * key.
   */
  readonly local: readonly string[];
  /** Encrypts the tokens of Kubernetes integrations; null without `cluster.seal_key_file`. */
  readonly seal: Seal | null;
  /** The bounds of the history while this node leads. */
  readonly history?: HistoryBounds;
};

/**
 * The time in milliseconds before the first garbage collection in etcd by a new leader, and the interval
 * after it.
 */
const FIRST_COLLECTION_MS = 60_000;
const COLLECTION_MS = 3_600_000;
/**
 * The delay in milliseconds between the activation of a policy on this node and the write of its generation
 * to etcd. Without the delay, this write would delay the activation on other nodes.
 */
const ANNOUNCE_AFTER_MS = 50;
/** The minimum time in milliseconds between two writes of the generation to etcd. */
const ANNOUNCE_PAUSE_MS = 500;
/**
 * The maximum time in milliseconds for which a policy write waits until this node is a cluster member again.
 */
const JOIN_MS = 2_000;
/** The maximum time in milliseconds for which a request for the cluster state waits for etcd. */
const LIST_MS = 500;

type Span = { readonly from: number; readonly to: number };

/** The state of the cluster from the view of this node. */
export type ClusterStatus = {
  /** The id of the cluster; null before `weir cluster init`. */
  readonly clusterId: string | null;
  readonly self: string;
  readonly leader: string | null;
  /** The members sorted by id; null if etcd cannot be reached. */
  readonly members: readonly ClusterMember[] | null;
  /** The revision of etcd up to which the local copy of the shared keys (replica) is complete. */
  readonly revision: bigint;
  /** The revision of the newest change of the shared keys that this node has received. */
  readonly seen: bigint;
  readonly connected: boolean;
  /** Why the content of etcd contradicts what this node has applied; null without a contradiction. */
  readonly contradiction: ContradictionCode | null;
  /** Whether the database of etcd is full, so that etcd refuses writes. */
  readonly isFull: boolean;
  /** The values in etcd that this node ignores, by key: each with the reason. */
  readonly unreadable: ReadonlyMap<string, string>;
};

/**
 * The part of this node in a cluster on etcd: its copy of the shared keys (replica), its membership, and its
 * writes.
 */
export class Cluster {
  readonly store: SharedStore;
  readonly commits: Commits;
  readonly rollouts: Rollouts;
  /** The local store of the node, which contains the replica. */
  readonly kv: ReplicaStore;
  readonly unreadable: UnreadableValues;
  readonly #ports: RecoveryPorts;
  readonly #client: EtcdClient;
  readonly #keys: ClusterKeys;
  readonly #replica: Replica;
  readonly #writeLock: WriteLock;
  readonly #membership: Membership;
  readonly #election: Election;
  readonly #rehearsals: Rehearsals;
  readonly #self: string;
  readonly peers: Peers;
  readonly certificate: PeerCertificate;
  readonly #address: string;
  readonly #joins = new JoinTokens();
  #identityRead: Promise<string> | undefined;
  readonly #access: ClusterOptions['access'];
  readonly #history: HistoryBounds | undefined;
  readonly #contradiction = new BehaviorSubject<ContradictionCode | null>(null);
  #members: readonly ClusterMember[] | null = null;
  readonly #enforced = new Subject<number>();

  constructor(disk: KvStore, { etcd, prefix, self, identity, access, local, seal, history }: ClusterOptions) {
    const kv = new ReplicaStore(disk);
    const client = new EtcdClient({ ...etcd, endpoints: rotated(etcd.endpoints, self.id) });
    const keys = new ClusterKeys(prefix, local);
    const unreadable = new UnreadableValues(keys);
    const replica = new Replica(client, kv, keys, unreadable);
    const certificate = new PeerCertificate(identity);
    const member = {
      ...self,
      boot: crypto.randomUUID(),
      since: new Date().toISOString(),
      generation: 0,
      certificates: [certificate.fingerprint],
    };
    const membership = new Membership(client, keys, member, () => this.#identity(), unreadable);
    const writeLock = new WriteLock(client, keys, replica, self.id);
    this.kv = kv;
    this.unreadable = unreadable;
    this.#ports = { client, keys, kv, replica, seal };
    this.#client = client;
    this.#keys = keys;
    this.#replica = replica;
    this.#membership = membership;
    this.#writeLock = writeLock;
    this.#election = new Election(client, keys, replica, membership, self.id);
    this.#rehearsals = new Rehearsals(client, keys, writeLock, membership, self.id);
    this.#self = self.id;
    this.#address = self.address;
    this.#access = access;
    this.#history = history;
    this.certificate = certificate;
    const peerClient = new PeerClient(() => certificate.present);
    certificate.identity.subscribe(() => peerClient.renew());
    this.peers = new Peers({
      self: self.id,
      client: peerClient,
      members: async () => {
        if (!replica.isConnected) throw new EtcdError('unavailable', 'this node does not receive the changes of etcd');
        return membership.list();
      },
      registered: () => registeredNodes(kv),
    });
    this.store = new EtcdSharedStore(client, keys, kv, replica, async () => {
      const removal = await kv.get(removedKey(await this.#identity()));
      return removal !== null;
    });
    const { node, ...ports } = { node: self.id, client, keys, kv, replica, writeLock, election: this.#election };
    this.commits = new Commits(node, ports);
    this.rollouts = new Rollouts(node, { ...ports, membership });
    this.#enforced
      .pipe(auditTime(ANNOUNCE_AFTER_MS), throttleTime(ANNOUNCE_PAUSE_MS, undefined, { leading: true, trailing: true }))
      .subscribe((generation) => void membership.announce({ generation }).catch(() => {}));
  }

  get id(): string {
    return this.#self;
  }

  /**
   * Emits the reason why the replica (local copy of the keys in etcd) cannot be stored on the disk and is
   * only in memory; null if it is stored.
   */
  get diskFault(): Observable<string | null> {
    return this.kv.fault;
  }

  /** Emits whether etcd has refused the last write of this node because its database is full. */
  get full(): Observable<boolean> {
    return this.#client.full;
  }

  /** Keeps the replica equal to etcd while there is a subscriber, see `Replica.follow`. */
  follow(): Observable<ReplicaEvent> {
    return this.#replica.follow().pipe(
      tap({
        next: ({ type }) => type === 'replica.caught_up' && this.#contradiction.next(null),
        error: (failure) => {
          const isShown = failure instanceof Contradiction && failure.code !== 'uninitialized';
          if (isShown && failure.code !== this.#contradiction.value) this.#contradiction.next(failure.code);
        },
      }),
    );
  }

  /** Emits the code of the contradiction between etcd and this node, and null when it has ended. */
  get contradiction(): Observable<ContradictionCode | null> {
    return this.#contradiction;
  }

  /** Keeps this node a member while there is a subscriber, see `Membership.join`. */
  join(): Observable<MemberEvent> {
    return merge(
      this.#membership.join(),
      this.#removed(),
      this.certificate.renewals(this.#membership, () => this.#joins.isAnyValid),
      this.#registrations(),
    );
  }

  /** Registers this node again if its registration in etcd cannot be read. Emits nothing. */
  #registrations(): Observable<never> {
    const key = this.#keys.inEtcd(nodeKey(this.#self));
    return this.unreadable.changes.pipe(
      filter((change) => change.key === key && change.reason !== null),
      exhaustMap(() => this.#membership.announce({ certificates: [this.certificate.fingerprint] }).catch(() => {})),
      ignoreElements(),
    );
  }

  /** Returns the random id of the data folder. The first call reads or creates it. */
  #identity(): Promise<string> {
    this.#identityRead ??= identityIn(this.kv);
    return this.#identityRead;
  }

  /** Returns an observable without values. It fails when this node is removed from the cluster. */
  #removed(): Observable<never> {
    return defer(() => this.#identity()).pipe(
      switchMap((identity) => changesOf(this.store, (key) => key === removedKey(identity))),
      filter(({ type }) => type === 'put'),
      map(() => {
        throw new EtcdError('lease_expired', 'this node was removed from the cluster');
      }),
    );
  }

  /** Returns all nodes that have joined the cluster, also those that are not connected, sorted by id. */
  nodes(): Promise<readonly RegisteredNode[]> {
    return registeredNodes(this.kv);
  }

  remove(removal: NodeRemoval): Promise<void> {
    return removeNode({ client: this.#client, keys: this.#keys, kv: this.kv }, removal);
  }

  /** Issues a token with which one other node can join the cluster within one hour. */
  issueJoinToken(): { readonly token: string; readonly expiresAt: Date } {
    const { secret, expiresAt } = this.#joins.issue();
    const { fingerprint } = this.certificate;
    return { token: encodeJoinToken({ address: this.#address, fingerprint, secret }), expiresAt };
  }

  /**
   * Returns the addresses and credentials that a node needs to join the cluster, and makes the join token
   * invalid. Null if no valid join token has the secret.
   */
  async redeemJoinToken(secret: string): Promise<ClusterAccess | null> {
    if (!this.#joins.isValid(secret)) return null;
    const access = this.#access();
    return this.#joins.redeem(secret) ? access : null;
  }

  /**
   * Takes part in the election, and performs the tasks of the leader while this node leads, until the
   * subscription ends.
   */
  runForLeader(): Subscription {
    const subscription = this.#election.run();
    const collecting = this.leader
      .pipe(
        switchMap((leader) => (leader === this.#self ? timer(FIRST_COLLECTION_MS, COLLECTION_MS) : EMPTY)),
        exhaustMap(() => this.#collect()),
      )
      .subscribe();
    subscription.add(collecting);
    return subscription;
  }

  /** Removes data that no policy needs from etcd. After a failure, the next collection continues. */
  async #collect(): Promise<void> {
    const { fence } = this.#election;
    if (fence === null) return;
    try {
      await collect(this.#client, this.#keys, fence, this.#history);
    } catch (failure) {
      if (!(failure instanceof EtcdError)) throw failure;
    }
  }

  /** Emits the id of the node that leads, or null. */
  get leader(): Observable<string | null> {
    return this.#election.leader;
  }

  /**
   * Waits until this node holds the write lock of the cluster. Throws a `StoreError` if etcd cannot be
   * reached, if the cluster does not exist yet, and during a contradiction between etcd and this node.
   */
  async takeWriteLock(signal: AbortSignal): Promise<void> {
    if (!this.#replica.isConnected)
      throw new StoreError(
        'store_unavailable',
        'this node does not receive the changes of etcd, see the check policy_replication',
      );
    await this.#writeLock.take(await this.#membership.leaseWithin(JOIN_MS), signal);
  }

  /**
   * Throws `revision_conflict` if this node has lost the write lock, so that another node may have written a
   * policy.
   */
  async confirmWriteLock(): Promise<void> {
    try {
      await this.#writeLock.confirm();
    } catch (failure) {
      throw failureBeforeCommit('compare the policies of this node with etcd', failure);
    }
  }

  /** The etcd revision of the newest policy commit in the replica. */
  get headRevision(): bigint {
    return this.#replica.revisionOf('head');
  }

  releaseWriteLock(): void {
    this.#writeLock.release();
  }

  /** Emits each policy write that another node proposes, and the id of each proposal that has ended. */
  get proposals(): Observable<PolicyProposal | { readonly ended: string }> {
    return this.#rehearsals.proposals;
  }

  /** Proposes a write to the other nodes, see `Rehearsals.rehearse`. */
  async rehearse(plan: PolicyPlan, proposal: Omit<PolicyProposal, 'id' | 'node'>): Promise<Rehearsal> {
    if (hasSmallBodies(plan)) this.#replica.offer(proposal.bodySha256, bodiesOf(plan));
    // Store the policy text on this node while the other members vote.
    const [rehearsal] = await Promise.all([this.#rehearsals.rehearse(plan, proposal), this.commits.keep(plan)]);
    return rehearsal;
  }

  vote(proposal: PolicyProposal, staged: boolean, refusal: Refusal | null): void {
    this.#rehearsals.vote(proposal, staged, refusal);
  }

  /**
   * Returns the text of a proposed policy, or only its bytes in `span`. Throws `store_damaged` if etcd lacks
   * a part of the text.
   */
  async bodyOf({ id, bodySha256, bodies = {} }: PolicyProposal, span?: Span): Promise<Uint8Array> {
    const enclosed = Object.entries(bodies).map(([key, value]) => ({
      type: 'put' as const,
      key,
      value: Buffer.from(value, 'base64'),
    }));
    for (const { key, value } of enclosed)
      if (!isBody(key) || !(await isBodyValue(key, value)))
        throw new StoreError('store_damaged', `read a proposed policy: the content of ${key} does not match its hash`);
    this.#replica.offer(bodySha256, enclosed);
    const fetched = await fetchBodies(this.#client, this.#keys, withBodies(this.kv, enclosed), [bodySha256]);
    if (fetched.length > 0) await this.kv.batch(proposedBodies(id, fetched), { sync: false });
    const stored = new Bodies(withBodies(this.kv, enclosed));
    return span === undefined ? stored.read(bodySha256) : stored.slice(bodySha256, span.from, span.to);
  }

  /** Schedules a write to etcd of the generation that this node enforces. */
  announce(generation: number): void {
    this.#enforced.next(generation);
  }

  /** Creates the cluster in etcd. Throws `revision_conflict` if there is a cluster below the prefix. */
  init(dryRun: boolean): Promise<void> {
    return initialize(this.#ports, dryRun);
  }

  /**
   * Ends a contradiction between this node and etcd. `keep` is the side whose policies stay. The generation
   * rises above all generations of both sides, and above `atLeast`.
   */
  recover(keep: Keep, atLeast: number, dryRun: boolean): Promise<void> {
    return recover(this.#ports, { keep, atLeast, dryRun });
  }

  /** Waits at most `ms` milliseconds until the replica follows etcd. Returns whether it follows etcd then. */
  connectedWithin(ms: number): Promise<boolean> {
    return firstValueFrom(
      this.#replica.connected.pipe(
        filter((connected) => connected),
        timeout({ first: ms, with: () => of(false) }),
      ),
    );
  }

  async status(): Promise<ClusterStatus> {
    const members = this.#replica.isConnected ? await this.#listedMembers() : null;
    return {
      clusterId: this.#replica.clusterId,
      self: this.#self,
      leader: await firstValueFrom(this.leader),
      members,
      revision: this.#replica.revision,
      seen: this.#replica.seen,
      connected: this.#replica.isConnected,
      contradiction: this.#contradiction.value,
      isFull: await firstValueFrom(this.full),
      unreadable: this.unreadable.reasons,
    };
  }

  /** Returns the members. If etcd does not respond within `LIST_MS`, returns the members of the last read. */
  async #listedMembers(): Promise<readonly ClusterMember[] | null> {
    const reading = this.#membership.list().then((members) => {
      this.#members = members;
    });
    await Promise.race([reading.catch(() => {}), pause(LIST_MS)]);
    return this.#members;
  }
}

/**
 * Returns the endpoints in the order in which a node tries them. The id of the node selects the first one, so
 * that all members of etcd serve about the same number of nodes.
 */
function rotated(endpoints: readonly string[], node: string): readonly string[] {
  const first = createHash('sha256').update(node).digest().readUInt32BE() % endpoints.length;
  return [...endpoints.slice(first), ...endpoints.slice(0, first)];
}

const IDENTITY = NODE_RECORDS.identity.prefix;

/** Returns the random identity of the node's data folder. Creates it if there is none. */
async function identityIn(kv: KvStore): Promise<string> {
  const known = await kv.get(IDENTITY);
  if (known !== null) return NODE_RECORDS.identity.read(IDENTITY, known);
  const made = crypto.randomUUID();
  await kv.put(IDENTITY, encodeJson(made), { sync: true });
  return made;
}
