import { z } from 'zod';
import type { AskAnswer } from '#contracts/analysis/flow-question.js';
import type { PolicyDiff } from '#contracts/analysis/policy-diff.js';
import { causeMembers, effects, Inspected } from './diff-parts.schema.js';
import { AddressSetSchema, ConditionSchema, DeciderSchema, decimal, regionMembers } from './flow-region.schema.js';
import { PolicyImpactSchema } from './policy-impact.schema.js';

export const PolicyDiffSchema = z
  .object({
    verdict: z
      .enum(['equal', 'opens', 'closes', 'both', 'neither'])
      .describe('`neither`: no flow opens or closes, but some change otherwise.'),
    summary: z.string().describe('One sentence.'),
    complete: z
      .boolean()
      .describe('False if the limit of steps was reached. The regions are then a part of all changes.'),
    left: AddressSetSchema.nullable().describe('The sources that were not compared.'),
    flows: z.object(
      Object.fromEntries(effects.map((effect) => [effect, decimal])) as Record<
        (typeof effects)[number],
        typeof decimal
      >,
    ),
    notices: z
      .array(
        z.object({
          code: z.enum([
            'opened_to_any_source',
            'opened_to_any_destination',
            'other_group',
            'opened_by_name',
            'unreachable_rule',
          ]),
          text: z.string(),
        }),
      )
      .describe('Answers to questions that operators often ask about a change.'),
    causes: z.array(z.object({ ...causeMembers, opens: decimal, closes: decimal, others: decimal, regions: z.int() })),
    causes_omitted: z.int().min(0),
    regions: z.array(
      z.object({
        ...regionMembers,
        effect: z
          .enum(effects)
          .describe(
            '`opens`: the flows were denied, and pass. `closes`: the reverse. `inspection`: the service plane begins or ceases to inspect them. `audit`: they pass as before, and are reported otherwise.',
          ),
        before: Inspected,
        after: Inspected,
        cause: z.object(causeMembers).nullable(),
      }),
    ),
    regions_omitted: z.int().min(0),
    flows_omitted: decimal.describe('The number of flows in the regions that are not listed.'),
    lookups: z
      .array(
        z.object({
          effect: z.enum(['opens', 'closes', 'audit']),
          sources: AddressSetSchema,
          names: z.string().describe('The hostname pattern; `*`: all names that no other pattern decides.'),
          conditions: z.array(ConditionSchema),
          before: DeciderSchema.pick({ decision: true, mode: true }).meta({ id: 'LookupDecision' }),
          after: DeciderSchema.pick({ decision: true, mode: true }).meta({ id: 'LookupDecisionAfter' }),
        }),
      )
      .describe('The changes of DNS lookups.'),
    lookups_omitted: z.int().min(0),
    impact: PolicyImpactSchema.nullable().describe('Null if the flows that this node has seen cannot be read.'),
    impact_unavailable: z.string().nullable().describe('Why `impact` is null.'),
  })
  .meta({
    id: 'PolicyDiff',
    description: 'What a change does to flows. What opens comes first.',
  }) satisfies z.ZodType<PolicyDiff>;

const DecidedRegion = z.object({ ...regionMembers, decider: DeciderSchema });

export const AskAnswerSchema = z
  .object({
    answer: z.enum(['never', 'always', 'sometimes']).describe('Whether the flows pass.'),
    summary: z.string(),
    complete: z.boolean(),
    left: AddressSetSchema.nullable(),
    flows: z.object({ passing: decimal, denied: decimal }),
    passing: z.array(DecidedRegion),
    passing_omitted: z.int().min(0),
    passing_sources: AddressSetSchema.nullable().describe('All sources with flows that pass; null if none pass.'),
    denied: z.array(DecidedRegion),
    denied_omitted: z.int().min(0),
    obstacles: z
      .array(
        z.object({
          decider: DeciderSchema,
          flows: decimal,
          remedy: z
            .object({
              source_group: z.string().nullable().describe('Null: no group contains the sources. Add a group.'),
              before: z.string().nullable().describe('The rule before which the new rule belongs; null: at the end.'),
              rule: z.record(z.string(), z.unknown()),
            })
            .nullable()
            .describe('The rule that lets these flows pass. Null if the question names no destination.'),
        }),
      )
      .describe('The rules and defaults that deny flows; the one that denies most flows first.'),
  })
  .meta({
    id: 'PolicyAnswer',
    description: 'Whether flows pass, which rules decide them, and what stands in the way.',
  }) satisfies z.ZodType<AskAnswer>;
