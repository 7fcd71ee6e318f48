import type { Message } from '#bus/bus-messages.js';
import type { Selector } from '#contracts/policy/policy-model.js';
import type { Warning } from '#contracts/policy/policy-problem.js';
import type { PolicyOutcome } from '#contracts/policy/policy-write.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import { sentenceOf } from './failure.js';
import type { FollowInput } from './follow.chart.js';
import { nextStored, type PolicyContext, READY as part, policySetup as policy, type Waiting } from './policy.setup.js';
import { reports } from './readiness.js';
import { refusalOf } from './refusal.js';
import type { WriteInput } from './write.chart.js';

type InContext = { readonly context: PolicyContext };
type Published = { readonly message: Message | null };

const DRAINING = refusal('draining', 'the node is shutting down and accepts no writes');
const NOT_YET: Warning = {
  pointer: '',
  code: 'not_enforced',
  message:
    'The policy is stored, but the dataplane failed meanwhile; the policy is enforced as soon as the dataplane runs again.',
};

const answered = (waiting: Waiting | null | undefined, outcome: PolicyOutcome): Published => ({
  message: waiting == null ? null : { type: 'policy.write_answered', id: waiting.id, outcome },
});
const expired = ({ activationTimeoutMs, trouble }: PolicyContext): Refusal =>
  refusal(
    'activation_timeout',
    `the policy could not be activated within ${activationTimeoutMs} ms; nothing was changed${
      trouble[part] === undefined ? '' : ` (${trouble[part]})`
    }`,
  );
const recovered = ({ context: { current, unflipped } }: InContext): Published =>
  unflipped === null ? { message: null } : answered(current, unflipped.outcome);
const notRecovered = ({ context: { current, unflipped } }: InContext): Published => {
  if (unflipped === null) return { message: null };
  const { outcome } = unflipped;
  return answered(current, 'warnings' in outcome ? { ...outcome, warnings: [...outcome.warnings, NOT_YET] } : outcome);
};
const desired = ({ context: { restored } }: InContext): Published => ({
  message:
    restored === null
      ? null
      : {
          type: 'program.desired',
          program: restored.program,
          samples: restored.samples,
          generation: restored.inForce.generation,
        },
});
const activated = ({ context: { inForce, epoch } }: InContext): Published => {
  if (inForce === null) return { message: null };
  const { record, generation, needs, selectors, lookups, inspection } = inForce;
  return { message: { type: 'policy.activated', record, generation, epoch, needs, selectors, lookups, inspection } };
};

/**
 * The transitions at the end of a restore: the dataplane has put the restored policy in force, or has
 * rejected it.
 */
const restoreEnding = policy.createStateConfig({
  on: {
    'dataplane.enforcing': {
      guard: { type: 'isRestored', params: ({ event }) => event },
      target: 'settling',
      actions: ['noteRegained', { type: 'adoptRestored', params: ({ event }) => event }],
    },
    'program.rejected': {
      guard: { type: 'isRestored', params: ({ event }) => event },
      target: 'backing_off',
      actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: event.refusal.detail }) },
    },
  },
});

