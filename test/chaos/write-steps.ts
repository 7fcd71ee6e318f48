import {
  defer,
  filter,
  firstValueFrom,
  from,
  map,
  mergeMap,
  type Observable,
  of,
  retry,
  Subject,
  type Subscription,
  switchMap,
  timeout,
} from 'rxjs';
import type { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { type KeyChange, type KeyValue, under } from '#cluster/etcd/etcd-types.js';
import { ClusterKeys } from '#cluster/keys.js';
import { CLUSTER_RECORDS } from '#cluster/records.js';
import type { PolicyHead } from '#store/policies/policy-row.js';
import { RECORDS } from '#store/records/records.js';

/**
 * The steps of a policy write in a cluster, as etcd shows them: the lock entry of the writer is the oldest,
 * the entry has a proposal, a member has voted, the head has moved, the writer enforces the policy.
 */
export const WRITE_STEPS = ['lock_taken', 'proposed', 'voted', 'committed', 'flipped'] as const;
export type WriteStep = (typeof WRITE_STEPS)[number];

/** A step that `node` has made while it holds the write lock. `generation` is null before the commit. */
export type SeenStep = {
  readonly step: WriteStep;
  readonly node: string;
  readonly lock: string;
  readonly generation: number | null;
};

const PREFIX = '/weir';
const ALL = under(`${PREFIX}/`);
const VOTE = `${PREFIX}/vote/`;
const RETRY_MS = 50;
const keys = new ClusterKeys(PREFIX);

type LockEntry = { readonly id: string; readonly node: string; readonly createRevision: bigint; isProposed: boolean };

/** Derives the steps of all writers from the changes of all keys in etcd. */
export class StepTracker {
  readonly #entries = new Map<string, LockEntry>();
  /** The lock entry and the generation of the last commit of each node. */
  readonly #commits = new Map<string, { readonly lock: string; readonly generation: number }>();
  #first: string | null = null;

  /** `entries` are all keys of etcd before the first change. */
  constructor(entries: readonly KeyValue[]) {
    for (const entry of entries) this.#put(entry);
    this.#first = this.#oldest()?.id ?? null;
  }

  /** Takes the changes of one or more transactions, in their order. Returns the steps that they show. */
  take(changes: readonly KeyChange[]): SeenStep[] {
    const steps: SeenStep[] = [];
    for (let from = 0, to = 0; from < changes.length; from = to) {
      const revision = revisionOf(changes[from]);
      while (to < changes.length && revisionOf(changes[to]) === revision) to += 1;
      steps.push(...this.#takeTransaction(changes.slice(from, to)));
    }
    return steps;
  }

  #takeTransaction(changes: readonly KeyChange[]): SeenStep[] {
    const steps: SeenStep[] = [];
    let head: PolicyHead | null = null;
    let ended: LockEntry | null = null;
    for (const change of changes) {
      if (change.type === 'put') {
        const step = this.#put(change.entry);
        if (step !== null) steps.push(step);
        if (change.entry.key === keys.inEtcd('head')) head = RECORDS.head.read('head', change.entry.value);
        continue;
      }
      const id = keys.lockId(change.key);
      const lock = id === null ? undefined : this.#entries.get(id);
      if (lock === undefined) continue;
      this.#entries.delete(lock.id);
      ended = lock;
    }
    if (head !== null && ended !== null) {
      const { generation } = head;
      this.#commits.set(ended.node, { lock: ended.id, generation });
      steps.push({ step: 'committed', node: ended.node, lock: ended.id, generation });
    }
    const first = this.#oldest();
    if (first !== null && first.id !== this.#first)
      steps.push({ step: 'lock_taken', node: first.node, lock: first.id, generation: null });
    this.#first = first?.id ?? null;
    return steps;
  }

  #put({ key, value, createRevision }: KeyValue): SeenStep | null {
    const id = keys.lockId(key);
    if (id !== null) {
      const { node, proposal } = CLUSTER_RECORDS.lockEntry.read(keys.nameOf(key), value);
      const wasProposed = this.#entries.get(id)?.isProposed === true;
      const isProposed = proposal !== undefined;
      this.#entries.set(id, { id, node, createRevision, isProposed });
      return isProposed && !wasProposed ? { step: 'proposed', node, lock: id, generation: null } : null;
    }
    if (key.startsWith(VOTE)) {
      const [node = '', lock = ''] = key.slice(VOTE.length).split('/');
      const { staged } = CLUSTER_RECORDS.vote.read(keys.nameOf(key), value);
      return staged ? { step: 'voted', node, lock, generation: null } : null;
    }
    if (key.startsWith(keys.members.from)) {
      const { id: node, generation } = CLUSTER_RECORDS.member.read(keys.nameOf(key), value);
      const commit = this.#commits.get(node);
      if (commit?.generation !== generation) return null;
      this.#commits.delete(node);
      return { step: 'flipped', node, ...commit };
    }
    return null;
  }

  #oldest(): LockEntry | null {
    let oldest: LockEntry | null = null;
    for (const lock of this.#entries.values())
      if (oldest === null || lock.createRevision < oldest.createRevision) oldest = lock;
    return oldest;
  }
}

/**
 * Watches etcd for the steps of the writers. After a fault of etcd, steps that happened meanwhile are
 * missing.
 */
export class WriteSteps {
  readonly #steps = new Subject<SeenStep>();
  readonly #watching: Subscription;
  /** The generation that the write of each lock entry has committed. */
  readonly #committed = new Map<string, number>();

  constructor(client: EtcdClient) {
    this.#watching = follow(client).subscribe((step) => {
      if (step.step === 'committed' && step.generation !== null) this.#committed.set(step.lock, step.generation);
      this.#steps.next(step);
    });
  }

  /**
   * Calls `act` at once when a writer makes the step, and returns the step. Returns null if no writer makes
   * the step within the time. `node` is the only writer that counts; null for any writer.
   */
  async at(
    step: WriteStep,
    node: string | null,
    withinMs: number,
    act: (seen: SeenStep) => void,
  ): Promise<SeenStep | null> {
    const seen = this.#steps.pipe(
      filter((each) => each.step === step && (node === null || each.node === node)),
      map((each): SeenStep => {
        act(each);
        return each;
      }),
      timeout({ first: withinMs, with: () => of(null) }),
    );
    return firstValueFrom(seen, { defaultValue: null });
  }

  /** Returns the generation that the write of a lock entry has committed; null if it has committed none. */
  committedBy(lock: string): number | null {
    return this.#committed.get(lock) ?? null;
  }

  close(): void {
    this.#watching.unsubscribe();
    this.#steps.complete();
  }
}

function follow(client: EtcdClient): Observable<SeenStep> {
  return defer(() => from(client.range(ALL))).pipe(
    switchMap(({ entries, revision }) => {
      const tracker = new StepTracker(entries);
      return client.watch(ALL, revision + 1n).pipe(mergeMap(({ changes }) => tracker.take(changes)));
    }),
    retry({ delay: RETRY_MS }),
  );
}

function revisionOf(change: KeyChange | undefined): bigint | null {
  if (change === undefined) return null;
  return change.type === 'put' ? change.entry.modRevision : change.modRevision;
}
