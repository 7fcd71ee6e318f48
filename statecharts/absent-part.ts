import { setup } from 'xstate';
import type { Fact, Needs } from '#bus/messages.js';
import type { CheckName, ReadinessMeta, ReadinessTag } from './readiness.js';

export type AbsentPartInput = { readonly configured: boolean; readonly needed: boolean };
type AbsentPartEvent = Extract<Fact, { type: 'policy.activated' }>;

/** A part that this build does not have: it says so, and whether the policy in force needs it (D27). */
export function absentPart(id: string, part: CheckName, need: keyof Needs, section: string, consequence: string) {
  return setup({
    types: {
      context: {} as AbsentPartInput,
      input: {} as AbsentPartInput,
      events: {} as AbsentPartEvent,
      tags: {} as ReadinessTag,
      meta: {} as ReadinessMeta,
    },
    guards: {
      isConfigured: ({ context }) => context.configured,
      isNeededFromTheStart: ({ context }) => context.needed,
      isNeeded: (_, params: { needs: Needs }) => params.needs[need],
      isNotNeeded: (_, params: { needs: Needs }) => !params.needs[need],
    },
  }).createMachine({
    id,
    context: ({ input }) => input,
    initial: 'choosing',
    states: {
      choosing: {
        always: [
          { guard: 'isConfigured', target: 'unserved' },
          { guard: 'isNeededFromTheStart', target: 'needed_but_absent' },
          { target: 'disabled' },
        ],
      },
      disabled: {
        tags: `${part}:disabled`,
        meta: { part, detail: 'not configured, and the active policy does not need it' },
        on: {
          'policy.activated': {
            guard: { type: 'isNeeded', params: ({ event }) => ({ needs: event.needs }) },
            target: 'needed_but_absent',
          },
        },
      },
      needed_but_absent: {
        tags: `${part}:needed_but_absent`,
        meta: { part, detail: `the active policy needs it: ${consequence}` },
        on: {
          'policy.activated': {
            guard: { type: 'isNotNeeded', params: ({ event }) => ({ needs: event.needs }) },
            target: 'disabled',
          },
        },
      },
      unserved: {
        tags: `${part}:failed`,
        meta: {
          part,
          detail: `the configuration has a ${section} section, which this build does not serve: ${consequence}`,
        },
      },
    },
  });
}
