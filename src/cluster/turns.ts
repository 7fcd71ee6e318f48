import { filter, firstValueFrom, map, merge, type Observable } from 'rxjs';
import type { PolicyProposal } from '#bus/bus-messages.js';
import { decodeJson, encodeJson } from '#store/json-value.js';
import { StoreError } from '#store/store-error.js';
import type { PolicyPlan } from '#store/store-types.js';
import type { EtcdClient } from './etcd/etcd-client.js';
import { EtcdError } from './etcd/etcd-error.js';
import type { Condition, KeyRange, KeyValue, Operation, TransactionResult } from './etcd/etcd-types.js';
import type { Lease } from './etcd/lease.js';
import type { ClusterKeys } from './keys.js';
import type { Replica } from './replica.js';
import { failureBeforeCommit } from './store-failure.js';

const WITHIN = { withinMs: 3_000 };

/** A place in the order of the policy writes of all nodes. The oldest turn writes. */
export type Turn = {
  readonly id: string;
  readonly node: string;
  /** The write that the node proposes; null before its rehearsal. */
  readonly proposal: PolicyProposal | null;
  readonly entry: KeyValue;
};

type Proposal = Omit<PolicyProposal, 'id' | 'node'>;
type Found = TransactionResult['found'];

/** The value of a turn in etcd. */
type TurnValue = { readonly node: string; readonly proposal?: Proposal };

/**
 * A turn that this node may take together with its proposal: no turn existed when the write began. `when`: no
 * turn exists, and no policy was written since the write began.
 */
export type Claim = {
  readonly id: string;
  readonly node: string;
  readonly lease: bigint;
  readonly when: readonly Condition[];
};

/**
 * The turns of a cluster: policy writes of all nodes run one after the other. A turn is a key on the lease of
 * its node, so that it ends if the node dies or is frozen. A commit has the condition that its turn exists.
 */
export class Turns {
  readonly #client: EtcdClient;
  readonly #keys: ClusterKeys;
  readonly #replica: Replica;
  readonly #node: string;
  #own: Turn | Claim | null = null;
  /** Whether the last write of this node lost its turn or claim. The next write then waits for its turn. */
  #mustWait = false;
  /** The lease of the last turn that this node asked for. */
  #lease: bigint | null = null;
  /** The ids of the turns that this node waits for, has or removes. */
  readonly #known = new Set<string>();
  /** The plan whose bodies etcd has since the turn of this node; null without a proposal. */
  proposed: PolicyPlan | null = null;

