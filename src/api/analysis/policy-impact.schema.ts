import { z } from 'zod';
import type { PolicyImpact } from '#contracts/analysis/policy-impact.js';
import { causeMembers, effects, Inspected } from './diff-parts.schema.js';
import { SeenTimeSchema, seenFlowMembers } from './seen-flow.schema.js';

const count = z.int().min(0);
const counts = {
  flows: count,
  connections: count.describe('How often these flows passed; of flows that open, how often they were denied.'),
};
const Effect = z
  .object({
    ...counts,
    depends: z
      .object(counts)
      .describe('Further flows: facts that are not recorded decide, such as TLS, a selector or a source port.'),
  })
  .meta({ id: 'ImpactCount' });

export const PolicyImpactSchema = z
  .object({
    node: z.string().describe('The node that has seen the flows.'),
    summary: z.string().describe('One sentence.'),
    coverage: SeenTimeSchema,
    effects: z.object(
      Object.fromEntries(effects.map((effect) => [effect, Effect])) as Record<(typeof effects)[number], typeof Effect>,
    ),
    flows: z
      .array(
        z
          .object({
            effect: z.enum(effects),
            depends: z.boolean().describe('Facts that are not recorded decide whether the change affects the flow.'),
            ...seenFlowMembers,
            before: Inspected,
            after: Inspected,
            cause: z.object(causeMembers).nullable(),
          })
          .meta({ id: 'ImpactFlow' }),
      )
      .describe(
        'Flows that close come first, then flows that open. Within an effect, the most frequent flow comes first.',
      ),
    flows_omitted: count,
  })
  .meta({
    id: 'PolicyImpact',
    description:
      'Which of the flows that this node has seen a change affects. A flow is a source, a destination, a protocol and a destination port.',
  }) satisfies z.ZodType<PolicyImpact>;
