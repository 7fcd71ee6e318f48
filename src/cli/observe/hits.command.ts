import type { Command } from 'commander';
import { z } from 'zod';
import { append } from '#arrays/append.js';
import { type Client, createClient } from '#cli/client/client.js';
import { type Output, parseReply, print, remote, withQuery } from '#cli/client/remote.js';
import { CliError } from '#cli/errors/command-error.js';
import { relativeTime } from '#cli/output/relative-time.js';
import { table } from '#cli/output/table.js';
import type { Terminal } from '#cli/output/terminal.js';
import { NodeErrors, nodeErrorsSchema, scopeParameter } from './node-errors.js';

const hitSchema = z.object({
  decided_by: z.string(),
  source_group: z.string().nullable(),
  rule: z.string().nullable(),
  packets: z.number(),
  bytes: z.number(),
  last_hit: z.string().nullable(),
  unused_since: z.string().nullable(),
});
const hitsSchema = z.looseObject({
  since: z.string(),
  items: z.array(hitSchema.loose()),
  next_cursor: z.string().nullable(),
  node_errors: nodeErrorsSchema,
});
type Hits = z.infer<typeof hitsSchema>;

type HitsOptions = Output & {
  readonly group?: string[];
  readonly rule?: string[];
  readonly unused?: boolean;
  readonly allNodes?: boolean;
};

export function addHitsCommand(program: Command, terminal: Terminal): void {
  remote(program.command('hits'))
    .description('show packets, bytes and last hit of each rule and default of the active policy')
    .option('--group <group...>', 'only of these source groups')
    .option('--rule <rule...>', 'only these rules')
    .option('--unused', 'only rules that have decided no packet, connection, request or lookup')
    .option('--all-nodes', 'the sums of all nodes of the cluster')
    .action(async ({ group, rule, unused, allNodes, ...options }: HitsOptions) => {
      const client = createClient(options, terminal);
      let whole: Hits | undefined;
      const errors = new NodeErrors();
      for (let cursor: string | null | undefined; cursor !== null; cursor = whole.next_cursor) {
        const path = withQuery('/api/v1/policy/hits', { group, rule, unused, cursor, scope: scopeParameter(allNodes) });
        const page = parseReply(hitsSchema, await client.request(path));
        errors.add(page.node_errors);
        whole = { ...page, items: [...(whole?.items ?? []), ...page.items] };
      }
      if (whole === undefined) return;
      errors.report(terminal);
      await checkNames(client, { group, rule }, whole.items);
      const { next_cursor: _, ...shown } = whole;
      print(terminal, options.output, { ...shown, ...errors.coverage }, tableOf);
    });
}

/** Throws if the active policy does not contain a group or rule that the user named. */
async function checkNames(
  client: Client,
  { group = [], rule = [] }: { readonly group: string[] | undefined; readonly rule: string[] | undefined },
  items: Hits['items'],
): Promise<void> {
  const lacks = (shown: Hits['items']) => ({
    group: group.find((name) => !shown.some((item) => item.source_group === name)),
    rule: rule.find((name) => !shown.some((item) => item.rule === name)),
  });
  const absent = lacks(items);
  if (absent.group === undefined && absent.rule === undefined) return;
  const all: Hits['items'] = [];
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const page: Hits = parseReply(hitsSchema, await client.request(withQuery('/api/v1/policy/hits', { cursor })));
    append(all, page.items);
    cursor = page.next_cursor;
  }
  const unknown = lacks(all);
  const [kind, name] = unknown.group === undefined ? ['rule', unknown.rule] : ['source group', unknown.group];
  if (name === undefined) return;
  throw new CliError(`the active policy has no ${kind} ${name}`, { fix: '`weir hits` lists all groups and rules' });
}

function tableOf({ since, items }: Pick<Hits, 'since' | 'items'>): string {
  const titles = ['GROUP', 'RULE', 'PACKETS', 'BYTES', 'LAST HIT'];
  const rows = items.map((item) => [
    item.source_group ?? '(policy)',
    item.rule ?? '(default)',
    String(item.packets),
    String(item.bytes),
    item.last_hit === null ? `never, since ${relativeTime(item.unused_since ?? since)}` : relativeTime(item.last_hit),
  ]);
  return table(titles, rows);
}