  constructor(client: EtcdClient, keys: ClusterKeys, replica: Replica, node: string) {
    this.#client = client;
    this.#keys = keys;
    this.#replica = replica;
    this.#node = node;
    replica.live.subscribe((live) => this.#removeLost(live));
  }

  /** All turns, the oldest first. */
  get all(): Observable<readonly Turn[]> {
    return this.#replica.live.pipe(map((live) => this.#turnsIn(live)));
  }

  find(id: string): Turn | null {
    return this.#turnsIn(this.#replica.present).find((turn) => turn.id === id) ?? null;
  }

  /** The turn that this node has or may claim; null if another node writes, or none. */
  get own(): Turn | Claim | null {
    return this.#own;
  }

  /**
   * Waits until it is the turn of this node. The replica then contains all commits before the turn. If no
   * turn exists, returns at once with a claim: the proposal or the commit takes the turn, unless another node
   * is faster. Begins again if the leader ends all turns. Throws a `StoreError` if etcd cannot be reached,
   * and the reason of `signal` after its abort.
   */
  async take(lease: Lease, signal: AbortSignal): Promise<void> {
    this.#lease = lease.id;
    this.proposed = null;
    const isFree = this.#turnsIn(this.#replica.present).length === 0;
    if (isFree && !this.#mustWait) {
      this.#own = { id: crypto.randomUUID(), node: this.#node, lease: lease.id, when: this.#unchanged() };
      return;
    }
    for (;;) {
      const id = crypto.randomUUID();
      this.#known.add(id);
      try {
        const { revision } = await this.#put(this.#keys.turn(id), lease);
        const turn = await this.#first(id, revision, lease, signal);
        if (turn === null) {
          this.#known.delete(id);
          continue;
        }
        this.#own = turn;
        this.#mustWait = false;
        return;
      } catch (failure) {
        void this.#remove(id);
        throw failureBeforeCommit('wait for the turn of this node', failure);
      }
    }
  }

  /** Returns the turn of this node. Takes it first, if it is only claimed. */
  async takenTurn(own: Turn | Claim): Promise<Turn> {
    return 'when' in own ? (await this.#takeClaimed(own)).turn : own;
  }

  /**
   * Reads whether this node can still take the turn that it claims, so that it has seen the newest policies.
   * Throws `revision_conflict` if it cannot. Has no effect if this node has taken its turn.
   */
  async confirm(): Promise<void> {
    const own = this.#own;
    if (own === null || !('when' in own)) return;
    const apply = [{ type: 'get' as const, key: this.#keys.meta, keysOnly: true }];
    const { succeeded } = await this.#client.transact({ when: own.when, apply }, WITHIN);
    if (!succeeded) throw this.#claimLost();
  }

  /**
   * Puts a proposal into the turn of this node, in one transaction with `more`. Returns what each `get_range`
   * in `more` found. Throws `revision_conflict` if the turn has ended, or cannot be claimed any more.
   */
  async propose(own: Turn | Claim, proposal: Proposal, more: readonly Operation[]): Promise<Found> {
    if ('when' in own) return (await this.#takeClaimed(own, proposal, more)).found;
    const { key, createRevision, lease } = own.entry;
    const value = encodeJson({ node: this.#node, proposal } satisfies TurnValue);
    const { succeeded, found } = await this.#client.transact(
      { when: [{ key, createRevision }], apply: [...more, { type: 'put', key, value, lease }] },
      WITHIN,
    );
    if (!succeeded) throw new StoreError('revision_conflict', 'the turn of this node has ended; nothing was changed');
    return found;
  }

  async #takeClaimed(
    { id, node, lease, when }: Claim,
    proposal?: Proposal,
    more: readonly Operation[] = [],
  ): Promise<{ readonly turn: Turn; readonly found: Found }> {
    const key = this.#keys.turn(id);
    const value = encodeJson({ node, ...(proposal && { proposal }) } satisfies TurnValue);
    this.#known.add(id);
    const put: Operation = { type: 'put', key, value, lease };
    const { succeeded, revision, found } = await this.#client.transact({ when, apply: [...more, put] }, WITHIN);
    if (!succeeded) {
      this.#known.delete(id);
      throw this.#claimLost();
    }
    const entry: KeyValue = { key, value, createRevision: revision, modRevision: revision, lease };
    const turn: Turn = { id, node, proposal: proposal === undefined ? null : { ...proposal, id, node }, entry };
    if (this.#own?.id === id) this.#own = turn;
    return { turn, found };
  }

  #claimLost(): StoreError {
    this.#mustWait = true;
    return new StoreError('revision_conflict', 'another node writes a policy; nothing was changed');
  }

  /** Conditions that hold until any node takes a turn or writes a policy. */
  #unchanged(): readonly Condition[] {
    return [
      { key: this.#keys.meta, modRevision: this.#replica.metaRevision },
      { key: this.#keys.inEtcd('head'), modRevision: this.#replica.revisionOf('head') },
      { empty: this.#keys.turns },
    ];
  }

  /** Ends the turn of this node, if it has taken one and has not committed. */
  release(): void {
    const own = this.#own;
    this.#own = null;
    if (own === null || !this.#known.has(own.id)) return;
    this.#mustWait = true;
    void this.#remove(own.id, this.#keys.votes(own));
  }

  /** Forgets the turn of this node, which a commit has ended. */
  spend(): void {
    if (this.#own !== null) this.#known.delete(this.#own.id);
    this.#own = null;
  }

  #put(key: string, lease: Lease): Promise<{ readonly revision: bigint }> {
    const value = encodeJson({ node: this.#node });
    const old = this.#turnsIn(this.#replica.present).filter(({ node }) => node === this.#node);
    const apply = old.map(({ entry }) => ({ type: 'delete' as const, key: entry.key }));
    return this.#client.transact({ when: [], apply: [...apply, { type: 'put', key, value, lease: lease.id }] }, WITHIN);
  }

  /** Waits until a turn is the first. Returns null if the turn has ended before. */
  async #first(id: string, revision: bigint, lease: Lease, signal: AbortSignal): Promise<Turn | null> {
    const lost = (reason: string) => (): never => {
      throw new EtcdError('unavailable', reason);
    };
    const first = this.#replica.live.pipe(
      filter(() => this.#replica.revision >= revision),
      map((live) => this.#turnsIn(live)),
      filter((turns) => turns[0]?.id === id || !turns.some((turn) => turn.id === id)),
      map(([turn]) => (turn?.id === id ? turn : null)),
    );
    const ended = merge(
      lease.ended.pipe(map((reason) => lost(reason)())),
      this.#replica.connected.pipe(
        filter((connected) => !connected),
        map(lost('the connection to etcd was lost')),
      ),
    );
    const aborted = abortOf(signal);
    try {
      return await Promise.race([firstValueFrom(merge(ended, first)), aborted.promise]);
    } finally {
      aborted.forget();
    }
  }

  /**
   * Removes turns that this node does not wait for. etcd may apply the put of a turn after the node has given
   * up the turn and removed its key. Such a turn would stop the writes of all nodes, as its lease lives on.
   */
  #removeLost(live: ReadonlyMap<string, KeyValue>): void {
    for (const { key, lease } of live.values()) {
      const id = this.#keys.turnId(key);
      if (id === null || lease !== this.#lease || this.#known.has(id)) continue;
      this.#known.add(id);
      void this.#remove(id);
    }
  }

  /** Removes a turn, and the votes on its proposal. */
  async #remove(id: string, votes?: KeyRange): Promise<void> {
    const ranges = votes === undefined ? [] : [{ type: 'delete_range' as const, range: votes }];
    const key = this.#keys.turn(id);
    try {
      await this.#client.transact({ when: [], apply: [{ type: 'delete', key }, ...ranges] }, WITHIN);
    } catch (failure) {
      // `#removeLost` or the next turn of this node removes the key, or its lease ends.
      if (!(failure instanceof EtcdError)) throw failure;
    } finally {
      this.#known.delete(id);
    }
  }

  #turnsIn(live: ReadonlyMap<string, KeyValue>): readonly Turn[] {
    const turns: Turn[] = [];
    for (const entry of live.values()) {
      const id = this.#keys.turnId(entry.key);
      if (id === null) continue;
      const { node, proposal } = decodeJson<TurnValue>(entry.value);
      turns.push({ id, node, proposal: proposal === undefined ? null : { ...proposal, id, node }, entry });
    }
    return turns.sort((a, b) => Number(a.entry.createRevision - b.entry.createRevision));
  }
}

function abortOf(signal: AbortSignal): { readonly promise: Promise<never>; forget(): void } {
  let abort = (): void => {};
  const promise = new Promise<never>((_, reject) => {
    abort = () => reject(signal.reason as Error);
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort);
  });
  promise.catch(() => {});
  return { promise, forget: () => signal.removeEventListener('abort', abort) };
}
