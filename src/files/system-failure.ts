import { getSystemErrorMap } from 'node:util';

/** The reason of a failure. For a system error its text, such as `no such file or directory`. */
export function reasonOf(failure: unknown): string {
  return wordsOf(failure) ?? (failure instanceof Error ? failure.message : String(failure));
}

/**
 * Returns the failure with its class and code. The message of a system error becomes `PATH: no such file or
 * directory`.
 */
export function withPath(path: string, failure: unknown): unknown {
  const words = wordsOf(failure);
  if (words !== undefined) (failure as Error).message = `${path}: ${words}`;
  return failure;
}

function wordsOf(failure: unknown): string | undefined {
  if (!(failure instanceof Error)) return undefined;
  const { errno, syscall } = failure as NodeJS.ErrnoException;
  // Errors of zlib have an errno from another table, and no system call.
  return errno === undefined || syscall === undefined ? undefined : getSystemErrorMap().get(errno)?.[1];
}
