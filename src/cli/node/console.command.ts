import type { Command } from 'commander';
import { z } from 'zod';
import { createClient } from '#cli/client/client.js';
import { type Output, parseReply, remote, serialised } from '#cli/client/remote.js';
import type { Terminal } from '#cli/output/terminal.js';

const linkSchema = z.object({ code: z.string().regex(/^[\w-]+$/), expires_at: z.string() });

export function addConsoleCommand(program: Command, terminal: Terminal): void {
  remote(program.command('console'))
    .description('print a link that signs a browser in to the console of the node, once and within 60 s')
    .action(async (options: Output) => {
      const client = createClient(options, terminal);
      const link = parseReply(linkSchema, await client.request('/api/v1/session/link', { method: 'POST' }));
      // Browsers do not send the fragment, so the code is in no log and no Referer header.
      const url = `${client.origin}/console/#code=${link.code}`;
      if (options.output !== 'table')
        return terminal.out(serialised(options.output, { url, expires_at: link.expires_at }));
      terminal.err('open this link within 60 s; it signs in one browser, once\n');
      terminal.out(`${url}\n`);
    });
}
