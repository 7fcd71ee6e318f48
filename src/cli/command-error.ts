/** What a command ends with: 0 done, 1 not done, 2 wrongly called, 3 the answer is no. */
export type ExitCode = 0 | 1 | 2 | 3;

/** What the command says, in one plain sentence and what to do about it, before it ends with `exitCode`. */
export class CliError extends Error {
  override readonly name: string = 'CliError';
  readonly fix: string | undefined;
  readonly exitCode: ExitCode;
  /** The code of the API for it, or one of `OWN_CODES`. */
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

/** Nobody answered. */
export class UnreachableError extends CliError {
  override readonly name = 'UnreachableError';
}

/** A problem, with the place in a file that it is about. */
type PlacedProblem = Problem & { readonly where?: string };
export type Problem = { readonly pointer: string; readonly code: string; readonly message: string };

/** The node said no: what it said, the code of its error where it told one, and every problem. */
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
