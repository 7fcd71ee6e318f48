import { z } from 'zod';
import { LINT_CHECKS, type PolicyLint } from '#contracts/analysis/policy-lint.js';
import { portSchema } from '#policy/document/policy-schema.js';
import { DeciderSchema, regionMembers } from './flow-region.schema.js';

export const LintCheckSchema = z.enum(LINT_CHECKS).meta({
  id: 'LintCheck',
  description:
    '`unreachable`: no flow and no DNS lookup reaches a rule or a group. `removable`: without a rule its flows are decided alike. ' +
    '`mergeable`: rules that are alike but for one list of matchers can be one rule. ' +
    '`conflict`: an allow and a deny of one group match common flows, each also matches others, and their order decides.',
});

const EditSchema = z
  .discriminatedUnion('edit', [
    z.object({ edit: z.literal('remove_group'), source_group: z.string() }),
    z.object({ edit: z.literal('remove_rule'), source_group: z.string(), rule: z.string() }),
    z.object({
      edit: z.literal('replace_rule'),
      source_group: z.string(),
      rule: z.string(),
      match: z
        .object({
          dst_cidrs: z.array(z.string()).optional(),
          dst_ports: z.array(portSchema).optional(),
          src_ports: z.array(portSchema).optional(),
          icmp_types: z.array(z.int()).optional(),
          icmp_codes: z.array(z.int()).optional(),
        })
        .describe('Matchers of the rule in place of those of the same name. The other matchers stay.'),
      remove: z.array(z.string()).describe('The rules that are removed.'),
    }),
    z.object({
      edit: z.literal('move_rule'),
      source_group: z.string(),
      rule: z.string(),
      before: z.string().describe('The rule directly before which the moved rule is evaluated.'),
    }),
  ])
  .meta({ id: 'LintEdit', description: 'An edit of a policy document, by the ids of groups and rules.' });

const diffMembers = {
  verdict: z.enum(['equal', 'opens', 'closes', 'both', 'neither']),
  summary: z.string(),
  complete: z.boolean().describe('False if the limit of steps was reached.'),
};

export const PolicyLintSchema = z
  .object({
    summary: z.string().describe('One sentence.'),
    complete: z
      .boolean()
      .describe('False if the limit of steps was reached. The findings are then a part of all findings.'),
    left: z
      .array(z.object({ check: LintCheckSchema, source_groups: z.array(z.string()), omitted: z.int().min(0) }))
      .describe('The groups at which a check did not look. `omitted`: how many are not listed.'),
    findings: z.array(
      z.object({
        check: LintCheckSchema,
        source_group: z.string(),
        rules: z.array(z.string()).describe('In the order of evaluation. Empty: the whole group.'),
        message: z.string(),
        by: z
          .array(DeciderSchema)
          .describe('`unreachable`: what decides the flows of the rule. `removable`: what decides them without it.'),
        by_omitted: z.int().min(0),
        edit: EditSchema,
        diff: z
          .object(diffMembers)
          .meta({ id: 'EditDiff' })
          .describe('The difference that the edit makes alone. Only the edit of a conflict changes flows.'),
        region: z
          .object(regionMembers)
          .nullable()
          .describe('Flows that both rules of a conflict match, and that the edit changes. Otherwise null.'),
      }),
    ),
    omitted: z
      .object({
        unreachable: z.int().min(0),
        removable: z.int().min(0),
        mergeable: z.int().min(0),
        conflict: z.int().min(0),
      })
      .describe('The number of findings of each check that are not listed.'),
    together: z
      .object({ ...diffMembers, edits: z.int().min(0).describe('The number of edits.') })
      .describe(
        'The difference that all edits of the listed findings make together, without conflicts. They change no flow.',
      ),
  })
  .meta({
    id: 'PolicyLint',
    description: 'Rules that can be removed or merged without any change for flows and DNS lookups, and conflicts.',
  }) satisfies z.ZodType<PolicyLint>;
