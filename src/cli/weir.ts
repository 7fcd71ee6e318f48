import { errorFormOf, printError } from '#cli/errors/error-output.js';
import { processTerminal, type Terminal } from '#cli/output/terminal.js';
import { visibleLines } from '#cli/output/visible.js';
import { commandTree } from './command-tree.js';

/** Runs the `weir` command with these arguments. Resolves with the exit code of the command. */
export async function weir(words: readonly string[], given: Terminal = processTerminal): Promise<number> {
  const terminal = { ...given, err: (text: string) => given.err(visibleLines(text)) };
  let code: number = 0;
  const form = errorFormOf(words);
  const help = form === 'table' ? (text: string) => terminal.err(text) : () => {};
  const end = (exitCode: number): void => {
    code = exitCode;
  };
  try {
    await commandTree(terminal, end, help).parseAsync([...words], { from: 'user' });
    return code;
  } catch (error) {
    return printError(error, form, terminal);
  }
}
