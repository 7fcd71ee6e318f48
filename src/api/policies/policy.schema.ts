import { z } from 'zod';
import { PolicyDiffSchema } from '#api/analysis/analysis.schema.js';
import { AssertionFailureSchema } from '#api/analysis/assertion.schema.js';
import type { ErrorCode } from '#api/errors/error-table.js';
import { errorsOf, instant, ProofSchema, WarningSchema } from '#api/openapi/answer.schema.js';
import { commentQuery, dryRunQuery, flag, overrideQuery } from '#api/requests/query-parameters.js';
import { envelopeModeSchema, storedGroupSchema, storedPolicySchema } from '#policy/document/policy-schema.js';
import { pendingQuery } from './pending-terms.js';

export const recordMembers = {
  id: z.string().meta({ format: 'uuid' }),
  name: z.string().nullable(),
  form: z.enum(['envelope', 'singleton']).describe('The form in which the policy was written.'),
  mode: envelopeModeSchema,
  revision: z
    .int()
    .min(1)
    .describe('The number of writes of this record. The ETag consists of the id and the revision.'),
  created_at: instant,
  updated_at: instant,
  updated_by: z.string().describe('The subject of the token that made the latest write.'),
  active: z.boolean().describe('At most one record is active.'),
};
export const recordExample = {
  id: '0b9ff3a1-66a6-4a54-9c61-3d7b3a7c2f10',
  name: 'office',
  form: 'envelope',
  mode: 'enforce',
  revision: 3,
  created_at: '2026-01-31T12:00:00.000Z',
  updated_at: '2026-02-01T08:30:00.000Z',
  updated_by: 'admin',
  active: true,
};
const policyExample = { default_policy: 'deny', source_groups: [] };

const PolicyRecordSchema = z
  .object(recordMembers)
  .meta({ id: 'PolicyRecord', description: 'A stored policy without its body.', examples: [recordExample] });
export const PolicyListSchema = z
  .object({ items: z.array(PolicyRecordSchema) })
  .meta({ id: 'PolicyList', description: 'All stored policies, without their bodies.' });
export const StoredPolicySchema = z.object({ ...recordMembers, policy: storedPolicySchema }).meta({
  id: 'StoredPolicy',
  description: 'A stored policy. Values are returned as the client sent them.',
  examples: [{ ...recordExample, policy: policyExample }],
});
export const WrittenPolicySchema = z
  .object({ ...recordMembers, warnings: z.array(WarningSchema), proof: ProofSchema, policy: storedPolicySchema })
  .meta({
    id: 'WrittenPolicy',
    description:
      'The record as it was written. If the policy is active, the next packet after this response is evaluated with it.',
    examples: [
      {
        ...recordExample,
        warnings: [],
        proof: { classes: 1, checked: 4, complete: true },
        policy: policyExample,
      },
    ],
  });
const dryRunMembers = {
  ...recordMembers,
  dry_run: z.literal(true),
  warnings: z.array(WarningSchema),
  program_lines: z.int().min(0).describe('The size of the compiled policy, in cache lines of 64 bytes.'),
  proof: ProofSchema,
  diff: PolicyDiffSchema.nullable().describe(
    'What the write would change for flows: the policy in force before and after it, or, if the write changes nothing in force, the stored policy before and after it. Null if this could not be computed.',
  ),
  assertions: z
    .array(AssertionFailureSchema)
    .describe('The assertions that would not hold after the write. A dry run is not refused because of them.'),
};
export const DryRunSchema = z
  .object({
    ...dryRunMembers,
    policy: storedPolicySchema,
  })
  .meta({ id: 'PolicyDryRun', description: 'The record that the write would have stored; nothing was changed.' });
export const WrittenGroupSchema = z
  .object({ ...recordMembers, warnings: z.array(WarningSchema), proof: ProofSchema, source_group: storedGroupSchema })
  .meta({
    id: 'WrittenSourceGroup',
    description:
      'The record of the policy, and the group as it was written. If the policy is active, the next packet after this response is evaluated with it.',
  });
export const DryGroupSchema = z
  .object({
    ...dryRunMembers,
    source_group: storedGroupSchema.nullable().describe('Null if the write would remove the policy.'),
  })
  .meta({ id: 'SourceGroupDryRun', description: 'The record that the write would have stored; nothing was changed.' });

/** Query parameters of a write that can change the policy in force. */
export const activationQuery = dryRunQuery.extend({
  ...pendingQuery,
  comment: commentQuery,
  override: overrideQuery,
  rehearse: flag
    .optional()
    .describe(
      '`false` commits the write without the votes of the other nodes of the cluster. On a single node it has no effect.',
    ),
  wait: z
    .enum(['quorum', 'all'], { error: 'Must be quorum or all.' })
    .optional()
    .describe(
      'Nodes of the cluster that must enforce the write before the response: more than half, or all. After 10 s, the nodes that are late are a warning. On a single node it has no effect.',
    ),
});

export const policyWriteQuery = activationQuery.extend({
  activate: flag.optional().describe('`false` stores the policy without activating it.'),
});

/** Query parameters of a write to a stored policy that the path selects by name or id. */
export const recordWriteQuery = policyWriteQuery.extend({
  form: z
    .enum(['envelope', 'singleton'], { error: 'Must be envelope or singleton.' })
    .default('envelope')
    .describe(
      '`singleton`: the body is a PolicyConfig whose groups have modes. An existing record keeps its mode; a new record gets the mode `enforce`.',
    ),
});

/** Errors of writes that can be pending changes, or that are refused during a pending change. */
const PENDING_ERRORS = [
  'rollout_in_progress',
  'change_pending',
  'nothing_activated',
  'no_cluster',
  'assertion_failed',
] as const satisfies readonly ErrorCode[];
export const WRITE_ERRORS: readonly ErrorCode[] = [
  ...errorsOf.write,
  ...PENDING_ERRORS,
  'invalid_header',
  'invalid_body',
  'invalid_policy',
  'name_taken',
  'would_deactivate',
  'already_exists',
  'capacity_exceeded',
  'precondition_failed',
  'proof_failed',
  'body_too_large',
  'unsupported_media_type',
  'activation_timeout',
  'dataplane_unavailable',
  'overloaded',
];
/** Errors of writes without a body to a stored policy. */
export const CHANGE_ERRORS: readonly ErrorCode[] = [
  ...errorsOf.write,
  ...PENDING_ERRORS,
  'invalid_url',
  'invalid_header',
  'not_found',
  'precondition_failed',
  'activation_timeout',
  'dataplane_unavailable',
];
