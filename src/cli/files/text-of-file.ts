import { CliError } from '#cli/errors/command-error.js';
import { readPipeOrFile } from '#files/bounded-file.js';
import { reasonOf } from '#files/system-failure.js';

/**
 * Returns the text of a file that a user named on the command line or in another file. Throws a `CliError` if
 * the file cannot be read, or has more than `maxBytes` bytes.
 */
export function textOfFile(file: string, maxBytes: number): string {
  try {
    return readPipeOrFile(file, maxBytes).toString();
  } catch (cause) {
    throw new CliError(`${file} cannot be read: ${reasonOf(cause)}`, { cause });
  }
}
