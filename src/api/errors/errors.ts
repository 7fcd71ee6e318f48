import type { AssertionFailure } from '#contracts/analysis/assertion.js';
import type { CONFIG_PROBLEM_CODES } from '#contracts/config/config-problem-codes.js';
import type { PROBLEM_CODES } from '#contracts/policy/policy-problem.js';
import { ERRORS, type ErrorCode } from './error-table.js';

/**
 * A problem at one position of a request. `pointer` is a JSON pointer into the body (RFC 6901), `?name` for a
 * query parameter, or `/name` for a path parameter.
 */
export type ProblemLine = {
  readonly pointer: string;
  readonly code: keyof typeof PROBLEM_CODES | keyof typeof PARAMETER_CODES | keyof typeof CONFIG_PROBLEM_CODES;
  readonly message: string;
};

/** Codes of problems in path and query parameters. Problems in a body have codes of `PROBLEM_CODES`. */
export const PARAMETER_CODES = {
  unknown_parameter: 'The endpoint has no parameter of this name.',
  invalid_parameter: 'The parameter cannot have this value, or was given more than once.',
} as const;

/**
 * Returns the `detail` text of a response with problems: the first problem, and the number of further
 * problems.
 */
export function detailOf(problems: readonly ProblemLine[]): string {
  const [first, ...others] = problems;
  if (first === undefined) return 'the request is not valid';
  const place = first.pointer === '' ? (/^The body /.test(first.message) ? '' : 'the body: ') : `${first.pointer}: `;
  return `${place}${first.message}${others.length === 0 ? '' : ` (and ${others.length} more)`}`;
}

/** Problem details as in RFC 9457, with the additional members of D28. */
export type ProblemDocument = {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly error: string;
  readonly problems?: readonly ProblemLine[];
  readonly assertions?: readonly AssertionFailure[];
};

/**
 * An error that is sent to the client. The response contains only its status, title, `detail`, `problems`,
 * `assertions` and `headers`, and never its stack.
 */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly statusCode: number;
  constructor(
    readonly code: ErrorCode,
    readonly detail: string = ERRORS[code].when,
    readonly problems: readonly ProblemLine[] = [],
    readonly headers: Readonly<Record<string, string>> = {},
    /** The assertions that refuse a policy write. */
    readonly assertions?: readonly AssertionFailure[],
  ) {
    super(detail);
    this.statusCode = ERRORS[code].status;
  }
}

/** Headers of an error with status 426 (RFC 9110, 15.5.22). */
export const WEBSOCKET_NEEDED = { upgrade: 'websocket' } as const;

export const PROBLEM_TYPE = 'application/problem+json; charset=utf-8';
export const typeOf = (code: ErrorCode): string => `urn:weir:error:${code}`;

export function problemDocument(error: ApiError): ProblemDocument {
  const { status, title } = ERRORS[error.code];
  return {
    type: typeOf(error.code),
    title,
    status,
    detail: error.detail,
    error: sentence(title, error),
    ...(error.problems.length > 0 ? { problems: error.problems } : {}),
    ...(error.assertions === undefined ? {} : { assertions: error.assertions }),
  };
}

function sentence(title: string, { detail, problems }: ApiError): string {
  const [first, ...others] = problems;
  if (first === undefined) return withStop(detail);
  const place = first.pointer === '' ? title : `${title} at ${first.pointer}`;
  const more = others.length === 0 ? '' : ` (and ${others.length} more)`;
  return `${place}: ${first.message.replace(/[.]$/, '')}${more}.`;
}

const withStop = (text: string) => (/[.!?]$/.test(text) ? text : `${text}.`);
