import type { Command } from 'commander';
import { z } from 'zod';
import { createClient } from '#cli/client/client.js';
import { type Output, parseReply, print, remote, withQuery } from '#cli/client/remote.js';
import { numberUpTo } from '#cli/number.js';
import { relativeTime } from '#cli/output/relative-time.js';
import { type Style, styleOf } from '#cli/output/style.js';
import { table } from '#cli/output/table.js';
import type { Terminal } from '#cli/output/terminal.js';
import { visible } from '#cli/output/visible.js';
import { serviceText } from './flow-words.js';
import { instant, SINCE } from './instant.js';
import type { ListOptions } from './list-options.js';

const pageSchema = z.looseObject({
  matched: z.number(),
  items: z.array(
    z.looseObject({
      src_ip: z.string(),
      dst_ip: z.string(),
      hostname: z.string().nullable(),
      proto: z.number(),
      dst_port: z.number().nullable(),
      icmp_type: z.number().nullable(),
      connections: z.number(),
      denied: z.number(),
      first_seen: z.string(),
      last_seen: z.string(),
      last_verdict: z.string(),
    }),
  ),
  coverage: z.looseObject({ since: z.string(), recording: z.boolean(), events_lost: z.number() }),
});
type Page = z.infer<typeof pageSchema>;

/** The highest value of the query parameter `limit`. */
const MOST = 1_000;

type Options = Output &
  ListOptions<'src' | 'dst' | 'dstPort' | 'proto' | 'hostname' | 'verdict'> & {
    readonly since?: string;
    readonly byCount?: boolean;
    readonly limit: number;
  };

/** Adds `weir flows seen` to the command `flows`. */
export function addSeenFlowsCommand(flows: Command, terminal: Terminal): void {
  remote(flows.command('seen'))
    .description('list the flows that the node has seen in the last days, the latest first')
    .option('--src <cidr...>', 'from these addresses')
    .option('--dst <cidr...>', 'to these addresses')
    .option('--dst-port <port...>', 'to these ports, such as 443 or 8000-8100')
    .option('--proto <protocol...>', 'of these protocols, by name or number')
    .option('--hostname <hostname...>', 'to addresses that were granted for these names, such as *.example.com')
    .option('--verdict <flow-verdict...>', 'whose last verdict is allow, deny, audit or redirect')
    .option('--since <time>', SINCE, instant)
    .option('--by-count', 'the most frequent first')
    .option('--limit <count>', 'the maximum number', numberUpTo(MOST), 100)
    .action(async (options: Options) => {
      const { src, dst, dstPort, proto, hostname, verdict, since, byCount, limit } = options;
      const path = withQuery('/api/v1/flows/seen', {
        ...{ src, dst, dst_port: dstPort, proto, hostname, verdict, since, limit },
        order: byCount === true ? 'count' : undefined,
      });
      const page = parseReply(pageSchema, await createClient(options, terminal).request(path));
      print(terminal, options.output, page, (shown) => tableOf(shown, styleOf(terminal)));
      if (options.output === 'table') for (const line of notesOf(page)) terminal.err(`${line}\n`);
    });
}

function tableOf({ items }: Page, style: Style): string {
  return table(
    ['LAST SEEN', 'VERDICT', 'SOURCE', 'DESTINATION', 'SERVICE', 'PASSED', 'DENIED', 'FIRST SEEN'],
    items.map((flow) => [
      style.dim(relativeTime(flow.last_seen)),
      style.verdict(flow.last_verdict),
      flow.src_ip,
      flow.hostname === null ? flow.dst_ip : `${visible(flow.hostname)} (${flow.dst_ip})`,
      serviceText(flow),
      String(flow.connections),
      String(flow.denied),
      relativeTime(flow.first_seen),
    ]),
  );
}

function notesOf({ matched, items, coverage }: Page): string[] {
  const { since, recording, events_lost: lost } = coverage;
  return [
    ...(matched > items.length ? [`${items.length} of ${matched} flows; --limit shows more`] : []),
    `recorded since ${relativeTime(since)}${lost > 0 ? `; ${lost} events were lost` : ''}`,
    ...(recording ? [] : ['flows are not recorded now: performance mode is disabled']),
  ];
}
