import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ask } from '#bus/ask.js';
import { createBus } from '#bus/bus.js';
import type { Message } from '#bus/bus-messages.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('a request over the message bus (`ask`) resolves with the response that has its id, also beside a concurrent request', async () => {
  const bus = createBus<Message>();
  bus.messages.subscribe((message) => {
    if (message.type !== 'program.flip_requested') return;
    bus.publish({ type: 'program.flip_answered', id: 'another', outcome: { kind: 'flipped', epoch: 1 } });
    bus.publish({
      type: 'program.flip_answered',
      id: message.id,
      outcome: { kind: 'flipped', epoch: message.generation },
    });
  });
  const answers = await Promise.all([
    ask(bus, 'program.flip', { generation: 2 }, 1_000),
    ask(bus, 'program.flip', { generation: 3 }, 1_000),
  ]);
  expect(answers).toEqual([
    { kind: 'flipped', epoch: 2 },
    { kind: 'flipped', epoch: 3 },
  ]);
  expect(vi.getTimerCount()).toBe(0);
});

test('a request over the message bus (`ask`) resolves with a refusal if no response arrives within the timeout', async () => {
  const answer = ask(createBus<Message>(), 'program.unstage', { generation: 2 }, 1_000);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(await answer).toEqual({
    kind: 'refused',
    code: 'dataplane_unavailable',
    detail: 'no answer to program.unstage within 1000 ms',
  });
});
