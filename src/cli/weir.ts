import { setTimeout as pause } from 'node:timers/promises';
import { commandTree } from './command-tree.js';
import { errorFormOf, printError } from './error-output.js';
import { processTerminal, type Terminal } from './terminal.js';

/**
 * `weir.service` starts a failed node again after 0.1 s, so that a crash is short. A fault of the
 * configuration stays, and each start takes a second of a processor. So a start that fails ends only after
 * this time.
 */
const FAILED_START_MS = 5_000;

/** Runs the `weir` command with these arguments. Resolves with the exit code of the command. */
export async function weir(words: readonly string[], terminal: Terminal = processTerminal): Promise<number> {
  let code: number = 0;
  const isService = terminal.environment.NOTIFY_SOCKET !== undefined;
  const form = errorFormOf(words);
  const usage = form === 'table' ? (text: string) => terminal.err(text) : () => {};
  const end = (given: number): void => {
    code = given;
  };
  try {
    await commandTree(terminal, end, usage).parseAsync([...words], { from: 'user' });
    return code;
  } catch (error) {
    const failed = printError(error, form, terminal);
    if (isService) await pause(FAILED_START_MS);
    return failed;
  }
}
