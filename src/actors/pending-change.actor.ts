import { firstValueFrom, fromEvent, map, NEVER, race, switchMap, timer } from 'rxjs';
import { type EventObject, fromCallback, fromPromise } from 'xstate';
import type { Bus } from '#bus/bus.js';
import type { Message } from '#bus/bus-messages.js';
import type { Cluster } from '#cluster/cluster.js';
import type { CanaryHealth } from '#cluster/rollout/canary-health.js';
import { notConfirmed } from '#cluster/rollout/rollouts.js';
import type { ChangeEnd, PendingChange } from '#contracts/policy/pending-change.js';
import { WEIR } from '#policies/pending-changes.js';
import { KERNEL_MARGIN_MS } from '#policies/standing.js';
import { type NotedChange, pendingChangeChart } from '#statecharts/pending-change.chart.js';
import type { PolicyStore } from '#store/store-types.js';

export type PendingChangePorts = {
  readonly policies: PolicyStore;
  readonly cluster: Cluster | null;
  /** Observes the health of this node. A roll-out is reverted if a node becomes unhealthy. */
  readonly health: Pick<CanaryHealth, 'observe'>;
  readonly now: () => Date;
  /**
   * Whether the node has a dataplane. If so, the kernel reverts an unconfirmed change if this process fails
   * to revert it in time.
   */
  readonly enforced: boolean;
  /**
   * Resolves when the deadline of the change in the kernel is known, or after a time limit; at once without a
   * dataplane.
   */
  readonly kernelSeen: () => Promise<void>;
};
type Decision = Pick<ChangeEnd, 'outcome' | 'reason' | 'because'>;

export function pendingChangeActor(bus: Bus<Message>, ports: PendingChangePorts) {
  const { policies, cluster, health, enforced, kernelSeen, now } = ports;
  const decision = async ({ change }: NotedChange, signal: AbortSignal): Promise<Decision> => {
    if (cluster !== null) return cluster.rollouts.decide(change, signal);
    if (change.terms.kind === 'rollout')
      throw new Error('decide a pending change: it is a roll-out in stages, and this node has no cluster');
    await kernelSeen();
    const sinceMs = performance.now();
    const atMs = await elapsed(policies, change, signal);
    const isLate = enforced && sinceMs <= atMs && performance.now() - atMs >= KERNEL_MARGIN_MS;
    const reason = notConfirmed(change.terms.within_ms);
    const why = isLate ? '; the kernel reverted it, because the process did not do so in time' : '';
    return { outcome: 'revert', because: 'elapsed', reason: `${reason}${why}` };
  };
  return pendingChangeChart.provide({
    actions: {
      revertHere: (_, { change }) => {
        if (change === null) return;
        policies.revertHere(change.id);
        bus.publish({
          type: 'policy.change_ended',
          generation: change.generation,
          outcome: 'revert',
          reason: 'this node reverted the change by itself, because the change was not ended in the store in time',
        });
      },
    },
    actors: {
      watchChange: fromCallback<EventObject>(({ sendBack }) => {
        const watching = policies.pending.subscribe((change) => sendBack({ type: 'change.noted', change }));
        return () => watching.unsubscribe();
      }),
      watchLeader: fromCallback<EventObject>(({ sendBack }) => {
        const watching = cluster?.leader.subscribe((leader) =>
          sendBack({ type: 'leader.changed', isLeader: leader === cluster.id }),
        );
        return () => watching?.unsubscribe();
      }),
      decide: fromPromise<void, NotedChange>(async ({ input, signal }) => {
        const decided = await decision(input, signal);
        const end = { ...decided, change: input.change.id, at: now().toISOString(), by: WEIR };
        await policies.settle(end).catch((failure: unknown) => {
          // On a single node, return to the former policy even if the store cannot end the change: the kernel
          // reverts it anyway.
          if (cluster === null) policies.revertHere(input.change.id);
          throw failure;
        });
        const { generation } = input.change;
        bus.publish({ type: 'policy.change_ended', generation, outcome: decided.outcome, reason: decided.reason });
      }),
      report: fromCallback<EventObject, NotedChange>(({ input: { change }, sendBack }) => {
        const isFirst = change.terms.kind === 'rollout' && change.terms.nodes.includes(cluster?.id ?? '');
        const reporting = isFirst
          ? cluster?.rollouts
              .report(change, health.observe(change.generation))
              .subscribe(() => sendBack({ type: 'node.cut_off' }))
          : undefined;
        return () => reporting?.unsubscribe();
      }),
    },
  });
}

/**
 * Waits for the deadline of an unconfirmed change on a single node. Resolves with the deadline, in
 * milliseconds of `performance.now()`.
 */
function elapsed(policies: PolicyStore, change: PendingChange, signal: AbortSignal): Promise<number> {
  const passed = policies.deadline.pipe(
    switchMap((deadline) => {
      if (deadline?.change.id !== change.id) return NEVER;
      const { atMs } = deadline;
      return timer(Math.max(0, atMs - performance.now())).pipe(map(() => atMs));
    }),
  );
  const aborted = fromEvent(signal, 'abort').pipe(
    map((): never => {
      throw new Error('wait for the deadline of a change: the change has ended');
    }),
  );
  return firstValueFrom(race(passed, aborted));
}
