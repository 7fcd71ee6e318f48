import { expect, test } from 'vitest';
import { createBus } from '#bus/bus.js';

test('the bus delivers a message that a subscriber publishes during a delivery only after all subscribers received the current message', () => {
  const bus = createBus<string>();
  const seen: string[] = [];
  bus.messages.subscribe((message) => {
    if (message === 'A') bus.publish('B');
  });
  bus.messages.subscribe((message) => seen.push(message));
  bus.publish('A');
  expect(seen).toEqual(['A', 'B']);
});

test('the bus delivers no further message to a subscriber that has unsubscribed', () => {
  const bus = createBus<string>();
  const seen: string[] = [];
  const subscription = bus.messages.subscribe((message) => seen.push(message));
  bus.publish('A');
  subscription.unsubscribe();
  bus.publish('B');
  expect(seen).toEqual(['A']);
});
