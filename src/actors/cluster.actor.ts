import { catchError, defer, type Observable, of, repeat, timer } from 'rxjs';
import { type EventObject, fromCallback } from 'xstate';
import type { Cluster } from '#cluster/cluster.js';
import { Contradiction } from '#cluster/contradiction.js';
import { type ClusterEvent, clusterChart } from '#statecharts/cluster.chart.js';

/** The time in milliseconds before a lost connection to etcd is opened again. */
const RECONNECT_MS = 200;
/**
 * The interval in milliseconds of two checks: whether etcd still contradicts the replica of this node, and
 * whether etcd contains a new cluster.
 */
const RECHECK_MS = 5_000;
const CREATION_MS = 1_000;

/**
 * Creates the cluster actor: its statechart, which acts on `cluster`. `cluster` is null if the configuration
 * has no `cluster` section; the statechart then starts no child actor.
 */
export function clusterActor(cluster: Cluster | null) {
  const configured = (): Cluster => {
    if (cluster === null) throw new Error('the configuration has no cluster section');
    return cluster;
  };
  return clusterChart.provide({
    actors: {
      replicate: fromCallback<EventObject>(({ sendBack }) => {
        const following = sending(sendBack, () => configured().follow(), lostReplica);
        const watching = configured().diskFault.subscribe((reason) =>
          sendBack(reason === null ? { type: 'replica.kept' } : { type: 'replica.unkept', reason }),
        );
        return () => {
          watching.unsubscribe();
          following();
        };
      }),
      join: fromCallback<EventObject>(({ sendBack }) => {
        const subscription = sending(sendBack, () => configured().join(), lostMembership);
        const running = configured().runForLeader();
        running.add(
          configured().full.subscribe((isFull) => sendBack({ type: isFull ? 'etcd.full' : 'etcd.writable' })),
        );
        return () => {
          running.unsubscribe();
          subscription();
        };
      }),
      watchLeader: fromCallback<EventObject>(({ sendBack }) => {
        const { id, leader } = configured();
        const watching = leader.subscribe((node) =>
          sendBack({ type: 'leader.changed', leader: node, isLeader: node === id }),
        );
        return () => watching.unsubscribe();
      }),
    },
  });
}

function lostReplica(failure: unknown): ClusterEvent {
  if (!(failure instanceof Contradiction)) return { type: 'replica.lost', reason: messageOf(failure) };
  if (failure.code === 'uninitialized') return { type: 'replica.uncreated' };
  return { type: 'replica.contradicted', reason: failure.message };
}

function lostMembership(failure: unknown): ClusterEvent {
  return { type: 'member.lost', reason: messageOf(failure) };
}

function pauseAfter(failure: unknown): number {
  if (!(failure instanceof Contradiction)) return RECONNECT_MS;
  return failure.code === 'uninitialized' ? CREATION_MS : RECHECK_MS;
}

const messageOf = (failure: unknown): string => (failure instanceof Error ? failure.message : String(failure));

/** Sends the events of `source` to the statechart. After a failure, sends `lost` and subscribes again. */
function sending<Event extends { readonly type: string }>(
  sendBack: (event: ClusterEvent) => void,
  source: () => Observable<Event>,
  lost: (failure: unknown) => ClusterEvent,
): () => void {
  let pause = RECONNECT_MS;
  const subscription = defer(source)
    .pipe(
      catchError((failure: unknown) => {
        pause = pauseAfter(failure);
        return of(lost(failure));
      }),
      repeat({ delay: () => timer(pause) }),
    )
    .subscribe((event) => {
      if (event.type !== 'replica.applied') sendBack(event as ClusterEvent);
    });
  return () => subscription.unsubscribe();
}
