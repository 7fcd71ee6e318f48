import { z } from 'zod';
import { LIMITS } from './limits.js';
import { portSchema, protoSchema } from './policy-schema.js';

const addresses = z
  .array(z.string())
  .describe('Addresses and networks in CIDR notation. Those of IPv6 need `dataplane.ipv6: enforce`.');

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

const id = z.string().regex(/^[^\p{C},]{1,253}$/u, { error: 'Must be 1 to 253 printable characters without commas.' });
const options = {
  judge: z
    .enum(['effective', 'enforced'])
    .optional()
    .describe('`effective`: an audited deny passes its flows. `enforced`: it counts as a deny. Default: effective.'),
  on_failure: z
    .enum(['refuse', 'warn'])
    .optional()
    .describe('Whether a policy write that breaks the assertion is refused, or has a warning. Default: refuse.'),
};

const revision = z.strictObject({
  revision: z.int().min(1),
  policy: z.string().min(1).max(LIMITS.nameLength).optional().describe('Id or name. Default: the policy in force.'),
});
const file = z.strictObject({ file: z.string().min(1).describe('A policy file.') });

const assertionWith = <Id extends z.ZodType, Since extends z.ZodType>(named: Id, since: Since) => {
  const common = { id: named, ...options };
  return z.union([
    z.strictObject({ ...common, never: flows.describe('No such flow passes, under any condition.') }),
    z.strictObject({ ...common, always: flows.describe('Every such flow passes, under every condition.') }),
    z.strictObject({
      ...common,
      only: flows
        .required({ from: true })
        .describe('Such flows pass from no other source than those in `from`; these sources need not pass.'),
    }),
    z.strictObject({
      ...common,
      opens_nothing_since: since.describe('No flow passes that this former policy denied.'),
    }),
  ]);
};

/** An assertion of a node. */
export const assertionSchema = assertionWith(id, revision);
/** An assertion without its id, which the path of a request has. */
export const pathAssertionSchema = assertionWith(id.optional(), revision);

/** A document with assertions: statements about flows that a policy must fulfil. */
export const assertionsSchema = z.strictObject({ assertions: z.array(assertionSchema).max(LIMITS.assertions) });

/** A document for `weir policy test`, which compares with policy files too. */
export const testedAssertionsSchema = z.strictObject({
  assertions: z.array(assertionWith(id, z.union([revision, file]))).max(LIMITS.assertions),
});
