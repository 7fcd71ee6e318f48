import { Argument, type Command } from 'commander';
import { createClient, type ServerOptions } from '#cli/client/client.js';
import { shapeOf } from '#cli/command-shape.js';
import type { Terminal } from '#cli/output/terminal.js';
import { visible } from '#cli/output/visible.js';
import { bashCompletion } from './bash.js';
import { fishCompletion } from './fish.js';
import { COMPLETE, NODE_VALUES, type NodeValue, valuesOf } from './values.js';
import { zshCompletion } from './zsh.js';

const SCRIPTS = { bash: bashCompletion, zsh: zshCompletion, fish: fishCompletion } as const;
type Shell = keyof typeof SCRIPTS;

/**
 * The time limit in milliseconds of requests for completions. A node in the local network responds faster.
 * After the limit the command prints no completions, so that the user does not wait longer at the prompt.
 */
const TIMEOUT_MS = 1_000;

export function addCompletionCommands(program: Command, terminal: Terminal): void {
  program
    .command('completion')
    .description('print a script that completes this command in a shell, such as `eval "$(weir completion bash)"`')
    .addArgument(new Argument('<shell>', 'for which shell').choices(Object.keys(SCRIPTS)))
    .action((shell: Shell) => terminal.out(SCRIPTS[shell](shapeOf(program))));

  program
    .command(COMPLETE, { hidden: true })
    .addArgument(new Argument('<kind>').choices(NODE_VALUES))
    .argument('[words...]', 'the command line to complete; its last word is completed')
    .action(async (kind: NodeValue, words: readonly string[]) => {
      const asked = { prefix: words.at(-1) ?? '', groups: valuesIn(words, '--group') };
      try {
        const client = createClient(serverIn(words), terminal, TIMEOUT_MS);
        terminal.out((await valuesOf(kind, client, asked)).map((value) => `${visible(value)}\n`).join(''));
      } catch {
        // Print nothing: an error message would disturb the prompt.
      }
    });
}

function serverIn(words: readonly string[]): ServerOptions {
  const [config, server, tokenFile] = ['--config', '--server', '--token-file'].map((flag) => valuesIn(words, flag)[0]);
  return {
    ...(config === undefined ? {} : { config }),
    ...(server === undefined ? {} : { server }),
    ...(tokenFile === undefined ? {} : { tokenFile }),
  };
}

/** Returns the values of a flag in a command line. Ignores the last word, which the user has not finished. */
function valuesIn(words: readonly string[], flag: string): string[] {
  return words.slice(0, -1).flatMap((word, index, complete) => {
    if (word.startsWith(`${flag}=`)) return [word.slice(flag.length + 1)];
    const next = complete[index + 1];
    return word === flag && next !== undefined ? [next] : [];
  });
}
