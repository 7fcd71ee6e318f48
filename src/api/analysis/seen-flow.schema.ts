import { z } from 'zod';
import type { SeenFlow, SeenTime } from '#contracts/analysis/seen-flow.js';

const time = z.iso.datetime();
const count = z.int().min(0);
const connections = count.describe('Flows that were opened, or packets that passed without a flow.');

/** The members of a flow that the node has seen. */
export const seenFlowMembers = {
  folded: z.boolean().describe('Stands for several flows: `src_ip` or `dst_ip` is a network.'),
  src_ip: z.string().describe('An address, or the /64 prefix of all sources of a folded IPv6 row.'),
  dst_ip: z
    .string()
    .describe(
      'As the policy sees it, after DNAT. A network (/16 of IPv4, /32 of IPv6) if the row stands for all ports too.',
    ),
  hostname: z.string().nullable().describe('The name for which the destination was last granted.'),
  proto: z.int(),
  dst_port: z.int().nullable(),
  icmp_type: z.int().nullable(),
  icmp_code: z.int().nullable(),
  connections,
  denied: count.describe('Packets that were denied.'),
  first_seen: time,
  last_seen: time,
  last_verdict: z.enum(['allow', 'deny', 'audit', 'redirect']),
} satisfies { readonly [Name in keyof SeenFlow]: z.ZodType<SeenFlow[Name]> };

export const SeenTimeSchema = z
  .object({
    since: time.describe('All flows that passed since then, while the node recorded, are known.'),
    denied_since: time.describe('The same for flows that were only denied.'),
    until: time,
    recorded_minutes: count.describe('For how many minutes since `since` the node recorded.'),
    recording: z.boolean().describe('False while performance mode is disabled.'),
    flows: count.describe('The number of recorded flows.'),
    folded: count.describe('How many of them are folded: each stands for several flows.'),
    events_lost: count.describe('Events that were lost before they were recorded.'),
    events_not_recorded: count.describe('Events of sources that had used their share of the record.'),
  })
  .meta({ id: 'SeenTime' }) satisfies z.ZodType<SeenTime>;
