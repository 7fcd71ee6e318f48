import { constants } from 'node:os';

const names = new Map(Object.entries(constants.errno).map(([name, number]) => [number, name]));

/** Returns whether an operation failed because the process or the machine had no free file descriptor. */
export function isOutOfDescriptors(failure: unknown): boolean {
  if (!(failure instanceof Error)) return false;
  const { code, cause } = failure as NodeJS.ErrnoException;
  if (code === 'EMFILE' || code === 'ENFILE') return true;
  // Search the message: if a worker thread cannot start, Node.js gives the errno only in the message.
  if (code === 'ERR_WORKER_INIT_FAILED') return /E[MN]FILE/.test(failure.message);
  return isOutOfDescriptors(cause);
}

/** The error of a failed system call. `code` is the name of the errno, for example EPERM. */
export class KernelFailure extends Error {
  override readonly name = 'KernelFailure';
  readonly code: string;
  constructor(
    readonly doing: string,
    readonly errno: number,
    detail?: string,
  ) {
    const code = names.get(errno) ?? `errno ${errno}`;
    super(`${doing}: ${code}${detail === undefined ? '' : `\n${detail}`}`);
    this.code = code;
  }
}
