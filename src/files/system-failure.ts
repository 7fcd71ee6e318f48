import { getSystemErrorMap } from 'node:util';

/** Why it failed: of a failure of the system its own words, such as `no such file or directory`. */
export function reasonOf(failure: unknown): string {
  return wordsOf(failure) ?? (failure instanceof Error ? failure.message : String(failure));
}

/** The same failure, with its class and code; of the system's it says `PATH: no such file or directory`. */
export function withPath(path: string, failure: unknown): unknown {
  const words = wordsOf(failure);
  if (words !== undefined) (failure as Error).message = `${path}: ${words}`;
  return failure;
}

function wordsOf(failure: unknown): string | undefined {
  if (!(failure instanceof Error)) return undefined;
  const { errno, syscall } = failure as NodeJS.ErrnoException;
  // Failures of zlib have an errno of their own table, and no system call.
  return errno === undefined || syscall === undefined ? undefined : getSystemErrorMap().get(errno)?.[1];
}
