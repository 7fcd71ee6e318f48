import { CommanderError } from 'commander';
import { ConfigError } from '#config/problem.js';
import { commandTree } from './command-tree.js';
import { CliError, type ExitCode } from './error.js';
import { styleOf } from './style.js';
import { processTerminal, type Terminal } from './terminal.js';

/** The `weir` command. Resolves with its exit code. */
export async function weir(words: readonly string[], terminal: Terminal = processTerminal): Promise<number> {
  let code: number = 0;
  const program = commandTree(terminal, (given) => {
    code = given;
  });
  try {
    await program.parseAsync([...words], { from: 'user' });
    return code;
  } catch (error) {
    return exitCodeOf(error, terminal);
  }
}

function exitCodeOf(error: unknown, terminal: Terminal): ExitCode {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
  if (error instanceof ConfigError) {
    terminal.err(`${error.message}\n`);
    return 1;
  }
  if (!(error instanceof CliError) && !isNamed(error)) throw error;
  terminal.err(`weir: ${error.message}\n`);
  if (!(error instanceof CliError)) return 1;
  if (error.fix !== undefined) terminal.err(`  ${styleOf(terminal).dim(`→ ${error.fix}`)}\n`);
  return error.exitCode;
}

/** A failure with a code says what happened; anything else is a bug and shows its stack. */
function isNamed(error: unknown): error is Error & { readonly code: string } {
  return error instanceof Error && 'code' in error && typeof error.code === 'string';
}
