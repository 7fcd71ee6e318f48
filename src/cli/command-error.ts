/** The exit code of a command: 0 done, 1 failed, 2 usage error, 3 the answer is no. */
export type ExitCode = 0 | 1 | 2 | 3;

/** The error message of a command, one sentence and a remedy, before it exits with `exitCode`. */
export class CliError extends Error {
  override readonly name: string = 'CliError';
  readonly fix: string | undefined;
  readonly exitCode: ExitCode;
  /** The code of the API error, or one of `OWN_CODES`. */
  readonly code: string | undefined;
  readonly problems: readonly PlacedProblem[];
  constructor(
    message: string,
    options: ErrorOptions & {
      readonly fix?: string | undefined;
      readonly exitCode?: ExitCode;
      readonly code?: string | undefined;
      readonly problems?: readonly PlacedProblem[];
    } = {},
  ) {
    super(message, options);
    this.fix = options.fix;
    this.exitCode = options.exitCode ?? 1;
    this.code = options.code;
    this.problems = options.problems ?? [];
  }
}

/** The server could not be reached. */
export class UnreachableError extends CliError {
  override readonly name = 'UnreachableError';
}

/** A problem with its place in a file. */
type PlacedProblem = Problem & { readonly where?: string };
export type Problem = { readonly pointer: string; readonly code: string; readonly message: string };

/**
 * The node refused a request. The error has the node's message, its code if there was one, and all problems.
 */
export class RefusedError extends CliError {
  override readonly name = 'RefusedError';
  constructor(
    message: string,
    readonly status: number,
    code: string | undefined,
    problems: readonly Problem[],
    fix: string | undefined,
  ) {
    super(message, { fix, code, problems });
  }
}
