import { expect, test } from 'vitest';
import { createActor, createMachine } from 'xstate';
import { conditionOf, createStateTimes, reportOf } from '#actors/readiness/readiness.js';

const chart = createMachine({
  id: 'proxy',
  context: { trouble: { dns_allowlist: 'EADDRINUSE' } },
  initial: 'serving',
  states: {
    serving: {
      tags: ['dns_allowlist:ready'],
      meta: { part: 'dns_allowlist', detail: 'serving' },
      on: {
        bug: {
          actions: () => {
            throw new Error('bug');
          },
        },
        failed: 'backing_off',
      },
    },
    backing_off: { tags: ['dns_allowlist:degraded'], meta: { part: 'dns_allowlist', detail: 'not bound' } },
  },
});
const started = () => {
  const actor = createActor(chart);
  actor.subscribe({ error: () => {} });
  return actor.start();
};
const conditionIn = (actor: ReturnType<typeof started>, ended?: string) =>
  conditionOf('dns_allowlist', actor.getSnapshot() as never, ended);

test('a readiness check shows the state of its statechart, and the cause of the failure if the check fails', () => {
  const actor = started();
  expect(conditionIn(actor)).toEqual({ name: 'dns_allowlist', ok: true, state: 'serving', detail: 'serving' });
  actor.send({ type: 'failed' });
  expect(conditionIn(actor)).toEqual({
    name: 'dns_allowlist',
    ok: false,
    state: 'backing_off',
    detail: 'not bound: EADDRINUSE',
  });
});

test('a readiness check reports the state `down` if the actor behind the check died, even in a state that is tagged as ready', () => {
  const actor = started();
  actor.send({ type: 'bug' });
  expect(actor.getSnapshot().hasTag('dns_allowlist:ready')).toBe(true);
  const down = { name: 'dns_allowlist', ok: false, state: 'down' };
  expect(conditionIn(actor, 'bug')).toEqual({ ...down, detail: 'the actor of this part failed and is restarted: bug' });
  expect(conditionOf('dns_allowlist', undefined)).toEqual({
    ...down,
    detail: 'the actor of this part failed and is restarted',
  });
});

test('the field `since` of a readiness check is the time of the last state change, not of the last request', () => {
  let now = 0;
  const times = createStateTimes(() => new Date(now));
  const actor = started();
  const look = () => {
    times.note([conditionIn(actor)]);
    return times.since('dns_allowlist');
  };
  now = 1_000;
  expect(look()).toBe('1970-01-01T00:00:01.000Z');
  now = 2_000;
  expect(look()).toBe('1970-01-01T00:00:01.000Z');
  actor.send({ type: 'failed' });
  expect(look()).toBe('1970-01-01T00:00:02.000Z');
});

test('the readiness report is ready only if every readiness check passes', () => {
  const good = { name: 'cluster', ok: true, state: 'alone', detail: '' } as const;
  const bad = { name: 'draining', ok: false, state: 'draining', detail: '' } as const;
  const since = () => 'then';
  expect(reportOf([good], [], [], since)).toEqual({ ready: true, checks: [{ ...good, since: 'then' }] });
  expect(reportOf([good, bad], [], [], since).ready).toBe(false);
});
