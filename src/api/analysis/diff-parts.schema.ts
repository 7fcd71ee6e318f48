import { z } from 'zod';
import { DeciderSchema } from './flow-region.schema.js';

export const effects = ['opens', 'closes', 'inspection', 'audit'] as const;
export const causeMembers = {
  part: z.enum(['rule', 'group', 'group_default', 'policy_default']),
  change: z
    .enum(['added', 'removed', 'changed', 'moved', 'sources'])
    .describe('`sources`: the sources of the group changed. `moved`: only the place in the order of evaluation.'),
  source_group: z.string().nullable(),
  rule: z.string().nullable(),
};
export const Inspected = DeciderSchema.extend({
  inspected: z.boolean().describe('Whether the service plane inspects the flow.'),
}).meta({ id: 'InspectedFlowDecider' });
