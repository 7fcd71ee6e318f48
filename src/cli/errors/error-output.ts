import { CommanderError } from 'commander';
import { serialised } from '#cli/client/remote.js';
import { styleOf } from '#cli/output/style.js';
import type { Terminal } from '#cli/output/terminal.js';
import { visible } from '#cli/output/visible.js';
import { ConfigError } from '#config/config-problem.js';
import { AssertionsFailedError, CliError, type ExitCode, UnreachableError } from './command-error.js';
import { isNamed, messageOf, remedyOf } from './system-error.js';

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
 * Prints an error and returns the exit code of the command. Prints nothing for `--help` and `--version`, and
 * for a command without its subcommand in the form `table`: Commander has printed the help. Rethrows errors
 * that are bugs, so that Node.js prints their stack.
 */
export function printError(error: unknown, form: ErrorForm, terminal: Terminal): ExitCode {
  if (error instanceof CommanderError && error.exitCode === 0) return 0;
  if (error instanceof CommanderError && form === 'table') return 2;
  const { exitCode, lines, document } = described(error);
  const { fix } = document;
  const advice = fix === undefined ? '' : `  ${styleOf(terminal).dim(`→ ${visible(fix)}`)}\n`;
  if (form === 'table') terminal.err(`weir: ${lines.map(visible).join('\n')}\n${advice}`);
  else if (form === 'json') terminal.err(`${JSON.stringify({ error: document })}\n`);
  else terminal.err(serialised('yaml', { error: document }));
  return exitCode;
}

type Described = {
  readonly exitCode: ExitCode;
  /** The error message, and a line for each problem. */
  readonly lines: readonly string[];
  readonly document: {
    readonly code: string;
    readonly message: string;
    readonly fix?: string;
    readonly problems?: readonly unknown[];
    readonly assertions?: readonly unknown[];
  };
};

function described(error: unknown): Described {
  if (error instanceof CommanderError) return { exitCode: 2, lines: [NO_COMMAND.message], document: NO_COMMAND };
  if (error instanceof ConfigError) return ofConfig(error);
  if (error instanceof CliError) {
    // Print configuration problems in the same form in all commands.
    if (error.cause instanceof ConfigError) return { ...ofConfig(error.cause), exitCode: error.exitCode };
    const { message, exitCode, problems } = error;
    const assertions = error instanceof AssertionsFailedError ? error.assertions : undefined;
    const fix = error.fix ?? remedyOf(error.cause);
    const document = {
      code: codeOf(error),
      message: headingOf(message, problems.length + (assertions?.length ?? 0)),
      ...(fix === undefined ? {} : { fix }),
      ...(problems.length === 0 ? {} : { problems }),
      ...(assertions === undefined ? {} : { assertions }),
    };
    return { exitCode, lines: message.split('\n'), document };
  }
  if (!isNamed(error)) throw error;
  const message = messageOf(error);
  const fix = remedyOf(error);
  const document = { code: 'failed', message, ...(fix === undefined ? {} : { fix }) };
  return { exitCode: 1, lines: message.split('\n'), document };
}

const NO_COMMAND = { code: 'usage', message: 'no command is given', fix: '`weir --help` shows all' };

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

function ofConfig(error: ConfigError): Described {
  const { problems } = error;
  const listed = problems.map(({ key, code, message, where }) => ({ pointer: key, code, message, where }));
  const [first] = problems;
  const isUnreadable = first?.code === 'unreadable';
  const message = isUnreadable
    ? `${first.where} cannot be read: ${first.message}`
    : `the configuration is not valid: ${problems.length} problem${problems.length === 1 ? '' : 's'}`;
  const fix = remedyOf(error.cause);
  return {
    exitCode: 1,
    lines: isUnreadable ? [message] : [message, ...error.message.split('\n')],
    document: { code: error.code, message, ...(fix === undefined ? {} : { fix }), problems: listed },
  };
}
