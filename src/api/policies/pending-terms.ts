import { ApiError, detailOf, type ProblemLine } from '#api/errors/errors.js';
import { duration, wholeNumber } from '#api/requests/query-parameters.js';
import { durationMs } from '#contracts/duration.js';
import type { WriteTerms } from '#contracts/policy/policy-write.js';
import { wholeNumberOf } from '#contracts/whole-number.js';

const LOW_MS = 5_000;
const HIGH_MS = 24 * 3_600_000;
const DEFAULT_HOLD_MS = 300_000;
const TIME = 'Must be a duration from 5s to 24h, such as 90s or 5m; a number alone is in seconds.';

/** A duration from 5 s to 24 h, in milliseconds. A number without a unit is a number of seconds. */
const time = duration(LOW_MS, HIGH_MS, TIME, (text) =>
  durationMs(wholeNumberOf(text) === undefined ? text : `${text}s`),
).meta({ examples: ['5m'] });

/** The query parameters that make a policy write a pending change. */
export const pendingQuery = {
  confirm_within: time
    .optional()
    .describe(
      'The write is reverted unless it is confirmed within this time. A node without etcd reverts it by itself, 15 s later.',
    ),
  rollout_share: wholeNumber(1, 99)
    .optional()
    .describe(
      'In a cluster: this percentage of the nodes enforces the write first, and all nodes after `rollout_hold`. The write is reverted if one of the first nodes is not ready, or denies too much.',
    ),
  rollout_hold: time.optional().describe('How long the first nodes enforce the write alone; by default 5 minutes.'),
};

type PendingQuery = {
  readonly confirm_within?: number | undefined;
  readonly rollout_share?: number | undefined;
  readonly rollout_hold?: number | undefined;
  readonly wait?: unknown;
};

/**
 * Returns how a policy write becomes permanent: by a confirmation within a time, or by a roll-out in stages.
 * Null if the write is permanent at once.
 */
export function termsOf(query: PendingQuery): WriteTerms | null {
  const { confirm_within: withinMs, rollout_share: share, rollout_hold: holdMs, wait } = query;
  if (share === undefined) {
    if (holdMs !== undefined) throw invalid('?rollout_hold', 'Needs rollout_share.');
    return withinMs === undefined ? null : { kind: 'confirm', withinMs };
  }
  if (withinMs !== undefined) throw invalid('?confirm_within', 'Cannot be combined with rollout_share.');
  if (wait !== undefined) throw invalid('?wait', 'Cannot be combined with rollout_share: most nodes wait longer.');
  return { kind: 'rollout', share, holdMs: holdMs ?? DEFAULT_HOLD_MS };
}

function invalid(pointer: string, message: string): ApiError {
  const problems: ProblemLine[] = [{ pointer, code: 'invalid_parameter', message }];
  return new ApiError('invalid_query', detailOf(problems), problems);
}
