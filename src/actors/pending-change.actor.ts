import { setTimeout as pause } from 'node:timers/promises';
import { type EventObject, fromCallback, fromPromise } from 'xstate';
import type { Bus } from '#bus/bus.js';
import type { Message } from '#bus/bus-messages.js';
import type { Cluster } from '#cluster/cluster.js';
import type { CanaryHealth } from '#cluster/rollout/canary-health.js';
import { notConfirmed } from '#cluster/rollout/rollouts.js';
import type { ChangeEnd } from '#contracts/policy/pending-change.js';
import { pendingChangeChart, type SeenChange } from '#statecharts/pending-change.chart.js';
import type { PolicyStore } from '#store/store-types.js';

export type PendingChangePorts = {
  readonly policies: PolicyStore;
  readonly cluster: Cluster | null;
  /** The health of this node, on which a roll-out depends. */
  readonly health: Pick<CanaryHealth, 'observe'>;
  readonly now: () => Date;
};
type Decision = Pick<ChangeEnd, 'outcome' | 'reason' | 'because'>;

/** The author of changes that Weir itself makes. */
const AUTHOR = 'weir';

export function pendingChangeActor(bus: Bus<Message>, { policies, cluster, health, now }: PendingChangePorts) {
  const decision = async ({ change, seenAt }: SeenChange, signal: AbortSignal): Promise<Decision> => {
    if (cluster !== null) return cluster.rollouts.decide(change, signal);
    if (change.terms.kind === 'rollout')
      throw new Error('decide a pending change: it is a roll-out in stages, and this node has no cluster');
    const withinMs = change.terms.within_ms;
    await pause(Math.max(0, seenAt + withinMs - performance.now()), undefined, { signal });
    return { outcome: 'revert', because: 'elapsed', reason: notConfirmed(withinMs) };
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
      decide: fromPromise<void, SeenChange>(async ({ input, signal }) => {
        const decided = await decision(input, signal);
        await policies.settle({ ...decided, change: input.change.id, at: now().toISOString(), by: AUTHOR });
        const { generation } = input.change;
        bus.publish({ type: 'policy.change_ended', generation, outcome: decided.outcome, reason: decided.reason });
      }),
      report: fromCallback<EventObject, SeenChange>(({ input: { change }, sendBack }) => {
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
