// Copies figures of benchmark results into bench/figures.tsv, which has all rows, and into the existing rows
// of the table in docs/performance.md. Each argument is a JSON file of results in bench/results/.
import './usage.js';
import { readFileSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { boundOf, figureOf, isKept, type Row } from '../bench/bench.js';

const PAGE = new URL('../docs/performance.md', import.meta.url);
const FIGURES = new URL('../bench/figures.tsv', import.meta.url);
const ROW = /^\| ([\w-]+) \| (.+?) \| .*? \|(?: .*?)? \| \d{4}-\d\d-\d\d \|$/gm;

type Results = { readonly results: Readonly<Record<string, readonly Row[]>> };

const boundAndResult = (row: Row): string => (isKept(row) ? boundOf(row) : `${boundOf(row)}, missed`);

let page = readFileSync(PAGE, 'utf8');
const [head = '', ...figures] = readFileSync(FIGURES, 'utf8').trimEnd().split('\n');
let lines = figures;
for (const file of process.argv.slice(2)) {
  const { results } = JSON.parse(readFileSync(file, 'utf8')) as Results;
  const date = basename(file).slice(0, 10);
  page = page.replace(ROW, (line, bench: string, what: string) => {
    const rows = results[bench];
    if (rows === undefined) return line;
    const row = rows.find((each) => each.what === what);
    if (row === undefined) throw new Error(`${file}: the benchmark ${bench} has no row "${what}"`);
    return `| ${bench} | ${what} | ${figureOf(row)} |${` ${boundAndResult(row)} `.replace(/^ {2}$/, ' ')}| ${date} |`;
  });
  for (const [bench, rows] of Object.entries(results)) {
    const own = rows.map((row) => [bench, row.what, figureOf(row), boundAndResult(row), date].join('\t'));
    const isOwn = (line: string): boolean => line.startsWith(`${bench}\t`);
    const first = lines.findIndex(isOwn);
    lines = lines.filter((line) => !isOwn(line));
    lines.splice(first < 0 ? lines.length : first, 0, ...own);
  }
}
writeFileSync(PAGE, page);
writeFileSync(FIGURES, `${[head, ...lines].join('\n')}\n`);
