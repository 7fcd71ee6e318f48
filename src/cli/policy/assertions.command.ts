import type { Command } from 'commander';
import { z } from 'zod';
import { type Client, createClient } from '#cli/client/client.js';
import { type Output, parseReply, print, remote } from '#cli/client/remote.js';
import { RefusedError } from '#cli/errors/command-error.js';
import { type Style, styleOf } from '#cli/output/style.js';
import type { Terminal } from '#cli/output/terminal.js';
import type { AssertionResult } from '#contracts/analysis/assertion.js';
import { DRY_RUN, quoted } from './applied.js';
import { withQuery } from './cluster-flags.js';
import { explainCommand } from './flow-difference.js';
import { atLines, readSource } from './policy-source.js';

const PATH = '/api/v1/assertions';
const itemSchema = z.looseObject({
  id: z.string(),
  assertion: z.looseObject({ id: z.string() }),
  result: z.string(),
  message: z.string(),
  regions: z.array(z.looseObject({})),
});
const listSchema = z.looseObject({ items: z.array(itemSchema), revision: z.number() });
type List = z.infer<typeof listSchema>;

type WriteOptions = Output & { readonly dryRun?: true; readonly ifMatch?: string };

export function addAssertionsCommands(program: Command, terminal: Terminal): void {
  const assertions = program
    .command('assertions')
    .description('statements about flows that each write of the policy in force must keep');

  remote(assertions.command('list'))
    .description('list the assertions, and whether they hold for the policy in force')
    .action(async (options: Output) => {
      const list = await read(createClient(options, terminal));
      print(terminal, options.output, list, (shown) => listText(shown, styleOf(terminal)));
    });

  remote(assertions.command('get'), ['yaml', 'json'])
    .description('print the assertions as `weir assertions apply` and `weir policy test` read them')
    .action(async (options: Output) => {
      const { items } = await read(createClient(options, terminal));
      print(terminal, options.output, { assertions: items.map(({ assertion }) => assertion) }, () => '');
    });

  remote(assertions.command('apply'))
    .description('replace all assertions by those of a file, also if they do not hold now')
    .requiredOption('-f, --file <file>', 'YAML or JSON with a list of assertions; - reads standard input')
    .option('--dry-run', 'check the file, and show the results; change nothing')
    .option('--if-match <etag>', 'only if the assertions have this ETag, which `weir assertions list` shows')
    .action(async (options: WriteOptions & { readonly file: string }) => {
      const source = await readSource(options.file, terminal);
      const client = createClient(options, terminal);
      const answer = await client
        .exchange(withQuery(PATH, dryRunOf(options)), {
          method: 'PUT',
          body: JSON.stringify(source.value),
          headers: preconditionOf(options),
        })
        .catch((error: unknown) => {
          throw error instanceof RefusedError ? atLines(error, source) : error;
        });
      const list = parseReply(listSchema, answer.body);
      print(terminal, options.output, list, (shown) => listText(shown, styleOf(terminal)));
    });

  remote(assertions.command('delete'))
    .description('delete one assertion')
    .argument('<assertion-id>', 'the id of the assertion')
    .option('--dry-run', 'only show what would be deleted')
    .option('--if-match <etag>', 'only if the assertions have this ETag, which `weir assertions list` shows')
    .action(async (id: string, options: WriteOptions) => {
      const path = withQuery(`${PATH}/${encodeURIComponent(id)}`, dryRunOf(options));
      const client = createClient(options, terminal);
      await client.exchange(path, { method: 'DELETE', headers: preconditionOf(options) });
      const dry = options.dryRun === true;
      print(terminal, options.output, { id, deleted: !dry }, () => `${id} ${dry ? 'would be deleted' : 'deleted'}\n`);
    });
}

async function read(client: Client): Promise<List> {
  return parseReply(listSchema, await client.request(PATH));
}

const dryRunOf = ({ dryRun }: WriteOptions): readonly string[] => (dryRun === true ? [DRY_RUN] : []);
const preconditionOf = ({ ifMatch }: WriteOptions): Readonly<Record<string, string>> =>
  ifMatch === undefined ? {} : { 'if-match': quoted(ifMatch) };

function listText({ items, revision, dry_run: dry }: List, style: Style): string {
  const counts = (wanted: string): number => items.filter(({ result }) => result === wanted).length;
  const others = [
    ...(counts('broken') > 0 ? [`${counts('broken')} broken`] : []),
    ...(counts('unknown') > 0 ? [`${counts('unknown')} unknown`] : []),
  ];
  const total = `${items.length} ${items.length === 1 ? 'assertion' : 'assertions'}`;
  const lines = [
    ...items.flatMap((item) => itemLines(item as unknown as AssertionResult, style)),
    [total, ...others].join(', '),
    dry === true ? 'nothing was changed' : `ETag "assertions.${revision}"`,
  ];
  return lines.map((line) => `${line}\n`).join('');
}

function itemLines({ id, result, message, regions: [region] }: AssertionResult, style: Style): string[] {
  if (result === 'holds') return [`${style.good('holds')}   ${id}`];
  const word = result === 'broken' ? style.bad('broken') : style.warn('unknown');
  const example = region === undefined ? [] : [`        ${style.dim(explainCommand(region.example))}`];
  return [`${word}${result === 'broken' ? '  ' : ' '}${id}: ${message}`, ...example];
}
