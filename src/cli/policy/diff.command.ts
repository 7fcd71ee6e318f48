import type { Command } from 'commander';
import { createClient } from '#cli/client/client.js';
import { type Output, print, remote } from '#cli/client/remote.js';
import type { End } from '#cli/errors/exit-codes.js';
import { styleOf } from '#cli/output/style.js';
import type { Terminal } from '#cli/output/terminal.js';
import { differenceOf, isSame } from './difference.js';
import { differenceText } from './difference-text.js';
import { labelOf, readStored, type Which } from './policy-records.js';
import { readValidSource, singletonOf } from './policy-source.js';

const DIFFERENT = 3;

/** Adds the command `weir policy diff`. */
export function addDiffCommand(policy: Command, terminal: Terminal, end: End): void {
  remote(policy.command('diff'))
    .description('show what a file would change in the active policy, or in another one; exits with 3 if they differ')
    .requiredOption('-f, --file <file>', 'YAML or JSON, an envelope or in singleton form; - reads standard input')
    .option('--id <policy-id>', 'compare with the policy of this id')
    .option('--name <policy-name>', 'compare with the policy of this name')
    .action(async (options: Output & Which & { file: string }) => {
      const source = await readValidSource(options.file, terminal);
      const stored = await readStored(createClient(options, terminal), options);
      // Use the stored mode for an envelope without a mode. Its write would use the flag `--mode`, which this
      // command does not have.
      const storedMode = stored?.form === 'envelope' ? stored.mode : undefined;
      const after = singletonOf(source, storedMode);
      const form = stored?.form ?? 'singleton';
      const value = form === 'singleton' ? (stored?.policy ?? {}) : { mode: stored?.mode, policy: stored?.policy };
      const before = singletonOf({ form, value });
      // Compare modes only between two envelopes: a policy in singleton form has no mode of its own.
      const isBoth = stored?.form === 'envelope' && source.form === 'envelope';
      const modeOf = (mode: unknown) => (isBoth ? { mode } : {});
      const difference = differenceOf(
        { ...modeOf(stored?.mode), ...before },
        { ...modeOf(source.value.mode ?? storedMode), ...after },
      );
      const same = isSame(difference);
      const compared = stored === null ? null : labelOf(stored);
      print(terminal, options.output, { compared_with: compared, same, ...difference }, (shown) => {
        if (same) return `${source.label} has the same content as ${shown.compared_with ?? 'no policy'}\n`;
        return differenceText(shown, styleOf(terminal));
      });
      if (!same) end(DIFFERENT);
    });
}
