import { z } from 'zod';
import { ShownPacketSchema } from '#api/policies/packet.schema.js';
import type { FlowCondition, FlowRegion } from '#contracts/analysis/flow-region.js';
import { kubernetesSourceSchema, tlsMatchSchema } from '#policy/document/policy-schema.js';

export const decimal = z.string().regex(/^\d+$/).describe('A decimal number, which can exceed 2^53.');

export const AddressSetSchema = z
  .object({
    networks: z.array(z.string()).describe('Networks in CIDR notation, of IPv4 and of IPv6 (RFC 5952).'),
    except: z.array(z.string()).describe('Networks that are not in the set.'),
    omitted: z.int().min(0).describe('The number of networks that the two lists leave out.'),
    addresses: decimal.describe('The number of addresses in the set.'),
  })
  .meta({ id: 'AddressSet', description: 'A set of addresses: the networks, without those in `except`.' });

const ServiceSetSchema = z
  .object({
    services: z.array(z.string()),
    except: z.array(z.string()),
    omitted: z.int().min(0),
  })
  .meta({
    id: 'ServiceSet',
    description:
      'Protocols with destination ports, or ICMP types and codes: `tcp/22`, `udp/8000-8100`, `icmp/8`, `icmpv6/128`, `any`.',
    examples: [{ services: ['tcp/22', 'tcp/443'], except: [], omitted: 0 }],
  });

export const ConditionSchema = z
  .union([
    z.object({ kind: z.literal('hostname'), pattern: z.string() }),
    z.object({ kind: z.enum(['selected', 'unresolved']), selector: kubernetesSourceSchema }),
    z.object({ kind: z.literal('deny_only') }),
    z.object({ kind: z.literal('tls'), state: z.enum(['matches', 'may_match', 'hidden']), tls: tlsMatchSchema }),
  ])
  .meta({
    id: 'FlowCondition',
    description:
      'What must hold for a flow beside its addresses, protocol and ports. `hostname`: the destination is granted for the pattern. ' +
      '`selected`: the Kubernetes selector selects the source. `unresolved`: the selector is not resolved. `deny_only`: the source is deny-only. ' +
      '`tls`: the connection matches the TLS matchers; `may_match` holds also if this is unknown; `hidden`: only the certificate of the server is hidden.',
  }) satisfies z.ZodType<FlowCondition>;

export const DeciderSchema = z
  .object({
    decision: z.enum(['allow', 'deny']),
    mode: z.enum(['audit', 'enforce']),
    source_group: z.string().nullable(),
    rule: z.string().nullable(),
  })
  .meta({
    id: 'FlowDecider',
    description:
      'The rule that decides. `rule` is null for a default, and both ids are null for the default of the policy.',
  });

export const regionMembers = {
  sources: AddressSetSchema.describe('Of the same IP family as the destinations.'),
  destinations: AddressSetSchema,
  services: ServiceSetSchema,
  source_ports: z.array(z.string()).describe('Empty: every source port.'),
  conditions: z.array(ConditionSchema).describe('All of these hold.'),
  unless: z
    .array(z.array(ConditionSchema))
    .describe(
      'The statement about the region is not true for flows for which all conditions of one of these sets hold.',
    ),
  flows: decimal.describe('The number of flows in the region.'),
  example: ShownPacketSchema.extend({ hostname: z.string().optional() }).describe(
    'One flow of the region, in the form of an explain request.',
  ),
};

z.object(regionMembers) satisfies z.ZodType<FlowRegion>;
