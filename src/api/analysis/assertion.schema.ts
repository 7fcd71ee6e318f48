import { z } from 'zod';
import type { AssertionFailure } from '#contracts/analysis/assertion.js';
import { DeciderSchema, regionMembers } from './flow-region.schema.js';

/** The members of the result of an assertion. */
export const assertionResultMembers = {
  result: z
    .enum(['holds', 'broken', 'unknown'])
    .describe('`unknown`: the check could not be completed, and found no contradiction until then.'),
  message: z.string().describe('One sentence.'),
  regions: z
    .array(z.object({ ...regionMembers, decider: DeciderSchema }))
    .describe('Flows that contradict the assertion, the largest region first.'),
  regions_omitted: z.int().min(0),
};

export const AssertionFailureSchema = z
  .object({
    id: z.string(),
    ...assertionResultMembers,
    before: assertionResultMembers.result
      .nullable()
      .describe('The result before the write; null if there was no time to find it out.'),
    effect: z
      .enum(['refuses', 'overridden', 'warns'])
      .describe(
        '`refuses`: the write is refused. `overridden`: the write names the assertion in `?override`. `warns`: it held as little before the write, or has `on_failure: warn`.',
      ),
  })
  .meta({
    id: 'AssertionFailure',
    description: 'An assertion that does not hold for the policy in force after a write.',
  }) satisfies z.ZodType<AssertionFailure>;
