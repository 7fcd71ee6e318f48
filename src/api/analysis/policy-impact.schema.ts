import { z } from 'zod';
import type { PolicyImpact } from '#contracts/analysis/policy-impact.js';
import { causeMembers, effects, Inspected } from './diff-parts.schema.js';

const time = z.iso.datetime();
const count = z.int().min(0);
const counts = {
  flows: count,
  connections: count.describe('How often they were seen: flows that were opened, or packets that were denied.'),
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
    coverage: z.object({
      since: time.describe('All flows that passed since then, while the node recorded, were looked at.'),
      denied_since: time.describe('The same for flows that were only denied.'),
      until: time,
      recorded_minutes: count.describe('For how many minutes since `since` the node recorded.'),
      recording: z.boolean().describe('False while performance mode is disabled.'),
      flows: count.describe('The number of flows that were looked at.'),
      folded: count.describe('How many of them stand for all flows of one source and protocol to a /16 network.'),
      events_lost: count.describe('Events that were lost before they were recorded.'),
      events_not_recorded: count.describe('Events of sources that had used their share of the record.'),
    }),
    effects: z.object(
      Object.fromEntries(effects.map((effect) => [effect, Effect])) as Record<(typeof effects)[number], typeof Effect>,
    ),
    flows: z
      .array(
        z
          .object({
            effect: z.enum(effects),
            depends: z.boolean().describe('Facts that are not recorded decide whether the change affects the flow.'),
            folded: z.boolean().describe('Stands for all flows of the source and protocol to the network `dst_ip`.'),
            src_ip: z.string(),
            dst_ip: z.string().describe('As the policy sees it, after DNAT.'),
            hostname: z.string().nullable().describe('The name for which the destination was last granted.'),
            proto: z.int(),
            dst_port: z.int().nullable(),
            icmp_type: z.int().nullable(),
            icmp_code: z.int().nullable(),
            connections: counts.connections,
            first_seen: time,
            last_seen: time,
            last_verdict: z.enum(['allow', 'deny', 'audit', 'redirect']),
            before: Inspected,
            after: Inspected,
            cause: z.object(causeMembers).nullable(),
          })
          .meta({ id: 'ImpactFlow' }),
      )
      .describe('What closes comes first, then what opens; within them the flow that was seen most often.'),
    flows_omitted: count,
  })
  .meta({
    id: 'PolicyImpact',
    description:
      'Which of the flows that this node has seen a change affects. A flow is a source, a destination, a protocol and a destination port.',
  }) satisfies z.ZodType<PolicyImpact>;
