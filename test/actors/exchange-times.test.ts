import { expect, it } from 'vitest';
import { type ExchangeDone, timeExchanges } from '#actors/readiness/exchange-times.js';
import { createBus } from '#bus/bus.js';
import type { Message } from '#bus/bus-messages.js';

it('`timeExchanges` reports the outcome of each request on the bus once, even if a second response arrives', () => {
  const bus = createBus<Message>();
  const done: ExchangeDone[] = [];
  timeExchanges(bus, (exchange) => done.push(exchange));
  bus.publish({ type: 'program.flip_requested', id: 'a', generation: 1 });
  bus.publish({ type: 'program.unstage_requested', id: 'b', generation: 2 });
  bus.publish({ type: 'dataplane.release_requested' });
  const refused = { kind: 'refused', code: 'dataplane_unavailable', detail: 'the kernel said no' } as const;
  bus.publish({ type: 'program.unstage_answered', id: 'b', outcome: refused });
  bus.publish({ type: 'program.flip_answered', id: 'a', outcome: { kind: 'flipped', epoch: 1 } });
  bus.publish({ type: 'program.flip_answered', id: 'a', outcome: { kind: 'flipped', epoch: 1 } });
  expect(done.map(({ exchange, outcome, seconds }) => [exchange, outcome, seconds >= 0])).toEqual([
    ['program.unstage', 'dataplane_unavailable', true],
    ['program.flip', 'flipped', true],
  ]);
});
