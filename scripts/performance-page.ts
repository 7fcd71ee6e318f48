// Copies figures of benchmark results into the existing rows of the table in docs/performance.md. Each
// argument is a JSON file of results in bench/results/.
import './usage.js';
import { readFileSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { boundOf, figureOf, isKept, type Row } from '../bench/bench.js';

/**
 * Copies figures of benchmark results into the existing rows of the table in docs/performance.md. Each
 * argument is a JSON file of results in bench/results/.
 */
const PAGE = new URL('../docs/performance.md', import.meta.url);
const ROW = /^\| ([\w-]+) \| (.+?) \| .*? \|(?: .*?)? \| \d{4}-\d\d-\d\d \| (`npm run bench -- [\w-]+`) \|$/gm;

type Results = { readonly results: Readonly<Record<string, readonly Row[]>> };

let page = readFileSync(PAGE, 'utf8');
for (const file of process.argv.slice(2)) {
  const { results } = JSON.parse(readFileSync(file, 'utf8')) as Results;
  const date = basename(file).slice(0, 10);
  page = page.replace(ROW, (line, bench: string, what: string, command: string) => {
    const rows = results[bench];
    if (rows === undefined) return line;
    const row = rows.find((each) => each.what === what);
    if (row === undefined) throw new Error(`${file}: the benchmark ${bench} has no row "${what}"`);
    const bound = isKept(row) ? boundOf(row) : `${boundOf(row)}, missed`;
    return `| ${bench} | ${what} | ${figureOf(row)} |${` ${bound} `.replace(/^ {2}$/, ' ')}| ${date} | ${command} |`;
  });
}
writeFileSync(PAGE, page);
