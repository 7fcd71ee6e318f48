import type { Command } from 'commander';
import { z } from 'zod';
import { append } from '#arrays/append.js';
import { createClient } from '#cli/client/client.js';
import { type Output, parseReply, print, remote, withQuery } from '#cli/client/remote.js';
import { CliError } from '#cli/errors/command-error.js';
import { table } from '#cli/output/table.js';
import type { Terminal } from '#cli/output/terminal.js';
import { wholeNumber } from '../number.js';
import { listPolicies } from './policy-records.js';

const MAX_OF_PAGE = 1_000;
const owner = {
  integration: z.string(),
  kind: z.string(),
  namespace: z.string().nullable(),
  name: z.string(),
};
const pageSchema = z.object({
  items: z.array(z.object({ address: z.string(), ...owner })),
  networks: z.array(z.object({ cidr: z.string(), ...owner })),
  total: z.number(),
  next: z.string().nullable(),
});
type Page = z.infer<typeof pageSchema>;

export function addMembersCommand(policy: Command, terminal: Terminal): void {
  remote(policy.command('members'))
    .description(
      'list the addresses and networks that the Kubernetes selectors of a source group select, and their objects',
    )
    .argument('<group>', 'a source group of the active policy')
    .option('--limit <n>', 'at most so many addresses', wholeNumber, MAX_OF_PAGE)
    .action(async (group: string, { limit, ...options }: Output & { readonly limit: number }) => {
      const client = createClient(options, terminal);
      const active = (await listPolicies(client)).find((record) => record.active);
      if (active === undefined) throw new CliError('no policy is active, so that no source group has members');
      const path = `/api/v1/policies/${active.id}/source-groups/${encodeURIComponent(group)}/members`;
      const items: Page['items'] = [];
      const networks: Page['networks'] = [];
      let total = 0;
      let after: string | null = null;
      do {
        const query = withQuery(path, { limit: Math.min(limit - items.length, MAX_OF_PAGE), after });
        const page: Page = parseReply(pageSchema, await client.request(query));
        append(items, page.items);
        append(networks, page.networks);
        total = page.total;
        after = page.next;
      } while (after !== null && items.length < limit);
      print(terminal, options.output, { items, networks, total }, (shown) =>
        table(
          ['ADDRESS', 'KIND', 'NAMESPACE', 'NAME', 'INTEGRATION'],
          [...shown.networks.map(({ cidr: address, ...of }) => ({ address, ...of })), ...shown.items].map(
            ({ address, kind, namespace, name, integration }) => [address, kind, namespace ?? '-', name, integration],
          ),
        ),
      );
      if (items.length < total && options.output === 'table')
        terminal.err(`${items.length} of ${total} addresses; --limit shows more\n`);
    });
}
