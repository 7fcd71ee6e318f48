import { z } from 'zod';
import { coverageShape, ONE_NODE } from '#api/nodes/ask-nodes.js';
import { instant } from '#api/openapi/answer.schema.js';
import { FEW, few, listOf, oneOrMore, wholeNumber, wordsOf } from '#api/requests/query-parameters.js';
import { OwnerSchema } from '#api/traffic/owner.schema.js';
import { sourceGroupsOf } from '#api/traffic/source-groups.schema.js';
import { FINDING_TYPES, LISTED_TYPES } from '#observe/findings/finding.js';
import type { FindingFilter, FindingPage } from '#observe/findings/finding-filter.js';
import { shownFinding } from '#observe/findings/finding-json.js';
import { readNetwork } from '#observe/findings/network-filter.js';
import { readCursor } from '#observe/findings/store/index-keys.js';
import { instantSchema } from './instant.schema.js';

const count = z.int().min(0);
const FindingSchema = z
  .object({
    id: z
      .string()
      .describe('It does not change while the finding is stored. Equal findings have the same id on all nodes.'),
    finding_type: z
      .enum(FINDING_TYPES)
      .describe(
        '`config_change`: a write by this API. `gap`: events were lost; `target` names the place. `cluster_contradiction`: etcd contradicted this node; `reason` names the kind. `address_shared`: different objects of the integrations in `target` own the address `src_ip`, so that no allow rule by a selector matches it. `value_unreadable`: the value of the key `target` in etcd does not match its schema, so that nothing uses it; `reason` tells why.',
      ),
    policy_id: z.string().nullable(),
    generation: count.nullable().describe('The generation of the policy that made the latest decision.'),
    source_group: z.string().nullable(),
    source_groups: sourceGroupsOf('at the latest event'),
    rule: z.string().nullable(),
    decided_by: z.enum(['rule', 'group_default', 'policy_default']).nullable(),
    src_ip: z.union([z.ipv4(), z.ipv6()]).nullable(),
    dst_ip: z.union([z.ipv4(), z.ipv6()]).nullable(),
    src_owner: OwnerSchema.nullable()
      .default(null)
      .describe('The Kubernetes object that owned the address when the packet was seen; null without an owner.'),
    dst_owner: OwnerSchema.nullable().default(null),
    dst_port: z.int().min(0).max(65_535).nullable(),
    translation: z
      .object({ dst_ip: z.ipv4(), dst_port: z.int().min(0).max(65_535).nullable() })
      .nullable()
      .default(null)
      .describe('The destination before DNAT, as the client addresses it, if the node has translated it.'),
    proto: z.int().min(0).max(255).nullable(),
    hostname: z.string().nullable(),
    sni: z.string().nullable(),
    http: z.object({ method: z.string(), host: z.string(), path: z.string() }).nullable(),
    icmp_type: z.int().min(0).max(255).nullable(),
    icmp_code: z.int().min(0).max(255).nullable(),
    drop_reason: z
      .string()
      .nullable()
      .describe('Why the packet was dropped. For `auth_denied`: the error code of the response.'),
    reason: z
      .string()
      .nullable()
      .describe(
        'For `tls_deny` and `http_deny`: the reason if it is not the rule itself, such as `no_ca`. For `cluster_contradiction`: `older`, `forked`, `wiped`, `other_cluster`, `own_policies` or `unreadable`. For `value_unreadable`: what does not match the schema.',
      ),
    effective_action: z.enum(['allow', 'deny']),
    actor: z.string().nullable().describe('Subject of the token.'),
    operation: z.string().nullable().describe('The operationId of this API.'),
    target: z.string().nullable().describe('The path that the operation addressed.'),
    remote: z.string().nullable().describe('The client address of the request.'),
    status: z.int().nullable().describe('The HTTP status of the response to a write.'),
    etag: z.string().nullable().describe('The ETag of the written resource.'),
    first_seen: instant,
    last_seen: instant,
    count: z.int().min(1),
    node_ids: z.array(z.string()).describe('The nodes that have the finding. `count` is the sum over these nodes.'),
  })
  .meta({ id: 'Finding', description: 'Equal denies are merged into one finding. `count` is their number.' });
export const FindingsSchema = z
  .object({
    items: z.array(FindingSchema),
    next_cursor: z.string().nullable(),
    ...coverageShape,
  })
  .meta({ id: 'Findings' });

const names = oneOrMore.optional().refine(few, FEW);
const networks = listOf(readNetwork, 'Must be an address or a CIDR such as 10.0.0.0/8 or 2001:db8::/32.').refine(
  few,
  FEW,
);

/** The maximum number of ids in a query, so that they fit into the request line of HTTP. */
export const MAX_IDS = 200;
const ids = listOf(
  (text) => (/^[0-9a-f]{32}$/.test(text) ? text : undefined),
  'Must be the `id` of a finding: 32 hexadecimal digits.',
).refine((values) => (values?.length ?? 0) <= MAX_IDS, { error: `Must be given at most ${MAX_IDS} times.` });

export const findingsQuery = z.strictObject({
  id: ids,
  finding_type: wordsOf(FINDING_TYPES).refine(few, FEW),
  source_group: names,
  rule: names,
  policy_id: names,
  src: networks,
  dst: networks,
  since: instantSchema.optional().describe('Only findings whose `last_seen` is this time or later.'),
  until: instantSchema.optional(),
  limit: wholeNumber(1, 1_000)
    .optional()
    .describe(
      'The number of findings in a page (default: 100). With `format=jsonl`: the number of lines (default: no limit).',
    ),
  cursor: z
    .string()
    .refine((text) => readCursor(text) !== null, { error: 'Must be the `next_cursor` of a response.' })
    .optional(),
  format: z
    .enum(['json', 'jsonl'], { error: 'Must be json or jsonl.' })
    .default('json')
    .describe('`jsonl`: all findings that match, one JSON object per line.'),
});

export function filterOf(query: z.infer<typeof findingsQuery>): FindingFilter {
  return {
    ids: query.id ?? [],
    types: query.finding_type ?? LISTED_TYPES,
    policyIds: query.policy_id ?? [],
    sourceGroups: query.source_group ?? [],
    rules: query.rule ?? [],
    sources: query.src ?? [],
    destinations: query.dst ?? [],
    sinceMs: query.since === undefined ? null : Date.parse(query.since),
    untilMs: query.until === undefined ? null : Date.parse(query.until),
  };
}

/** Returns a page of findings in the form of the API. `nodeId`: the node that has seen all of them. */
export function shownPage({ items, next }: FindingPage, nodeId: string): z.infer<typeof FindingsSchema> {
  return {
    items: items.map((finding) => shownFinding(finding, nodeId)),
    next_cursor: next,
    ...ONE_NODE,
  };
}
