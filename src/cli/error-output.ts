import { CommanderError } from 'commander';
import { ConfigError } from '#config/config-problem.js';
import { CliError, type ExitCode, UnreachableError } from './command-error.js';
import { serialised } from './remote.js';
import { styleOf } from './style.js';
import type { Terminal } from './terminal.js';
import { visible } from './visible.js';

type ErrorForm = 'table' | 'json' | 'yaml';

/**
 * Error codes that the command line assigns itself. All other codes come from the node and are in
 * docs/errors.md.
 */
export const OWN_CODES = {
  usage: 'wrongly called',
  unreachable: 'no node answered',
  not_running: 'weir.service does not run, and systemd keeps its listening socket',
  not_weir: 'the server that answered is no Weir node',
  no_token: 'there is no token to send: the token file cannot be read, or contains no token',
  other_listener: 'a process of another user listens at the address of the node, so the token was not sent',
  invalid_config: 'the configuration file is not valid; `problems` has the key in `pointer`, the place in `where`',
  failed: 'any other error; see `message`',
} as const;

/**
 * Returns the form of error messages that the flag `--output` selects. Searches the command line for the flag
 * without parsing the command, so that the form also applies to a usage error. In `weir sysdump`, `--output`
 * names a file instead.
 */
export function errorFormOf(words: readonly string[]): ErrorForm {
  if (words.includes('sysdump')) return 'table';
  let form: ErrorForm = 'table';
  words.forEach((word, index) => {
    const value = /^(?:-o|--output)$/.test(word) ? words[index + 1] : /^(?:-o|--output=)(.*)$/.exec(word)?.[1];
    if (value === 'json' || value === 'yaml') form = value;
  });
  return form;
}

/**
 * Prints an error and returns the exit code of the command. Rethrows errors that are bugs, so that Node
 * prints their stack.
 */
export function printError(error: unknown, form: ErrorForm, terminal: Terminal): ExitCode {
  if (error instanceof CommanderError && error.exitCode === 0) return 0;
  const { exitCode, text, document } = described(error, terminal);
  if (form === 'table') terminal.err(text);
  else if (form === 'json') terminal.err(`${JSON.stringify({ error: document })}\n`);
  else terminal.err(serialised('yaml', { error: document }));
  return exitCode;
}

type Described = {
  readonly exitCode: ExitCode;
  readonly text: string;
  readonly document: {
    readonly code: string;
    readonly message: string;
    readonly fix?: string;
    readonly problems?: readonly unknown[];
  };
};

function described(error: unknown, terminal: Terminal): Described {
  // The text is empty, because Commander has already printed the message.
  if (error instanceof CommanderError) return { exitCode: 2, text: '', document: usageOf(error) };
  if (error instanceof ConfigError) return { exitCode: 1, text: `${error.message}\n`, document: configOf(error) };
  if (error instanceof CliError) {
    // The form of configuration problems is the same in each command.
    if (error.cause instanceof ConfigError) return { ...described(error.cause, terminal), exitCode: error.exitCode };
    const { message, fix, exitCode, problems } = error;
    const advice = fix === undefined ? '' : `  ${styleOf(terminal).dim(`→ ${fix}`)}\n`;
    const document = {
      code: codeOf(error),
      message: headingOf(message, problems.length),
      ...(fix === undefined ? {} : { fix }),
      ...(problems.length === 0 ? {} : { problems }),
    };
    return { exitCode, text: `weir: ${visibleMessage(message)}\n${advice}`, document };
  }
  if (!isNamed(error)) throw error;
  return {
    exitCode: 1,
    text: `weir: ${visibleMessage(error.message)}\n`,
    document: { code: 'failed', message: error.message },
  };
}

/** A message may list problems, one a line. */
const visibleMessage = (message: string): string => message.split('\n').map(visible).join('\n');

/**
 * Returns the first line of a message without its colon. The further lines list the problems, which the JSON
 * and YAML forms contain separately.
 */
const headingOf = (message: string, problems: number): string =>
  problems === 0 ? message : (message.split('\n')[0] ?? '').replace(/:$/, '');

function codeOf(error: CliError): string {
  const { code, exitCode } = error;
  if (code !== undefined) return code;
  if (error instanceof UnreachableError) return 'unreachable';
  return exitCode === 2 ? 'usage' : 'failed';
}

function usageOf({ message, code }: CommanderError): Described['document'] {
  if (code === 'commander.help')
    return { code: 'usage', message: 'no command is given', fix: '`weir --help` shows all' };
  const [first = '', hint] = message.replace(/^error: /, '').split('\n');
  return { code: 'usage', message: first, fix: hint?.replace(/^[(]|[)]$/g, '') ?? '`weir --help` says more' };
}

function configOf({ problems }: ConfigError): Described['document'] {
  const message = `the configuration is not valid: ${problems.length} problem${problems.length === 1 ? '' : 's'}`;
  const listed = problems.map(({ key, code, message: what, where }) => ({ pointer: key, code, message: what, where }));
  return { code: 'invalid_config', message, problems: listed };
}

/**
 * Returns whether the error has a code. Such an error is a failure that its message explains. Any other error
 * is a bug.
 */
function isNamed(error: unknown): error is Error & { readonly code: string } {
  return error instanceof Error && 'code' in error && typeof error.code === 'string';
}
