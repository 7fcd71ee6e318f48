import { type ReadonlySignal, signal } from '@preact/signals';
import { type Actor, type AnyActorLogic, createActor, type InputFrom, type SnapshotFrom } from 'xstate';

/** Starts an actor, and makes its snapshot a signal that pages read. */
export function started<Logic extends AnyActorLogic>(
  logic: Logic,
  ...[input]: undefined extends InputFrom<Logic> ? [input?: InputFrom<Logic>] : [input: InputFrom<Logic>]
): { readonly actor: Actor<Logic>; readonly snapshot: ReadonlySignal<SnapshotFrom<Logic>> } {
  const actor = createActor<Logic>(logic, { input } as never);
  const snapshot = signal<SnapshotFrom<Logic>>(actor.getSnapshot());
  actor.subscribe((next) => {
    snapshot.value = next;
  });
  actor.start();
  snapshot.value = actor.getSnapshot();
  return { actor, snapshot };
}
