import { readFileSync } from 'node:fs';

/**
 * Prints the comment at the top of the script for --help, and ends the process. Scripts import this module
 * before all others, so that nothing else runs first.
 */
if (process.argv.slice(2).some((word) => word === '-h' || word === '--help')) {
  const lines = readFileSync(process.argv[1] ?? '', 'utf8').split('\n');
  const end = lines.findIndex((line) => !line.startsWith('//'));
  process.stdout.write(
    `${lines
      .slice(0, end)
      .map((line) => line.replace(/^\/\/ ?/, ''))
      .join('\n')}\n`,
  );
  process.exit(0);
}
