import { Argument, type Command } from 'commander';
import { z } from 'zod';
import { createClient } from '#cli/client/client.js';
import { type Output, parseReply, print, remote } from '#cli/client/remote.js';
import type { Terminal } from '#cli/output/terminal.js';

const PATH = '/api/v1/settings/performance-mode';
const modeSchema = z.object({ enabled: z.boolean(), source: z.string().nullable() });

export function addPerformanceModeCommand(program: Command, terminal: Terminal): void {
  remote(program.command('performance-mode'))
    .description(
      'show or set the performance mode: on, findings and wiretap are available; off, the kernel sends no events. Verdicts do not depend on it',
    )
    .addArgument(new Argument('[state]', 'the new mode; without it, the current mode is shown').choices(['on', 'off']))
    .action(async (state: 'on' | 'off' | undefined, options: Output) => {
      const client = createClient(options, terminal);
      const answer =
        state === undefined
          ? await client.request(PATH)
          : await client.request(PATH, { method: 'PUT', body: { enabled: state === 'on' } });
      const mode = parseReply(modeSchema, answer);
      print(terminal, options.output, mode, () => {
        const origin =
          mode.source === null ? 'the default' : `set for this ${mode.source === 'local' ? 'node' : 'cluster'}`;
        return `performance mode is ${mode.enabled ? 'on' : 'off'} (${origin})\n`;
      });
    });
}
