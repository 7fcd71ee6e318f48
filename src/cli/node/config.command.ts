import type { Command } from 'commander';
import { z } from 'zod';
import { createClient } from '#cli/client/client.js';
import { type Output, parseReply, print, printing, remote, serialised, withQuery } from '#cli/client/remote.js';
import { fileWarnings } from '#cli/files/file-warnings.js';
import type { Terminal } from '#cli/output/terminal.js';
import { configWarnings } from '#config/config-warnings.js';
import { readConfig } from '#config/load.js';
import { configJsonSchema } from '#config/schema/config-json-schema.js';

const PATH = '/api/v1/config/reload';
const pointers = z.array(z.string());
const reloadSchema = z.object({
  applied: pointers,
  unchanged: pointers,
  needs_restart: pointers,
  dry_run: z.literal(true).optional(),
});
/**
 * The time limit of a reload in milliseconds. It is long because a reload may wait for the activation of a
 * policy file.
 */
const TIMEOUT_MS = 150_000;

export function addConfigCommands(program: Command, terminal: Terminal): void {
  const config = program.command('config').description('the configuration file of a node');
  config
    .command('check')
    .description(
      'check a configuration file, and print all its problems and warnings; as root, warn of files that the user weir cannot read',
    )
    .argument('<file>')
    .action((file: string) => {
      const read = readConfig(file, terminal.environment);
      for (const warning of [...configWarnings(read), ...fileWarnings(file, read.config)])
        terminal.err(`warning: ${warning}\n`);
      terminal.out(`${file} is valid\n`);
    });

  printing(config.command('schema'), ['json', 'yaml'])
    .description('print the JSON Schema of a configuration file, for editors and other tools')
    .action(({ output }: { output: 'json' | 'yaml' }) => {
      terminal.out(serialised(output, configJsonSchema()));
    });

  remote(config.command('reload'))
    .description(
      'make a node read its configuration file again, and put the changes in force that need no restart: all of them, or none',
    )
    .option('--dry-run', 'show what would change, and change nothing')
    .option(
      '--allow-unpoliced',
      'also end the policing of interfaces that exist: those that the file does not name any more, and those that were renamed. Their packets pass without a policy afterwards',
    )
    .option(
      '--allow-open',
      'also accept a file that begins to enforce IPv6 policies (dataplane.ipv6: enforce) while the policy in force allows by default. All IPv6 passes after the restart',
    )
    .action(async (options: Output & { dryRun?: true; allowUnpoliced?: true; allowOpen?: true }) => {
      const client = createClient(options, terminal, TIMEOUT_MS);
      const path = withQuery(PATH, {
        dry_run: options.dryRun,
        allow_unpoliced: options.allowUnpoliced,
        allow_open: options.allowOpen,
      });
      const reload = parseReply(reloadSchema, await client.request(path, { method: 'POST' }));
      print(terminal, options.output, reload, text);
    });
}

function text({ applied, unchanged, needs_restart, dry_run }: z.infer<typeof reloadSchema>): string {
  const listed = (title: string, of: readonly string[]): string[] =>
    of.length === 0 ? [] : [title, ...of.map((pointer) => `  ${pointer}`)];
  const lines = [
    ...listed(dry_run === true ? 'would be applied:' : 'applied:', applied),
    ...listed('needs a restart:', needs_restart),
    `unchanged: ${unchanged.length} field${unchanged.length === 1 ? '' : 's'}`,
  ];
  return `${lines.join('\n')}\n`;
}
