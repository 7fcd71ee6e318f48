import type { Command } from 'commander';
import { z } from 'zod';
import { append } from '#arrays/append.js';
import { type Client, createClient } from '#cli/client/client.js';
import { type Output, type Parameter, parseReply, print, remote, streamed, withQuery } from '#cli/client/remote.js';
import { wholeNumber } from '#cli/number.js';
import { relativeTime } from '#cli/output/relative-time.js';
import { styleOf } from '#cli/output/style.js';
import { table } from '#cli/output/table.js';
import type { Terminal } from '#cli/output/terminal.js';
import { pause } from '#cli/pause.js';
import { instant, SINCE } from './instant.js';
import type { ListOptions } from './list-options.js';
import { NodeErrors, nodeErrorsSchema } from './node-errors.js';
import { FINDING_TITLES, type Finding, findingRow, findingSchema, identityOf } from './shown-finding.js';

const pageSchema = z.looseObject({
  items: z.array(findingSchema),
  next_cursor: z.string().nullable(),
  node_errors: nodeErrorsSchema,
});

type Filters = Readonly<Record<string, Parameter>>;
type Options = Output &
  ListOptions<'type' | 'group' | 'rule' | 'policy' | 'src' | 'dst'> & {
    readonly since?: string;
    readonly until?: string;
    readonly local?: true;
    readonly limit: number;
    readonly follow?: true;
  };

const PAGE = 1_000;
const POLL_MS = 1_000;
const MAX_IN_A_ROUND = 10_000;

export function addFindingsCommand(program: Command, terminal: Terminal): void {
  remote(program.command('findings'))
    .description('list denied traffic (in audit mode: traffic that would be denied) and refused logins, newest first')
    .option(
      '--type <finding-type...>',
      'of these types, such as l4_deny; config_change, gap, cluster_contradiction and value_unreadable are listed only on request',
    )
    .option('--group <group...>', 'evaluated in these source groups')
    .option('--rule <rule...>', 'decided by these rules')
    .option('--policy <policy-id...>', 'evaluated with these policies')
    .option('--src <cidr...>', 'sent by these addresses')
    .option('--dst <cidr...>', 'sent to these addresses')
    .option('--since <time>', SINCE, instant)
    .option('--until <time>', 'seen until this time, in the same form', instant)
    .option('--local', 'of this node only')
    .option('--limit <count>', 'the maximum number', wholeNumber, 100)
    .option('--follow', 'continue with new findings, the newest last')
    .action(async (options: Options) => {
      const client = createClient(options, terminal);
      const path = `/api/v1/audit/findings${options.local === undefined ? '' : '/local'}`;
      const filters = filtersOf(options);
      if (options.follow !== undefined) return follow({ client, path, filters, options, terminal });
      const { items, errors } = await read(client, path, filters, options.limit);
      errors.report(terminal);
      print(terminal, options.output, { items, ...errors.coverage }, (shown) => {
        const style = styleOf(terminal);
        return table(
          FINDING_TITLES,
          shown.items.map((item) => findingRow(item, style, relativeTime(item.last_seen))),
        );
      });
    });
}

function filtersOf({ type, group, rule, policy, src, dst, since, until }: Options): Filters {
  return { finding_type: type, source_group: group, rule, policy_id: policy, src, dst, since, until };
}

async function read(
  client: Client,
  path: string,
  filters: Filters,
  limit: number,
  signal?: AbortSignal,
): Promise<{ readonly items: readonly Finding[]; readonly errors: NodeErrors }> {
  const items: Finding[] = [];
  const errors = new NodeErrors();
  for (let cursor: string | null | undefined; cursor !== null && items.length < limit; ) {
    const parameters = { ...filters, limit: Math.min(PAGE, limit - items.length), cursor };
    const page = parseReply(pageSchema, await client.request(withQuery(path, parameters), { signal }));
    append(items, page.items);
    errors.add(page.node_errors);
    cursor = page.next_cursor;
  }
  return { items, errors };
}

type Following = {
  readonly client: Client;
  readonly path: string;
  readonly filters: Filters;
  readonly options: Options;
  readonly terminal: Terminal;
};

const OVERLAP_MS = 10_000;

/**
 * Prints the newest findings, and then new findings until the user interrupts the command. Prints a finding
 * again whenever its count has increased. Reports the nodes without a response whenever they have changed.
 */
async function follow({ client, path, filters, options, terminal }: Following): Promise<void> {
  const interruption = terminal.interruption();
  const style = styleOf(terminal);
  /**
   * The counts of the findings of the last request. The next request may return the same findings, which must
   * not be printed again.
   */
  let known = new Map<string, number>();
  let since = options.since;
  let most = options.limit;
  let silent = '';
  while (!interruption.aborted) {
    const round = await read(client, path, { ...filters, since }, most, interruption).catch((error: unknown) => {
      if (interruption.aborted) return null;
      throw error;
    });
    if (round === null) return;
    const { items, errors } = round;
    if (most > options.limit && items.length === most)
      terminal.err(`more than ${most} findings were seen in one request; the others are not shown\n`);
    most = MAX_IN_A_ROUND;
    const fresh = items.filter((item) => known.get(identityOf(item)) !== item.count).reverse();
    // Print absolute times: the printed lines remain on the screen, where relative times would become wrong.
    for (const item of fresh)
      terminal.out(streamed(options.output, item, (shown) => table([], [findingRow(shown, style, shown.last_seen)])));
    if (errors.nodes !== silent) {
      silent = errors.nodes;
      errors.report(terminal);
      terminal.out(streamed(options.output, errors.coverage, () => ''));
    }
    await terminal.drained();
    const newest = items[0]?.last_seen;
    if (newest !== undefined) {
      // Request the last `OVERLAP_MS` milliseconds again, because the node does not store findings exactly in
      // the order of `last_seen`.
      since = new Date(Date.parse(newest) - OVERLAP_MS).toISOString();
      known = new Map(items.map((item) => [identityOf(item), item.count]));
    }
    await pause(POLL_MS, interruption);
  }
}
