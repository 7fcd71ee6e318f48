import { Argument, type Command } from 'commander';
import { shapeOf } from './command-shape.js';
import { bashCompletion } from './completion/bash.js';
import { fishCompletion } from './completion/fish.js';
import { zshCompletion } from './completion/zsh.js';
import type { Terminal } from './terminal.js';

const SCRIPTS = { bash: bashCompletion, zsh: zshCompletion, fish: fishCompletion } as const;
type Shell = keyof typeof SCRIPTS;

/** `weir completion bash | zsh | fish`. */
export function addCompletionCommand(program: Command, terminal: Terminal): void {
  program
    .command('completion')
    .description('a script that completes this command in a shell, such as in `eval "$(weir completion bash)"`')
    .addArgument(new Argument('<shell>', 'for which shell').choices(Object.keys(SCRIPTS)))
    .action((shell: Shell) => terminal.out(SCRIPTS[shell](shapeOf(program))));
}
