import { constants } from 'node:os';

const names = new Map(Object.entries(constants.errno).map(([name, number]) => [number, name]));

/** The kernel said no: what was being done, and what came back. `code` is the name of the errno. */
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
