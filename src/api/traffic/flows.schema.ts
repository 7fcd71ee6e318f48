import { z } from 'zod';
import { coverageShape, scope } from '#api/nodes/ask-nodes.js';
import { instant } from '#api/openapi/answer.schema.js';
import {
  flag,
  networks,
  oneOrMore,
  pageLimit,
  ports,
  protocols,
  wholeNumber,
  wordsOf,
} from '#api/requests/query-parameters.js';
import type { FlowFilter } from '#contracts/datapath/datapath.js';
import { OwnerSchema } from './owner.schema.js';
import { sourceGroupsOf } from './source-groups.schema.js';

export const FLOW_VERDICTS = ['allow', 'deny', 'audit', 'redirect'] as const;
export const FLOW_STATES = [
  'tcp_syn_sent',
  'tcp_syn_received',
  'tcp_established',
  'tcp_half_closed',
  'tcp_closing',
  'tcp_reset',
  'udp_opened',
  'udp_replied',
  'icmp_opened',
  'icmp_replied',
  'other_opened',
  'other_replied',
] as const;

const count = z.int().min(0);
const ipAddress = z.union([z.ipv4(), z.ipv6()]);
const port = z.int().min(0).max(65_535);
const bothWays = z.object({ forward: count, reply: count });

const FlowSchema = z
  .object({
    id: z.string().describe('Identifies the flow on its node.'),
    node_id: z.string(),
    src: ipAddress.describe('The side that opened the flow.'),
    dst: ipAddress,
    src_owner: OwnerSchema.nullable()
      .default(null)
      .describe('The Kubernetes object that owns the address now; null without an owner.'),
    dst_owner: OwnerSchema.nullable().default(null),
    proto: z.int().min(0).max(255),
    src_port: port.nullable(),
    dst_port: port.nullable(),
    icmp_id: port.nullable(),
    state: z.enum(FLOW_STATES),
    verdict: z.enum(FLOW_VERDICTS).nullable().describe('Null for a foreign flow. A flow with `deny` is suspended.'),
    decided_by: z
      .enum(['rule', 'group_default', 'policy_default', 'nobody', 'policy_gone'])
      .describe(
        '`nobody`: the flow is foreign. `policy_gone`: the node no longer knows the policy that decided; the next packet is evaluated again.',
      ),
    source_group: z.string().nullable(),
    source_groups: sourceGroupsOf('by this policy'),
    rule: z.string().nullable(),
    foreign: z
      .boolean()
      .describe(
        'The first packet arrived on an interface that is not policed. Only replies of this flow may enter through policed interfaces.',
      ),
    suspended: z
      .boolean()
      .describe(
        'A policy denied the flow after it was open. The flow passes nothing, and goes on when a policy allows it before it expires.',
      ),
    generation: count
      .nullable()
      .describe('The generation of the policy that evaluated the flow; null if an earlier process activated it.'),
    current: z
      .boolean()
      .describe('The flow was evaluated with the active policy. Otherwise its next packet is evaluated again.'),
    packets: bothWays,
    bytes: bothWays,
    opened: instant,
    last_seen: instant,
    expires_in: count.describe('Seconds until the flow ends if no packet arrives.'),
    interfaces: z.object({ in: z.string().nullable(), out: z.string().nullable() }),
    translation: z
      .object({
        src: ipAddress,
        dst: ipAddress,
        src_port: port.nullable(),
        dst_port: port.nullable(),
        icmp_id: port.nullable(),
      })
      .nullable()
      .default(null)
      .describe(
        'The ends on the wire, if the node translates the flow: the source after SNAT, as the server sees it, and the destination before DNAT, as the client addresses it. Null also if conntrack has no connection for the flow.',
      ),
  })
  .meta({ id: 'Flow' });
export const FlowsSchema = z
  .object({
    matched: count.describe('The number of flows that match, on all pages.'),
    items: z.array(FlowSchema),
    next_cursor: z.string().nullable(),
    ...coverageShape,
  })
  .meta({ id: 'Flows' });
export const FlowsCutSchema = z
  .object({
    cut: count.describe('The number of flows that were removed; in a dry run, the number that would be removed.'),
    dry_run: z.boolean(),
  })
  .meta({ id: 'FlowsCut' });
export type ShownFlow = z.infer<typeof FlowSchema>;

const filterParameters = {
  src: networks,
  dst: networks,
  port: ports.describe('The port of either side.'),
  src_port: ports,
  dst_port: ports,
  proto: protocols,
  group: oneOrMore.optional(),
  rule: oneOrMore.optional(),
  verdict: wordsOf(FLOW_VERDICTS),
  state: wordsOf(FLOW_STATES),
  foreign: flag.optional(),
  current: flag.optional(),
  suspended: flag.optional(),
  min_bytes: wholeNumber(0).optional(),
};
type FilterQuery = Omit<z.infer<typeof flowsQuery>, 'limit' | 'cursor' | 'scope'>;

export const flowsQuery = z.strictObject({
  ...filterParameters,
  scope: scope.describe('`cluster`: the flows of all nodes, node by node. `node`: only this node.'),
  limit: pageLimit(100, 1_000),
  cursor: z
    .string()
    .regex(/^([\w-]{22}|[\w-]{54})(@.{1,253})?$/, 'Must be the `next_cursor` of a response.')
    .optional(),
});
export const cutQuery = z.strictObject({
  ...filterParameters,
  all: flag.optional().describe('Removes all flows. Without `all`, another parameter must select flows.'),
  dry_run: flag.optional(),
});

export function filterOf(query: FilterQuery): FlowFilter {
  return {
    sources: query.src ?? [],
    destinations: query.dst ?? [],
    ports: query.port ?? [],
    sourcePorts: query.src_port ?? [],
    destinationPorts: query.dst_port ?? [],
    protocols: query.proto ?? [],
    groups: query.group ?? [],
    rules: query.rule ?? [],
    verdicts: query.verdict ?? [],
    states: query.state ?? [],
    foreign: query.foreign,
    current: query.current,
    suspended: query.suspended,
    minBytes: query.min_bytes ?? 0,
  };
}

/** Returns whether the flow filter has a parameter. A request to cut flows needs a filter or `all`. */
export function selects(query: FilterQuery): boolean {
  return Object.keys(filterParameters).some((name) => query[name as keyof FilterQuery] !== undefined);
}
