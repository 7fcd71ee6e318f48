import { expect, test } from 'vitest';
import { createActor, SimulatedClock, waitFor } from 'xstate';
import { supervisedPartActor } from '#actors/node.actor.js';
import type { SupervisedPart } from '#contracts/supervised-part.js';

/**
 * Starts the actor of a fake supervised part. The function `begin` of this part fails while `given.works` is
 * false.
 */
function startPart(startsAtOnce: boolean) {
  const clock = new SimulatedClock();
  const given = { begun: 0, works: true, report: (_: string | null): void => {} };
  const part: SupervisedPart = {
    begin: async () => {
      given.begun++;
      if (!given.works) throw new Error('it does not begin');
    },
    watch: (listener) => {
      given.report = listener;
      return () => {};
    },
  };
  const actor = createActor(supervisedPartActor(part), { input: { startsAtOnce }, clock }).start();
  const settled = (state: 'up' | 'down') => waitFor(actor, (snapshot) => snapshot.matches(state));
  return { actor, clock, given, settled };
}

test('a supervised part that fails is started again after 1 s, then after 2 s and 4 s if each start fails', async () => {
  const { actor, clock, given, settled } = startPart(true);
  await settled('up');
  given.works = false;
  given.report('the thread ended');
  expect(actor.getSnapshot().context.failure).toBe('the thread ended');
  for (const [attempt, backoffMs] of [1_000, 2_000, 4_000].entries()) {
    clock.increment(backoffMs - 1);
    expect(given.begun).toBe(1 + attempt);
    clock.increment(1);
    expect(given.begun).toBe(2 + attempt);
    await waitFor(actor, (snapshot) => snapshot.matches({ down: 'backing_off' }));
  }
  expect(actor.getSnapshot().context.failure).toBe('it does not begin');
  given.works = true;
  clock.increment(8_000);
  await settled('up');
  actor.stop();
});

test('a supervised part with `startsAtOnce: false` is up until it reports a failure, then down, and up again after it reports null', async () => {
  const { actor, given, settled } = startPart(false);
  await settled('up');
  given.report('the thread ended');
  await settled('down');
  given.report(null);
  await settled('up');
  expect(given.begun).toBe(0);
  actor.stop();
});

test('60 s without a failure reset the restart delay of a supervised part', async () => {
  const { actor, clock, given, settled } = startPart(true);
  await settled('up');
  given.report('the thread ended');
  clock.increment(1_000);
  await settled('up');
  expect(actor.getSnapshot().context.attempts).toBe(1);
  clock.increment(60_000);
  expect(actor.getSnapshot().context.attempts).toBe(0);
  actor.stop();
});
