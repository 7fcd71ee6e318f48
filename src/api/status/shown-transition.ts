import { z } from 'zod';
import { instant } from '#api/openapi/answer.schema.js';
import type { StatechartTransition } from '#bus/statecharts.js';

const stateId = z.string().describe('The `id` of a state in the definition of the statechart.');

export const TransitionSchema = z
  .object({
    type: z.literal('transition'),
    time: instant,
    session_id: z.string().describe('The actor.'),
    name: z.string(),
    chart: z.string().describe('The `id` of the definition of the statechart.'),
    event: z.string().describe('The event that was handled. A transition that needs no event has the event before it.'),
    taken: z
      .array(
        z.object({
          index: z.int().min(0).describe('The position in `transitions` of the definition of the statechart.'),
          source: stateId,
          targets: z.array(stateId),
          event: z.string().nullable(),
          guard: z.string().nullable(),
        }),
      )
      .describe('The transitions that were taken. Regions in parallel can each take one.'),
    exited: z
      .array(z.object({ state: stateId, after_ms: z.number().min(0).describe('How long the state was active.') }))
      .describe('The states that were left, outer states first. A state that was entered again is in both lists.'),
    entered: z.array(stateId).describe('The states that were entered, outer states first.'),
  })
  .meta({
    id: 'StatechartTransition',
    description: 'The transitions that an actor took for one event, or without an event directly after it.',
  });

export function shownTransition({
  sessionId,
  taken,
  exited,
  entered,
  ...transition
}: StatechartTransition): z.infer<typeof TransitionSchema> {
  return {
    ...transition,
    session_id: sessionId,
    taken: taken.map(({ targets, ...one }) => ({ ...one, targets: [...targets] })),
    exited: exited.map(({ state, afterMs }) => ({ state, after_ms: afterMs })),
    entered: [...entered],
  };
}
