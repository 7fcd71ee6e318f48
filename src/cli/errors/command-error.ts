import type { AssertionFailure } from '#contracts/analysis/assertion.js';

/**
 * The exit code of a command. 0: success. 1: failure. 2: wrong usage. 3: a check or comparison has a negative
 * result. 78 (EX_CONFIG of sysexits.h): the node cannot start with its configuration. See `EXIT_CODES`.
 */
export type ExitCode = 0 | 1 | 2 | 3 | 78;

/** An error that ends a command with `exitCode`. The message is one sentence; `fix` is advice to the user. */
export class CliError extends Error {
  override readonly name: string = 'CliError';
  readonly fix: string | undefined;
  readonly exitCode: ExitCode;
  /** The error code of the API, or one of `OWN_CODES`. */
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

/** Thrown if a request gets no response: the connection failed, or the time limit passed. */
export class UnreachableError extends CliError {
  override readonly name = 'UnreachableError';
}

/** `where` is the position of the problem in a file, as `FILE:LINE:COLUMN`. */
type PlacedProblem = Problem & { readonly where?: string };
export type Problem = { readonly pointer: string; readonly code: string; readonly message: string };

/**
 * The node refused a request. The error contains the node's message, its error code if the response has one,
 * and all problems.
 */
export class RefusedError extends CliError {
  override readonly name = 'RefusedError';
  constructor(
    message: string,
    readonly status: number,
    code: string | undefined,
    problems: readonly Problem[],
    fix: string | undefined,
    exitCode: ExitCode = 1,
  ) {
    super(message, { fix, code, problems, exitCode });
  }
}

/** The node refused a policy write because of assertions. */
export class AssertionsFailedError extends RefusedError {
  constructor(
    message: string,
    /** The assertions, as the API responds. */
    readonly assertions: readonly AssertionFailure[],
    { status, code, fix }: Pick<RefusedError, 'status' | 'code' | 'fix'>,
  ) {
    super(message, status, code, [], fix);
  }
}
