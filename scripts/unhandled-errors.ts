import { writeFileSync } from 'node:fs';
import type { Reporter } from 'vitest/node';

/**
 * A reporter of vitest that writes the errors outside of tests to the file `UNHANDLED_ERRORS`, one line for
 * each. The JSON report of vitest lacks them.
 */
export default class UnhandledErrors implements Reporter {
  onTestRunEnd(...[, errors]: Parameters<NonNullable<Reporter['onTestRunEnd']>>): void {
    const lines = errors.map(({ name, message }) => `${name ?? 'Error'}: ${message.split('\n')[0]}\n`);
    writeFileSync(process.env.UNHANDLED_ERRORS as string, lines.join(''));
  }
}
