import type { AnswerMessage, Exchange, Message, RequestMessage } from '#bus/bus-messages.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';

/**
 * The answers to the requests `program.stage`, `program.flip` and `program.unstage`, which the dataplane
 * chart and the swap chart publish.
 */

export const UNUSABLE = refusal('dataplane_unavailable', 'the dataplane does not enforce; see /ready');
export const BUSY = refusal('dataplane_unavailable', 'the dataplane is activating another policy');
export const LOST = refusal('dataplane_unavailable', 'the dataplane failed during the request');
export const CLOSED = refusal('dataplane_unavailable', 'the dataplane is closed');

type Published = { readonly message: Message | null };
type Outcome<E extends Exchange> = AnswerMessage<E>['outcome'];

/** Returns the answer to a request; no message if `id` is null, since then no request waits for an answer. */
export const stageAnswered = (id: string | null, outcome: Outcome<'program.stage'>): Published => ({
  message: id === null ? null : { type: 'program.stage_answered', id, outcome },
});
export const flipAnswered = (id: string | null, outcome: Outcome<'program.flip'>): Published => ({
  message: id === null ? null : { type: 'program.flip_answered', id, outcome },
});
export const unstageAnswered = (id: string | null): Published => ({
  message: id === null ? null : { type: 'program.unstage_answered', id, outcome: { kind: 'unstaged' } },
});

type Requested<E extends Exchange> = { readonly event: RequestMessage<E> };

/**
 * Returns transitions that answer every request immediately. `why` is the refusal for a request to load a
 * policy (stage). A request to activate it (flip) is refused as `UNUSABLE`, and a request to discard it
 * (unstage) succeeds.
 */
export const answeringAtOnce = (why: Refusal) =>
  ({
    'program.stage_requested': {
      actions: {
        type: 'publish',
        params: ({ event }: Requested<'program.stage'>) => stageAnswered(event.id, why),
      },
    },
    'program.flip_requested': {
      actions: {
        type: 'publish',
        params: ({ event }: Requested<'program.flip'>) => flipAnswered(event.id, UNUSABLE),
      },
    },
    'program.unstage_requested': {
      actions: { type: 'publish', params: ({ event }: Requested<'program.unstage'>) => unstageAnswered(event.id) },
    },
  }) as const;
