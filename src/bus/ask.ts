import type { Refusal, RefusalCode } from '#contracts/refusal.js';
import type { Bus } from './bus.js';
import type { AnswerMessage, Exchange, Exchanges, Message, RequestMessage } from './bus-messages.js';

/** For each kind of request, the refusal code with which `ask` resolves if no response arrives in time. */
const LATE = {
  'policy.write': 'activation_timeout',
  'performance_mode.write': 'store_unavailable',
  'program.stage': 'dataplane_unavailable',
  'program.flip': 'dataplane_unavailable',
  'program.unstage': 'dataplane_unavailable',
  'config.reload': 'reload_failed',
  'interfaces.change': 'reload_failed',
  'dns.change': 'reload_failed',
  'service_plane.change': 'reload_failed',
} as const satisfies Record<Exchange, RefusalCode>;

/**
 * Publishes a request on the bus and resolves with its response. The promise never rejects: if no response
 * arrives within `timeoutMs` milliseconds, it resolves with a refusal. The recipient may still execute the
 * request afterwards.
 */
export function ask<E extends Exchange>(
  bus: Bus<Message>,
  exchange: E,
  asks: Exchanges[E]['parameters'],
  timeoutMs: number,
): Promise<Exchanges[E]['outcome'] | Refusal> {
  return new Promise((resolve) => {
    const id = crypto.randomUUID();
    const subscription = bus.messages.subscribe((message) => {
      if (message.type === `${exchange}_answered` && 'id' in message && message.id === id)
        settle((message as AnswerMessage).outcome);
    });
    const timer = setTimeout(
      () =>
        settle({ kind: 'refused', code: LATE[exchange], detail: `no answer to ${exchange} within ${timeoutMs} ms` }),
      timeoutMs,
    );
    const settle = (outcome: Exchanges[E]['outcome'] | Refusal): void => {
      clearTimeout(timer);
      subscription.unsubscribe();
      resolve(outcome);
    };
    bus.publish({ type: `${exchange}_requested`, id, ...asks } as unknown as RequestMessage);
  });
}
