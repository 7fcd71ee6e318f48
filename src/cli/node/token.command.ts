import { type Command, InvalidArgumentError, Option } from 'commander';
import { z } from 'zod';
import { type Client, createClient } from '#cli/client/client.js';
import { type Output, parseReply, print, remote, serialised } from '#cli/client/remote.js';
import { CliError, RefusedError } from '#cli/errors/command-error.js';
import { relativeTime } from '#cli/output/relative-time.js';
import { table } from '#cli/output/table.js';
import type { Terminal } from '#cli/output/terminal.js';
import { durationMs } from '#contracts/duration.js';

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

export function addTokenCommands(program: Command, terminal: Terminal): void {
  const token = program.command('token').description('tokens of the management API');

  remote(token.command('create'))
    .description('issue a token and print it; it cannot be shown again')
    .requiredOption('--subject <name>', 'the user of the token; writes are recorded under this name')
    .addOption(new Option('--role <role>', 'what it may do').choices(['admin', 'readonly']).makeOptionMandatory())
    .option(
      '--expires-in <duration>',
      'how long the token is valid, such as 30m or 720h (default: for ever)',
      wholeSeconds,
    )
    .action(async (options: Output & { subject: string; role: string; expiresIn?: number }) => {
      const { subject, role, expiresIn } = options;
      const body = { subject, role, expires_in: expiresIn ?? null };
      const issued = parseReply(
        issuedSchema,
        await createClient(options, terminal).request(PATH, { method: 'POST', body }),
      );
      if (options.output !== 'table') return terminal.out(serialised(options.output, issued));
      terminal.err(`token ${issued.id} for ${issued.subject} (${issued.role}), ${validity(issued.expires_at)}\n`);
      terminal.out(`${issued.token}\n`);
    });

  remote(token.command('list'))
    .description('list all issued tokens')
    .action(async (options: Output) => {
      const { items } = parseReply(listSchema, await createClient(options, terminal).request(PATH));
      const titles = ['ID', 'SUBJECT', 'ROLE', 'CREATED', 'EXPIRES', 'REVOKED'];
      print(terminal, options.output, { items }, (shown) => {
        const rows = shown.items.map((item) => [
          item.id,
          item.subject,
          item.role,
          relativeTime(item.created_at),
          item.expires_at === null ? 'never' : relativeTime(item.expires_at),
          item.revoked_at === null ? '-' : relativeTime(item.revoked_at),
        ]);
        return table(titles, rows);
      });
    });

  remote(token.command('revoke'))
    .description('revoke a token at once')
    .argument('<token-id>', 'the id that `weir token list` shows')
    .action(async (id: string, options: Output) => {
      const client = createClient(options, terminal);
      await client.request(`${PATH}/${encodeURIComponent(id)}`, { method: 'DELETE' }).catch(async (error: unknown) => {
        throw error instanceof RefusedError && error.code === 'not_found' ? await unknownToken(id, client) : error;
      });
      print(terminal, options.output, { id, revoked: true }, () => `revoked ${id}\n`);
    });
}

async function unknownToken(id: string, client: Client): Promise<CliError> {
  const { items } = parseReply(listSchema, await client.request(PATH));
  const valid = items.filter((item) => item.revoked_at === null).map((item) => `${item.id} (${item.subject})`);
  return new CliError(`there is no token with the id ${id}`, {
    fix: `valid tokens: ${valid.join(', ')}`,
    code: 'not_found',
  });
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
