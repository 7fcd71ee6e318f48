import type { Command } from 'commander';
import { z } from 'zod';
import { createClient } from '#cli/client/client.js';
import { type Output, parseReply, print, remote } from '#cli/client/remote.js';
import { relativeTime } from '#cli/output/relative-time.js';
import { table } from '#cli/output/table.js';
import type { Terminal } from '#cli/output/terminal.js';

const cacheSchema = z.object({
  items: z.array(
    z.looseObject({
      hostname: z.string(),
      ips: z.array(z.string()),
      patterns: z.array(z.string()),
      expires_at: z.string(),
      last_seen: z.string(),
    }),
  ),
});

export function addDnsCacheCommand(program: Command, terminal: Terminal): void {
  remote(program.command('dns-cache'))
    .description('list the names that clients have looked up, and the addresses granted for them')
    .option('--name <text>', 'only names that contain this text')
    .action(async ({ name = '', ...options }: Output & { name?: string }) => {
      const answer = parseReply(cacheSchema, await createClient(options, terminal).request('/api/v1/dns-cache'));
      const items = answer.items.filter(({ hostname }) => hostname.includes(name.toLowerCase()));
      print(terminal, options.output, { items }, (shown) =>
        table(
          ['NAME', 'ADDRESSES', 'PATTERNS', 'EXPIRES', 'LAST SEEN'],
          shown.items.map(({ hostname, ips, patterns, expires_at: expires, last_seen: seen }) => [
            hostname,
            ips.join(' '),
            patterns.join(' '),
            relativeTime(expires),
            relativeTime(seen),
          ]),
        ),
      );
    });
}
