import { z } from 'zod';
import { FINDING_TYPES, LISTED_TYPES } from '#observe/findings/finding.js';
import type { FindingFilter, FindingPage } from '#observe/findings/finding-filter.js';
import { shownFinding } from '#observe/findings/finding-json.js';
import { readCursor } from '#observe/findings/keys.js';
import { readNetwork } from '#observe/findings/network-filter.js';
import { instant } from './answer.schema.js';
import { FEW, few, listOf, oneOrMore } from './query-parameters.js';

const count = z.int().min(0);
const FindingSchema = z
  .object({
    id: z.string().describe('Of this node; the same for as long as the finding is kept.'),
    finding_type: z
      .enum(FINDING_TYPES)
      .describe('`config_change`: a write of the API. `gap`: events that were lost, at `target`.'),
    policy_id: z.string().nullable(),
    generation: count.nullable().describe('Of the policy that decided last.'),
    source_group: z.string().nullable(),
    rule: z.string().nullable(),
    decided_by: z.enum(['rule', 'group_default', 'policy_default']).nullable(),
    src_ip: z.union([z.ipv4(), z.ipv6()]).nullable(),
    dst_ip: z.union([z.ipv4(), z.ipv6()]).nullable(),
    dst_port: z.int().min(0).max(65_535).nullable(),
    proto: z.int().min(0).max(255).nullable(),
    hostname: z.string().nullable(),
    sni: z.string().nullable(),
    http: z.object({ method: z.string(), host: z.string(), path: z.string() }).nullable(),
    icmp_type: z.int().min(0).max(255).nullable(),
    icmp_code: z.int().min(0).max(255).nullable(),
    drop_reason: z.string().nullable().describe('Of `auth_denied`: the error code that was answered.'),
    reason: z
      .string()
      .nullable()
      .describe('Of `tls_deny` and `http_deny`: why, beside what the rule says, such as `no_ca`.'),
    effective_action: z.enum(['allow', 'deny']),
    actor: z.string().nullable().describe('Subject of the token.'),
    operation: z.string().nullable().describe('Operation of this API.'),
    target: z.string().nullable().describe('What the operation was on: a path.'),
    remote: z.string().nullable().describe('Address that the request came from.'),
    status: z.int().nullable().describe('The response to a write.'),
    etag: z.string().nullable().describe('Of what was written.'),
    first_seen: instant,
    last_seen: instant,
    count: z.int().min(1),
    node_ids: z.array(z.string()),
  })
  .meta({ id: 'Finding', description: 'Equal denies are merged into one finding with a count.' });
export const FindingsSchema = z
  .object({
    items: z.array(FindingSchema),
    next_cursor: z.string().nullable(),
    partial: z.boolean().describe('A node did not answer.'),
    node_errors: z.array(z.object({ node_id: z.string(), error: z.string() })),
    nodes_queried: count,
    nodes_responded: count,
  })
  .meta({ id: 'Findings' });

const INSTANT = { error: 'Must be a time in UTC such as 2026-01-31T12:00:00Z.' };
const LIMIT = { error: 'Must be a whole number from 1 to 1000.' };

const names = oneOrMore.optional().refine(few, FEW);
const networks = listOf(readNetwork, 'Must be an address or a CIDR such as 10.0.0.0/8 or 2001:db8::/32.').refine(
  few,
  FEW,
);

export const findingsQuery = z.strictObject({
  finding_type: listOf(
    (text) => FINDING_TYPES.find((type) => type === text),
    `Must be one of ${FINDING_TYPES.join(', ')}.`,
  ).refine(few, FEW),
  source_group: names,
  rule: names,
  policy_id: names,
  src: networks,
  dst: networks,
  since: z.iso.datetime(INSTANT).optional().describe('Seen last at this time or later.'),
  until: z.iso.datetime(INSTANT).optional(),
  limit: z.coerce
    .number(LIMIT)
    .int(LIMIT)
    .min(1, LIMIT)
    .max(1_000, LIMIT)
    .optional()
    .describe(
      'Of a page, 100 unless told otherwise; of all lines with `format=jsonl`, then without a limit of its own.',
    ),
  cursor: z
    .string()
    .refine((text) => readCursor(text) !== null, { error: 'Must be a cursor that an answer gave.' })
    .optional(),
  format: z
    .enum(['json', 'jsonl'], { error: 'Must be json or jsonl.' })
    .default('json')
    .describe('`jsonl`: every finding that matches, one JSON object a line.'),
});

export function filterOf(query: z.infer<typeof findingsQuery>): FindingFilter {
  return {
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

/**
 * Converts a page of findings of one node to the response body. `nodeId` is the only node id of each finding.
 */
export function shownPage({ items, next }: FindingPage, nodeId: string): z.infer<typeof FindingsSchema> {
  return {
    items: items.map((finding) => shownFinding(finding, nodeId)),
    next_cursor: next,
    partial: false,
    node_errors: [],
    nodes_queried: 1,
    nodes_responded: 1,
  };
}
