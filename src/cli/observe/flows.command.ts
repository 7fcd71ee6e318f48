import type { Command } from 'commander';
import { z } from 'zod';
import { append } from '#arrays/append.js';
import { createClient } from '#cli/client/client.js';
import { type Output, type Parameter, parseReply, print, remote, withQuery } from '#cli/client/remote.js';
import { numberUpTo, wholeNumber } from '#cli/number.js';
import { type Style, styleOf } from '#cli/output/style.js';
import { table } from '#cli/output/table.js';
import type { Terminal } from '#cli/output/terminal.js';
import { deciderOf, endpoint, ownedEndpoint, ownerSchema, protocolName } from './flow-words.js';
import type { ListOptions } from './list-options.js';
import { NodeErrors, nodeErrorsSchema, scopeParameter } from './node-errors.js';
import { addSeenFlowsCommand } from './seen-flows.command.js';

const PATH = '/api/v1/flows';
const PAGE = 1_000;
const bothWays = z.object({ forward: z.number(), reply: z.number() });
const flowSchema = z.object({
  node_id: z.string().optional(),
  src: z.string(),
  dst: z.string(),
  src_owner: ownerSchema,
  dst_owner: ownerSchema,
  proto: z.number(),
  src_port: z.number().nullable(),
  dst_port: z.number().nullable(),
  icmp_id: z.number().nullable(),
  state: z.string(),
  suspended: z.boolean().default(false),
  verdict: z.string().nullable(),
  decided_by: z.string(),
  source_group: z.string().nullable(),
  rule: z.string().nullable(),
  source_groups: z.array(z.string()).nullish(),
  packets: bothWays,
  bytes: bothWays,
  expires_in: z.number(),
  translation: z
    .object({
      src: z.string(),
      dst: z.string(),
      src_port: z.number().nullable(),
      dst_port: z.number().nullable(),
      icmp_id: z.number().nullable(),
    })
    .nullish(),
});
type Flow = z.infer<typeof flowSchema>;
const flowsSchema = z.object({
  matched: z.number(),
  items: z.array(flowSchema.loose()),
  next_cursor: z.string().nullable(),
  node_errors: nodeErrorsSchema,
});
const cutSchema = z.object({ cut: z.number(), dry_run: z.boolean() });

type FilterOptions = ListOptions<
  'src' | 'dst' | 'port' | 'srcPort' | 'dstPort' | 'proto' | 'group' | 'rule' | 'verdict' | 'state'
> & {
  readonly suspended?: boolean;
  readonly minBytes?: number;
};

export function addFlowsCommands(program: Command, terminal: Terminal): void {
  const flows = program.command('flows').description('live and seen flows of a node');

  filtered(remote(flows.command('list', { isDefault: true })))
    .description('list the flows that match')
    .option('--limit <count>', 'the maximum number', wholeNumber, 100)
    .option('--all-nodes', 'of all nodes of the cluster')
    .action(async ({ limit, allNodes, ...options }: Output & FilterOptions & { limit: number; allNodes?: boolean }) => {
      const client = createClient(options, terminal);
      const items: Flow[] = [];
      let matched = 0;
      const errors = new NodeErrors();
      for (let cursor: string | null | undefined; cursor !== null && items.length < limit; ) {
        const part = { limit: Math.min(PAGE, limit - items.length), cursor, scope: scopeParameter(allNodes) };
        const path = withQuery(PATH, { ...parametersOf(options), ...part });
        const page = parseReply(flowsSchema, await client.request(path));
        append(items, page.items);
        matched = page.matched;
        errors.add(page.node_errors);
        cursor = page.next_cursor;
      }
      errors.report(terminal);
      print(terminal, options.output, { matched, items, ...errors.coverage }, (shown) =>
        tableOf(shown.items, styleOf(terminal), allNodes === true),
      );
      if (options.output === 'table' && matched > items.length)
        terminal.err(`${items.length} of ${matched} flows; --limit shows more\n`);
    });

  addSeenFlowsCommand(flows, terminal);

  filtered(remote(flows.command('cut')))
    .description('remove the flows that match: their next packets are evaluated like those of new flows')
    .option('--all', 'every flow')
    .option('--dry-run', 'only print how many flows match')
    .action(async ({ all, dryRun, ...options }: Output & FilterOptions & { all?: boolean; dryRun?: boolean }) => {
      const path = withQuery(PATH, { ...parametersOf(options), all, dry_run: dryRun });
      const answer = parseReply(cutSchema, await createClient(options, terminal).request(path, { method: 'DELETE' }));
      const { cut, dry_run: dry } = answer;
      print(
        terminal,
        options.output,
        answer,
        () => `${cut} flow${cut === 1 ? '' : 's'} ${dry ? 'would be cut' : 'cut'}\n`,
      );
    });
}

