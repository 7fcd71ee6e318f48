import { readdirSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { fileAt, filesIn, root, rootPages } from './files.js';

/** A decision page: the number, title and date that it states. */
type Page = { readonly number: number; readonly file: string; readonly title: string; readonly date: string };

const FOLDER = 'docs/decisions';
const ROW = /^\| \[(\d{4})\]\(([^)]+)\) \| (.+) \| (\d{4}-\d\d-\d\d) \|$/;

const index = fileAt(`${FOLDER}/README.md`).text;
const rows = index
  .split('\n')
  .filter((line) => /^\| \[?\d/.test(line))
  .map((line): Page => {
    const [, number, file = '', title = '', date = ''] = ROW.exec(line) ?? [];
    return { number: Number(number), file, title, date };
  });
const files = readdirSync(new URL(FOLDER, root)).filter((file) => file !== 'README.md');

function pageOf(file: string): Page {
  const [heading = '', , dated = ''] = fileAt(`${FOLDER}/${file}`).text.split('\n');
  const [, number, title = heading] = /^# (\d+)\. (.+)$/.exec(heading) ?? [];
  const [, date = dated] = /^Date: (\S+)\.$/.exec(dated) ?? [];
  return { number: Number(number), file, title, date };
}

describe('the table of decisions in docs/decisions/README.md', () => {
  test('the table in docs/decisions/README.md has one row for each decision page, in ascending order, with its number, title and date', () => {
    expect(rows).toEqual(files.sort().map(pageOf));
  });

  test('the table in docs/decisions/README.md is followed by a number that no decision has used', () => {
    const [, next] = /next one is (\d+)/.exec(index) ?? [];
    expect(Number(next)).toBeGreaterThan(Math.max(...rows.map(({ number }) => number)));
  });
});

/** Returns the numbers in references such as `decision N`, and in links to decision pages. */
const numbersIn = (text: string): number[] =>
  [...text.matchAll(/\b[Dd]ecisions? (\d+)\b|\bdecisions\/(\d{4})-/g)].map(([, one, other]) => Number(one ?? other));

test('each decision number that source, tests or docs mention has a row in docs/decisions/README.md', () => {
  const known = new Set(rows.map(({ number }) => number));
  const named = [
    ...filesIn(['src', 'statecharts', 'test', 'bench', 'scripts', 'docs'], /\.(ts|js|c|h|md|sh)$/),
    ...rootPages,
  ].flatMap(({ path, text }) => numbersIn(text).map((number) => ({ path, number })));
  expect(named.length).toBeGreaterThan(0);
  expect(named.filter(({ number }) => !known.has(number))).toEqual([]);
});
