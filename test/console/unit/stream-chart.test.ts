import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createActor, fromCallback, fromPromise } from 'xstate';
import {
  type ConnectionInput,
  type Hindrance,
  type StreamEvent,
  streamChart,
} from '../../../console/src/charts/stream.chart.js';

/** A stream whose connections are opened and closed by the test. */
function startStream(hindrance: Hindrance = { kind: 'none' }) {
  let connections = 0;
  let sendBack: (event: StreamEvent) => void = () => {};
  let switchOn: () => void = () => {};
  const connection = fromCallback<StreamEvent, ConnectionInput>((connected) => {
    connections++;
    sendBack = connected.sendBack;
  });
  const actor = createActor(
    streamChart.provide({
      actors: {
        connection,
        findHindrance: fromPromise<Hindrance, ConnectionInput>(async () => hindrance),
        untilSwitchedOn: fromPromise<void>(
          () =>
            new Promise((resolve) => {
              switchOn = resolve;
            }),
        ),
      },
    }),
  ).start();
  return {
    actor,
    state: () => JSON.stringify(actor.getSnapshot().value),
    connections: () => connections,
    switchOn: () => switchOn(),
    open: () => sendBack({ type: 'opened' }),
    close: (code: number) => sendBack({ type: 'closed', code, reason: '' }),
  };
}

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

test('a lost stream is opened again after 250 ms, and each further wait is twice as long, up to 10 s', () => {
  const stream = startStream();
  const waits: number[] = [];
  for (let lost = 0; lost < 8; lost++) {
    stream.close(1006);
    const before = stream.connections();
    let waited = 0;
    while (stream.connections() === before) {
      vi.advanceTimersByTime(50);
      waited += 50;
    }
    waits.push(waited);
  }
  expect(waits).toEqual([250, 500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
});

test('a stream waits only 250 ms again before its next reconnection after it was connected', () => {
  const stream = startStream();
  stream.close(1006);
  vi.advanceTimersByTime(250);
  stream.open();
  expect(stream.state()).toBe('{"open":"live"}');
  stream.close(1001);
  expect(stream.state()).toBe('"waiting"');
  vi.advanceTimersByTime(250);
  expect(stream.state()).toBe('{"open":"connecting"}');
});

test('a stream does not reconnect by itself if performance mode is off, or if the API token was revoked or has expired', () => {
  const switchedOff = startStream();
  switchedOff.open();
  switchedOff.close(4503);
  const ended = startStream();
  ended.open();
  ended.close(4401);
  vi.advanceTimersByTime(60_000);
  expect([switchedOff.state(), ended.state()]).toEqual(['"switched_off"', '"token_ended"']);
  switchedOff.actor.send({ type: 'again' });
  ended.actor.send({ type: 'again' });
  expect([switchedOff.state(), ended.state()]).toEqual(['{"open":"connecting"}', '"token_ended"']);
});

test('a stream whose query the node refuses does not reconnect, and has the reason of the node', async () => {
  vi.useRealTimers();
  const reason = '?src: Must be an IPv4 address';
  const { state, actor, close, connections } = startStream({ kind: 'refused', reason });
  close(1006);
  await vi.waitFor(() => expect(state()).toBe('"refused"'));
  expect([actor.getSnapshot().context.refusal, connections()]).toEqual([reason, 1]);
});

test('a stream is requested without past messages from a node that keeps none', async () => {
  vi.useRealTimers();
  const { state, actor, close, connections } = startStream({ kind: 'no_replay' });
  close(1006);
  await vi.waitFor(() => expect(connections()).toBe(2));
  expect([state(), actor.getSnapshot().context.replays]).toEqual(['{"open":"connecting"}', false]);
});

test('a stream that the node refuses while performance mode is off is opened when performance mode is enabled', async () => {
  vi.useRealTimers();
  const { state, close, switchOn } = startStream({ kind: 'switched_off' });
  close(1006);
  await vi.waitFor(() => expect(state()).toBe('"switched_off"'));
  switchOn();
  await vi.waitFor(() => expect(state()).toBe('{"open":"connecting"}'));
});