export const policyChart = policy.createMachine({
  id: 'policy',
  type: 'parallel',
  context: ({ input }) => ({
    ...input,
    inForce: null,
    epoch: null,
    everActivated: false,
    restored: null,
    queue: [],
    current: null,
    expired: false,
    unflipped: null,
    committed: 0,
    unfollowed: 0,
    proposal: null,
    rehearsed: null,
    hasWriteLock: false,
    draining: false,
    dataplaneLost: null,
    attempts: 0,
    isStale: false,
    isRefresh: false,
    refreshAttempts: 0,
    trouble: {},
    notices: {},
  }),
  states: {
    activation: {
      initial: 'restoring',
      on: {
        'policy.settled': { target: '.settling' },
        'restore.needed': { target: '.restoring' },
        'dataplane.attached': { target: '.restoring', actions: 'noteRegained' },
        'dataplane.enforcing': { actions: 'noteRegained' },
        'dataplane.lost': { actions: { type: 'noteLost', params: ({ event }) => event } },
      },
      states: {
        restoring: {
          ...reports(part, 'starting', 'activating the stored policy'),
          initial: 'reading',
          ...restoreEnding,
          states: {
            reading: {
              on: { 'dataplane.attached': { actions: 'noteRegained' } },
              invoke: {
                id: 'restore',
                src: 'restore',
                onDone: [
                  {
                    guard: 'isEnforced',
                    target: 'awaiting',
                    actions: { type: 'noteRestored', params: ({ event }) => event },
                  },
                  {
                    target: '#policy.activation.settling',
                    actions: [
                      { type: 'noteRestored', params: ({ event }) => event },
                      { type: 'adoptRestored', params: { epoch: null } },
                    ],
                  },
                ],
                onError: {
                  target: '#policy.activation.backing_off',
                  actions: { type: 'noteTrouble', params: ({ event }) => ({ trouble: sentenceOf(event.error) }) },
                },
              },
            },
            awaiting: {
              entry: { type: 'publish', params: desired },
              always: {
                guard: 'dataplaneIsLost',
                target: '#policy.activation.unenforced',
                actions: {
                  type: 'noteTrouble',
                  params: ({ context }) => ({ trouble: context.dataplaneLost ?? '' }),
                },
              },
              on: { 'dataplane.attached': { target: 'reading' } },
            },
          },
        },
        unenforced: {
          ...reports(part, 'failed', 'the stored policy waits for the dataplane'),
          ...restoreEnding,
        },
        backing_off: {
          ...reports(part, 'failed', 'the stored policy could not be activated; the node tries again soon'),
          entry: 'countAttempt',
          after: { restoreBackoff: 'restoring' },
          on: { 'policy.committed': 'restoring' },
        },
        settling: {
          entry: { type: 'publish', params: activated },
          always: [
            {
              guard: 'hasUnresolvedSelectors',
              target: 'unresolved',
              actions: {
                type: 'noteTrouble',
                params: ({ context }) => ({ trouble: selectorsIn(context.inForce?.unresolved ?? []) }),
              },
            },
            { guard: 'isActive', target: 'active' },
            { guard: 'wasEverActivated', target: 'none_active' },
            { target: 'never_activated' },
          ],
        },
        active: {
          ...reports(part, 'ready', 'a policy is active'),
        },
        unresolved: {
          ...reports(
            part,
            'failed',
            'the active policy has selectors that were never resolved: their deny rules match every source, their allow rules match none',
          ),
        },
        none_active: {
          ...reports(part, 'ready', 'no policy is active; policy.fallback decides'),
        },
        never_activated: {
          ...reports(part, 'failed', 'no policy was ever activated; policy.fallback decides'),
        },
      },
    },
    writing: {
      initial: 'idle',
      on: {
        'policy.write_requested': {
          actions: [
            { type: 'startDeadline', params: ({ event }) => event },
            { type: 'enqueue', params: ({ event }) => event },
          ],
        },
        'deadline.passed': {
          guard: { type: 'isQueued', params: ({ event }) => event },
          actions: [
            {
              type: 'publish',
              params: ({ context, event }) =>
                answered(
                  context.queue.find(({ id }) => id === event.id),
                  expired(context),
                ),
            },
            { type: 'dropQueued', params: ({ event }) => event },
          ],
        },
        'node.draining': { actions: 'noteDraining' },
        'policy.committed': { actions: { type: 'noteCommitted', params: ({ event }) => event } },
        'membership.changed': { actions: 'noteStale' },
        'policy.proposed': { actions: { type: 'noteProposal', params: ({ event }) => event } },
        'policy.proposal_ended': {
          guard: { type: 'isProposed', params: ({ event }) => event },
          actions: 'forgetProposal',
        },
      },
      states: {
        idle: {
          entry: 'endWrite',
          always: [
            {
              guard: 'mustRefuseQueued',
              target: 'idle',
              reenter: true,
              actions: [
                { type: 'publish', params: ({ context }) => answered(context.queue[0], DRAINING) },
                'dropFirst',
              ],
            },
            { guard: 'isDraining', target: 'drained' },
            { guard: 'isBehind', target: 'following' },
            { guard: 'mayRehearse', target: 'following', actions: 'takeProposal' },
            // A changed selection of a Kubernetes selector can need a new compilation. A pause follows each
            // such compilation, so a write waits for at most one of them.
            { guard: 'mustRefresh', target: 'following', actions: 'beginRefresh' },
            { guard: 'mayBegin', target: 'writing', actions: 'takeNext' },
          ],
        },
        following: {
          exit: 'endFollowing',
          invoke: {
            id: 'follow',
            src: 'follow',
            input: ({ context }): FollowInput => ({ proposal: context.rehearsed, enforced: context.enforced }),
            onDone: [
              {
                guard: { type: 'hasFollowed', params: ({ event }) => event },
                target: 'idle',
                actions: [{ type: 'adoptFollowed', params: ({ event }) => event }, 'announceSettled'],
              },
              {
                guard: { type: 'mustRetry', params: ({ event }) => event },
                target: 'idle',
                actions: [
                  {
                    type: 'noteRefreshFailure',
                    params: ({ event: { output } }) => ({ reason: 'reason' in output ? output.reason : output.kind }),
                  },
                  'demandRefresh',
                ],
              },
              {
                guard: { type: 'hasFailed', params: ({ event }) => event },
                target: 'idle',
                actions: ['noteUnfollowed', 'demandRestore'],
              },
              { target: 'idle' },
            ],
            onError: { target: 'idle', actions: ['noteUnfollowed', 'demandRestore'] },
          },
          on: {
            'policy.committed': {
              guard: { type: 'isRehearsedGeneration', params: ({ event }) => event },
              actions: [
                { type: 'noteCommitted', params: ({ event }) => event },
                { type: 'tellFollow', params: { type: 'proposal.committed' } },
              ],
            },
            'policy.proposal_ended': {
              guard: { type: 'isRehearsed', params: ({ event }) => event },
              actions: { type: 'tellFollow', params: { type: 'proposal.ended' } },
            },
          },
        },
        writing: {
          exit: 'forgetWriteLock',
          invoke: {
            id: 'write',
            src: 'write',
            input: ({ context }): WriteInput => ({
              ...present(context.current),
              enforced: context.enforced,
              shared: context.shared,
              mayRepeat: context.shared && context.current?.repeated !== true,
            }),
            onDone: [
              {
                guard: { type: 'hasActivated', params: ({ event }) => event },
                target: 'idle',
                actions: [{ type: 'adoptWrite', params: ({ event }) => event }, 'announceSettled'],
              },
              {
                guard: { type: 'isUnflipped', params: ({ event }) => event },
                target: 'recovering',
                actions: [{ type: 'noteUnflipped', params: ({ event }) => event }, 'demandRestore'],
              },
              {
                guard: { type: 'mayRepeat', params: ({ event }) => event },
                target: 'idle',
                actions: 'repeatCurrent',
              },
              {
                guard: { type: 'hasLostRace', params: ({ event }) => event },
                target: 'idle',
                actions: { type: 'publish', params: ({ context }) => answered(context.current, expired(context)) },
              },
              { target: 'idle' },
            ],
            onError: {
              target: 'idle',
              actions: {
                type: 'publish',
                params: ({ context, event }) =>
                  answered(context.current, refusalOf(event.error, 'feature_unavailable')),
              },
            },
          },
          on: {
            'deadline.passed': {
              guard: { type: 'isCurrent', params: ({ event }) => event },
              actions: [
                'noteExpired',
                {
                  type: 'tellWrite',
                  params: ({ context }) => ({ type: 'write.expired', refusal: expired(context) }),
                },
              ],
            },
          },
        },
        recovering: {
          always: { guard: 'isRecovered', target: 'idle', actions: { type: 'publish', params: recovered } },
          after: {
            recoveryTimeout: { target: 'idle', actions: { type: 'publish', params: notRecovered } },
          },
        },
        drained: {
          entry: { type: 'publish', params: { message: { type: 'policy.drained' } } },
          on: {
            'policy.write_requested': {
              actions: { type: 'publish', params: ({ event }) => answered(event, DRAINING) },
            },
          },
        },
      },
    },
    writeLock: {
      initial: 'none',
      states: {
        none: { always: { guard: 'needsWriteLock', target: 'waiting' } },
        waiting: {
          always: { guard: 'hasNoStoredWrite', target: 'none' },
          invoke: {
            id: 'takeWriteLock',
            src: 'takeWriteLock',
            onDone: { target: 'held', actions: 'noteWriteLock' },
            onError: {
              target: 'none',
              actions: [
                {
                  type: 'publish',
                  params: ({ context, event }) =>
                    answered(nextStored(context), refusalOf(event.error, 'store_unavailable')),
                },
                { type: 'dropQueued', params: ({ context }) => ({ id: nextStored(context)?.id ?? '' }) },
              ],
            },
          },
        },
        held: {
          exit: 'releaseWriteLock',
          always: [
            { guard: 'hasNoWriteLock', target: 'none' },
            { guard: 'hasNoStoredWrite', target: 'none' },
          ],
        },
      },
    },
  },
});

/** Returns a text about selectors: the first selector, and the number of the others. */
function selectorsIn([first, ...others]: readonly Selector[]): string {
  if (first === undefined) return '';
  const { integration, ...selector } = first.source;
  const more = others.length === 0 ? '' : `, and ${others.length} more`;
  return `integration ${integration}: ${JSON.stringify(selector)}${more}`;
}

function present<T>(value: T | null): T {
  if (value === null) throw new Error('the policy actor has no current write');
  return value;
}
