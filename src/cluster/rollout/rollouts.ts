import { setTimeout as pause } from 'node:timers/promises';
import { exhaustMap, filter, map, type Observable, timer } from 'rxjs';
import type { Election } from '#cluster/members/election.js';
import type { Membership } from '#cluster/members/membership.js';
import type { Replica } from '#cluster/replica/replica.js';
import type { ChangeEnd, PendingChange } from '#contracts/policy/pending-change.js';
import { encodeJson } from '#store/records/json-value.js';
import { EtcdError } from '../etcd/etcd-error.js';
import type { Lease } from '../etcd/lease.js';
import type { ClusterData } from '../keys.js';
import { CLUSTER_RECORDS, type HealthReport } from '../records.js';
import { storeFailure } from '../store-failure.js';
import { FaultTracker, healthOf, type NodeHealth } from './rollout-health.js';

type Ports = ClusterData & {
  readonly replica: Replica;
  readonly membership: Membership;
  readonly election: Election;
};

/**
 * The interval in milliseconds at which the leader decides on a pending change, and at which a node checks
 * its own health.
 */
const PERIOD_MS = 1_000;
const CUT_OFF_MS = 15_000;
const WITHIN = { withinMs: 2_000 };

/**
 * Chooses the first nodes of a roll-out, reports and reads their health, and, on the leader, decides when a
 * pending change ends.
 */
export class Rollouts {
  readonly #node: string;
  readonly #ports: Ports;
  /**
   * The faults of the nodes during the last pending change. They are kept, so that a repeated call of
   * `decide` continues with them.
   */
  #tracker: { readonly change: string; readonly faults: FaultTracker } | null = null;

  constructor(node: string, ports: Ports) {
    this.#node = node;
    this.#ports = ports;
  }

  /**
   * Returns the nodes that enforce a roll-out of `share` percent first: this node and random other members.
   * Chooses at least one node and never all nodes.
   */
  async chooseNodes(share: number): Promise<readonly string[]> {
    const members = await this.#ports.membership.list().catch((failure: unknown) => {
      throw storeFailure('choose the first nodes of the roll-out', failure);
    });
    const others = members.map(({ id }) => id).filter((id) => id !== this.#node);
    const all = others.length + 1;
    const count = Math.min(Math.ceil((all * share) / 100), Math.max(all - 1, 1));
    return [this.#node, ...shuffled(others).slice(0, count - 1)].sort();
  }

  /**
   * Reports the health of this node to the leader, while there is a subscriber. `fault` returns a sentence,
   * or null if the node is healthy. etcd removes the report when the membership of this node ends. Emits when
   * this node has not been a member for `CUT_OFF_MS`: the leader then reverts the change, but this node
   * cannot read this from etcd.
   */
  report({ id }: PendingChange, fault: () => Promise<string | null>): Observable<void> {
    let reported = '';
    let memberAt = performance.now();
    return timer(0, PERIOD_MS).pipe(
      exhaustMap(async () => {
        const found = await fault();
        const { lease } = this.#ports.membership;
        if (lease !== null) memberAt = performance.now();
        const report = `${lease?.id} ${found}`;
        if (lease !== null && report !== reported && (await this.#write(id, lease, found))) reported = report;
        return performance.now() - memberAt >= CUT_OFF_MS;
      }),
      filter((isCutOff) => isCutOff),
      map(() => undefined),
    );
  }

  /** Writes the health report of this node to etcd. Returns whether etcd has stored it. */
  async #write(change: string, { id: lease }: Lease, fault: string | null): Promise<boolean> {
    const { client, keys } = this.#ports;
    const value = encodeJson({ fault } satisfies HealthReport);
    const put = { type: 'put' as const, key: keys.report(change, this.#node), value, lease };
    try {
      await client.transact({ when: [], apply: [put] }, WITHIN);
      return true;
    } catch (failure) {
      if (!(failure instanceof EtcdError)) throw failure;
      return false;
    }
  }

  /**
   * Returns the health of the nodes that enforce a roll-out first. Throws an `EtcdError` if etcd cannot be
   * reached.
   */
  async health({ id, terms }: PendingChange): Promise<readonly NodeHealth[]> {
    if (terms.kind !== 'rollout') return [];
    const { client, keys, membership } = this.#ports;
    const range = keys.reports(id);
    const [members, { entries }] = await Promise.all([membership.list(), client.range(range, WITHIN)]);
    const reports = new Map(
      entries.map(({ key, value }) => {
        const { value: report } = CLUSTER_RECORDS.report.reading(keys.nameOf(key), value);
        return [key.slice(range.from.length), report === undefined ? 'its report cannot be read' : report.fault];
      }),
    );
    return healthOf(terms.nodes, { members: members.map((member) => member.id), reports });
  }

  /**
   * Waits until a pending change must end. Returns whether it must be completed or reverted, and why. Decides
   * only while this node leads. Rejects after the abort of `signal`.
   */
  async decide(change: PendingChange, signal: AbortSignal): Promise<Pick<ChangeEnd, 'outcome' | 'reason' | 'because'>> {
    if (this.#tracker?.change !== change.id) this.#tracker = { change: change.id, faults: new FaultTracker() };
    const { faults } = this.#tracker;
    for (;;) {
      await pause(PERIOD_MS, undefined, { signal });
      if (this.#ports.election.fence === null) continue;
      // Treat a timer without a lease as elapsed, because etcd would never remove it.
      const timer = this.#ports.replica.present.get(this.#ports.keys.change(change.id));
      const hasElapsed = timer === undefined || timer.lease === 0n;
      if (change.terms.kind === 'confirm') {
        if (hasElapsed) return { outcome: 'revert', because: 'elapsed', reason: notConfirmed(change.terms.within_ms) };
        continue;
      }
      const health = await this.health(change).catch((failure: unknown) => {
        if (!(failure instanceof EtcdError)) throw failure;
        return null;
      });
      if (health === null) continue;
      const failed = faults.persistentFault(health, performance.now());
      if (failed !== null)
        return { outcome: 'revert', because: 'unhealthy', reason: `node ${failed.node}: ${failed.fault}` };
      if (hasElapsed && health.every(({ fault }) => fault === null))
        return { outcome: 'complete', because: 'elapsed', reason: 'the nodes were healthy for the whole time' };
    }
  }
}

export const notConfirmed = (withinMs: number): string => `it was not confirmed within ${withinMs / 1_000} s`;

function shuffled(ids: readonly string[]): readonly string[] {
  const ranked = ids.map((id) => ({ id, rank: Math.random() }));
  return ranked.sort((a, b) => a.rank - b.rank).map(({ id }) => id);
}