function filtered(command: Command): Command {
  return command
    .option('--src <cidr...>', 'opened by these addresses')
    .option('--dst <cidr...>', 'opened to these addresses')
    .option('--port <port...>', 'with these ports on either side, such as 443 or 8000-8100')
    .option('--src-port <port...>', 'opened from these ports')
    .option('--dst-port <port...>', 'opened to these ports')
    .option('--proto <protocol...>', 'of these protocols, by name or number')
    .option('--group <group...>', 'evaluated in these source groups')
    .option('--rule <rule...>', 'decided by these rules')
    .option('--verdict <flow-verdict...>', 'allow, deny (of suspended flows), audit or redirect')
    .option('--state <flow-state...>', 'in these states, such as tcp_established')
    .option('--suspended', 'that a later policy denied, and that are kept until a policy allows them')
    .option(
      '--min-bytes <count>',
      'with at least this many bytes in both directions together',
      numberUpTo(Number.MAX_SAFE_INTEGER),
    );
}

function parametersOf(options: FilterOptions): Record<string, Parameter> {
  const { src, dst, port, srcPort, dstPort, proto, group, rule, verdict, state, suspended, minBytes } = options;
  const sides = { src, dst, port, src_port: srcPort, dst_port: dstPort, proto };
  return { ...sides, group, rule, verdict, state, suspended, min_bytes: minBytes };
}

/** Returns the addresses and ports after SNAT or before DNAT as text, such as `snat 192.0.2.1:40000`. */
function translationOf({ translation, ...real }: Flow): string {
  if (translation == null) return '-';
  const sourceOf = (ends: Pick<Flow, 'src' | 'src_port' | 'icmp_id'>): string =>
    endpoint(ends.src, ends.src_port ?? ends.icmp_id);
  const [source, destination] = [sourceOf(translation), endpoint(translation.dst, translation.dst_port)];
  return [
    ...(source === sourceOf(real) ? [] : [`snat ${source}`]),
    ...(destination === endpoint(real.dst, real.dst_port) ? [] : [`dnat ${destination}`]),
  ].join(', ');
}

function tableOf(flows: readonly Flow[], style: Style, showsNodes: boolean): string {
  const showsTranslations = flows.some(({ translation }) => translation != null);
  const titles = [
    'NODE',
    'PROTO',
    'SOURCE',
    'DESTINATION',
    'STATE',
    'VERDICT',
    'RULE',
    'PACKETS',
    'BYTES',
    'EXPIRES',
    ...(showsTranslations ? ['TRANSLATION'] : []),
  ].slice(showsNodes ? 0 : 1);
  const rows = flows.map((flow) => [
    ...(showsNodes ? [flow.node_id ?? '-'] : []),
    protocolName(flow.proto),
    ownedEndpoint(flow.src_owner, endpoint(flow.src, flow.src_port ?? flow.icmp_id)),
    ownedEndpoint(flow.dst_owner, endpoint(flow.dst, flow.dst_port)),
    flow.suspended ? `${flow.state} (suspended)` : flow.state,
    style.verdict(flow.verdict ?? '-'),
    deciderOf(flow),
    `${flow.packets.forward}/${flow.packets.reply}`,
    `${flow.bytes.forward}/${flow.bytes.reply}`,
    `${flow.expires_in}s`,
    ...(showsTranslations ? [translationOf(flow)] : []),
  ]);
  return table(titles, rows);
}
