import { type Command, InvalidArgumentError, Option } from 'commander';
import { z } from 'zod';
import { durationMs } from '#config/value.js';
import { createClient, type ServerOptions } from './client.js';
import { CliError } from './error.js';
import { table } from './table.js';
import type { Terminal } from './terminal.js';

const PATH = '/api/v1/tokens';
const tokenSchema = z.object({
  id: z.string(),
  subject: z.string(),
  role: z.string(),
  created_at: z.string(),
  expires_at: z.string().nullable(),
  revoked_at: z.string().nullable(),
});
const issuedSchema = z.object({ ...tokenSchema.shape, token: z.string() });
const listSchema = z.object({ items: z.array(tokenSchema) });

type Output = ServerOptions & { readonly output: 'table' | 'json' };

/** `weir token create | list | revoke`. */
export function addTokenCommands(program: Command, terminal: Terminal): void {
  const token = program.command('token').description('tokens of the management API');

  remote(token.command('create'))
    .description('issue a token and print it; it is shown this once')
    .requiredOption('--subject <name>', 'who uses it; writes are recorded under this name')
    .addOption(new Option('--role <role>', 'what it may do').choices(['admin', 'readonly']).makeOptionMandatory())
    .option('--expires-in <duration>', 'how long it is valid, such as 30m or 720h (default: for ever)', wholeSeconds)
    .action(async (options: Output & { subject: string; role: string; expiresIn?: number }) => {
      const { subject, role, expiresIn } = options;
      const body = { subject, role, expires_in: expiresIn ?? null };
      const issued = understood(issuedSchema, await createClient(options, terminal).request('POST', PATH, body));
      if (options.output === 'json') return terminal.out(`${JSON.stringify(issued, null, 2)}\n`);
      terminal.err(`token ${issued.id} for ${issued.subject} (${issued.role}), ${validity(issued.expires_at)}\n`);
      terminal.out(`${issued.token}\n`);
    });

  remote(token.command('list'))
    .description('every token that was issued')
    .action(async (options: Output) => {
      const { items } = understood(listSchema, await createClient(options, terminal).request('GET', PATH));
      if (options.output === 'json') return terminal.out(`${JSON.stringify(items, null, 2)}\n`);
      const titles = ['ID', 'SUBJECT', 'ROLE', 'CREATED', 'EXPIRES', 'REVOKED'];
      const rows = items.map((item) => [
        item.id,
        item.subject,
        item.role,
        item.created_at,
        item.expires_at ?? 'never',
        item.revoked_at ?? '-',
      ]);
      terminal.out(table(titles, rows));
    });

  remote(token.command('revoke'))
    .description('make a token worthless, at once')
    .argument('<id>', 'as `weir token list` shows it')
    .action(async (id: string, options: Output) => {
      await createClient(options, terminal).request('DELETE', `${PATH}/${encodeURIComponent(id)}`);
      terminal.out(options.output === 'json' ? `${JSON.stringify({ id, revoked: true })}\n` : `revoked ${id}\n`);
    });
}

/** The flags of every command that speaks to a node. */
function remote(command: Command): Command {
  return command
    .option('--config <file>', 'the configuration file of a node on this machine: its address and its admin.token')
    .option('--server <url>', 'the node (default: WEIR_SERVER, else http://127.0.0.1:8080)')
    .option('--token-file <file>', 'a file with a token (default: WEIR_TOKEN, else /var/lib/weir/admin.token)')
    .addOption(new Option('--output <form>', 'how to print').choices(['table', 'json']).default('table'));
}

function wholeSeconds(value: string): number {
  const ms = durationMs(value);
  if (ms === undefined || ms === 0 || ms % 1000 !== 0) {
    throw new InvalidArgumentError('It must be a duration of whole seconds, such as 60s, 30m or 720h.');
  }
  return ms / 1000;
}

const validity = (expiresAt: string | null): string =>
  expiresAt === null ? 'which does not expire' : `valid until ${expiresAt}`;

function understood<T>(schema: z.ZodType<T>, answer: unknown): T {
  const parsed = schema.safeParse(answer);
  if (!parsed.success)
    throw new CliError('the server answered with something else than was asked for; is it a Weir node?');
  return parsed.data;
}
