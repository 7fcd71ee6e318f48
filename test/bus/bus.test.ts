import { expect, test } from 'vitest';
import { createBus } from '#bus/bus.js';

test('the bus delivers a message published during delivery after the current message, to every subscriber', () => {
  const bus = createBus<string>();
  const seen: string[] = [];
  bus.messages.subscribe((message) => {
    if (message === 'A') bus.publish('B');
  });
  bus.messages.subscribe((message) => seen.push(message));
  bus.publish('A');
  expect(seen).toEqual(['A', 'B']);
});

test('the bus delivers nothing after an unsubscribe', () => {
  const bus = createBus<string>();
  const seen: string[] = [];
  const subscription = bus.messages.subscribe((message) => seen.push(message));
  bus.publish('A');
  subscription.unsubscribe();
  bus.publish('B');
  expect(seen).toEqual(['A']);
});
