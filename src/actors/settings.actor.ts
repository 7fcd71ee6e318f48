import { type EventObject, fromCallback } from 'xstate';
import type { Bus } from '#bus/bus.js';
import type { Exchanges, Message, RequestMessage } from '#bus/bus-messages.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';

type Change = 'interfaces.change' | 'dns.change' | 'service_plane.change';

/**
 * Returns the actor that applies new settings to a part. For each request, it calls `change` with the
 * settings and publishes the response. After a success, it sends the event that `change` returns to its
 * parent.
 */
export function settingsActor<C extends Change>(
  bus: Bus<Message>,
  exchange: C,
  change: (settings: Exchanges[C]['parameters']['settings']) => Promise<EventObject | null>,
) {
  return fromCallback<EventObject>(({ receive, sendBack }) => {
    receive((event) => {
      const { id, settings } = event as unknown as RequestMessage<C> & Exchanges[C]['parameters'];
      const answer = (outcome: { readonly kind: 'changed' } | Refusal): void =>
        bus.publish({ type: `${exchange}_answered`, id, outcome } as Message);
      change(settings).then(
        (changed) => {
          if (changed !== null) sendBack(changed);
          answer({ kind: 'changed' });
        },
        (failure: unknown) =>
          answer(refusal('reload_failed', failure instanceof Error ? failure.message : String(failure))),
      );
    });
  });
}
