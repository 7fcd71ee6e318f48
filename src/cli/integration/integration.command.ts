import type { Command } from 'commander';
import { type Client, createClient } from '#cli/client/client.js';
import { type Output, parseReply, print, remote } from '#cli/client/remote.js';
import { relativeTime } from '#cli/output/relative-time.js';
import { table } from '#cli/output/table.js';
import type { Terminal } from '#cli/output/terminal.js';
import { visibleIn } from '#cli/output/visible.js';
import { addAddCommand } from './add.command.js';
import { type Integration, listSchema, PATH, throwWithAdvice } from './integration-records.js';
import { type IntegrationStatus, statusSchema, statusText } from './status-text.js';

export function addIntegrationCommands(program: Command, terminal: Terminal): void {
  const integration = program.command('integration').description('connections to Kubernetes clusters');
  addAddCommand(integration, terminal);

  remote(integration.command('list'))
    .description('list all integrations')
    .action(async (options: Output) => {
      const items = await listed(createClient(options, terminal));
      print(terminal, options.output, { items }, (shown) =>
        table(
          ['NAME', 'SERVER', 'UPDATED', 'BY'],
          shown.items.map((item) => [
            item.name,
            ...(item.in_cluster ? ['in this cluster', '-', '-'] : writtenOf(item)),
          ]),
        ),
      );
    });

  remote(integration.command('status'))
    .description('show what the node sees of its integrations, or of one integration with its selectors')
    .argument('[integration]', 'the name of an integration')
    .action(async (name: string | undefined, options: Output) => {
      const client = createClient(options, terminal);
      const names = name === undefined ? (await listed(client)).map((item) => item.name) : [name];
      const items: IntegrationStatus[] = [];
      for (const one of names) items.push(await statusOf(one, client));
      const shown = name === undefined ? { items } : items[0];
      print(terminal, options.output, shown, () => statusText(visibleIn(items), name !== undefined, terminal));
    });

  remote(integration.command('remove'))
    .description('remove an integration that the active policy does not use')
    .argument('<integration>', 'the name of an integration')
    .option('--dry-run', 'only show what would be removed')
    .action(async (name: string, { dryRun, ...options }: Output & { readonly dryRun?: true }) => {
      const path = `${PATH}/${encodeURIComponent(name)}${dryRun === true ? '?dry_run=true' : ''}`;
      await createClient(options, terminal)
        .request(path, { method: 'DELETE' })
        .catch((refused: unknown) => throwWithAdvice(name, refused));
      print(terminal, options.output, { name, removed: dryRun !== true }, () =>
        dryRun === true ? `${name} would be removed\n` : `removed ${name}\n`,
      );
    });
}

async function listed(client: Client): Promise<readonly Integration[]> {
  return parseReply(listSchema, await client.request(PATH)).items;
}

async function statusOf(name: string, client: Client): Promise<IntegrationStatus> {
  const answer = await client
    .request(`${PATH}/${encodeURIComponent(name)}/status`)
    .catch((refused: unknown) => throwWithAdvice(name, refused));
  return parseReply(statusSchema, answer);
}

const writtenOf = (item: Extract<Integration, { readonly in_cluster: false }>): readonly string[] => [
  item.api_server_url,
  relativeTime(item.updated_at),
  item.updated_by,
];
