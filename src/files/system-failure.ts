import { getSystemErrorMap } from 'node:util';

/**
 * Returns the reason of a failure as text. For a system error, this is a description such as `no such file
 * or directory`.
 */
export function reasonOf(failure: unknown): string {
  return wordsOf(failure) ?? (failure instanceof Error ? failure.message : String(failure));
}

/**
 * Changes the message of a system error to a text such as `PATH: no such file or directory`. Returns the
 * same error object, so class and code stay unchanged.
 */
export function withPath(path: string, failure: unknown): unknown {
  const words = wordsOf(failure);
  if (words !== undefined) (failure as Error).message = `${path}: ${words}`;
  return failure;
}

/** Texts for error codes of HTTP connections that Node.js defines itself, without an errno of the system. */
const CLOSED: Readonly<Record<string, string>> = {
  aborted: 'the server closed the connection within a response',
  'socket hang up': 'the server closed the connection without a response',
};

function wordsOf(failure: unknown): string | undefined {
  if (!(failure instanceof Error)) return undefined;
  const { errno, syscall, code } = failure as NodeJS.ErrnoException;
  if (code === 'ECONNRESET' && Object.hasOwn(CLOSED, failure.message)) return CLOSED[failure.message];
  // Ignore errors without `syscall`. A zlib error also has an `errno`, but its numbers are not those of
  // system errors.
  return errno === undefined || syscall === undefined ? undefined : getSystemErrorMap().get(errno)?.[1];
}
