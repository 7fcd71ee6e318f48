import { z } from 'zod';
import { LIMITS } from './limits.js';
import { portSchema, protoSchema } from './policy-schema.js';

const addresses = z.array(z.string()).describe('Addresses and networks in CIDR notation.');

/** The flows that a question or an assertion is about. A field that is left out means every value. */
export const flowQuestionFields = {
  from: z
    .union([addresses, z.strictObject({ group: z.string().min(1).describe('The id of a source group.') })])
    .optional(),
  to: addresses.optional(),
  name: z
    .string()
    .min(1)
    .max(254)
    .optional()
    .describe('The destination is granted for this name, and for no other name.'),
  proto: protoSchema.optional(),
  ports: z.array(portSchema).optional().describe('Destination ports. Without `proto`, they are TCP ports.'),
  src_ports: z.array(portSchema).optional(),
  icmp_types: z.array(z.int().min(0).max(255)).optional(),
};
const flows = z.strictObject(flowQuestionFields);

const common = {
  id: z.string().min(1).max(253),
  judge: z
    .enum(['effective', 'enforced'])
    .optional()
    .describe('`effective`: an audited deny passes its flows. `enforced`: it counts as a deny. Default: effective.'),
};

/** A document with assertions: statements about flows that a policy must fulfil. */
export const assertionsSchema = z.strictObject({
  assertions: z
    .array(
      z.union([
        z.strictObject({ ...common, never: flows.describe('No such flow passes, under any condition.') }),
        z.strictObject({ ...common, always: flows.describe('Every such flow passes, under every condition.') }),
        z.strictObject({
          ...common,
          only: flows
            .required({ from: true })
            .describe('Such flows pass from no other source than those in `from`; these sources need not pass.'),
        }),
      ]),
    )
    .max(LIMITS.assertions),
});
