import { existsSync, readdirSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { fileAt, filesIn, root, rootPages } from './files.js';

type Row = { readonly number: string; readonly page: Page | null; readonly replacedBy: string | null };
type Page = { readonly file: string; readonly title: string; readonly status: string; readonly date: string };

const FOLDER = 'docs/decisions';
const ROW =
  /^\| (?:\[(\d{4})\]\(([^)]+)\)|(\d{4})) \| (.+) \| (accepted|replaced) \| (\d{4}-\d\d-\d\d) \|(?: \[[^\]]+\]\(([^)]+)\))? \|$/;

const table = fileAt(`${FOLDER}/README.md`)
  .text.split('\n')
  .filter((line) => /^\| \[?\d/.test(line));
const rows = table.map((line): Row => {
  const [, linked, file, plain, title = '', status = '', date = '', replacedBy] = ROW.exec(line) ?? [];
  return {
    number: linked ?? plain ?? line,
    page: file === undefined ? null : { file, title, status, date },
    replacedBy: replacedBy ?? null,
  };
});
const files = readdirSync(new URL(FOLDER, root)).filter((file) => file !== 'README.md');

function pageOf(file: string): Page & { readonly number: number } {
  const [heading = '', , state = ''] = fileAt(`${FOLDER}/${file}`).text.split('\n');
  const [, number, title = heading] = /^# (\d+)\. (.+)$/.exec(heading) ?? [];
  const [, status = state, date = state] = /^Status: (\w+)\. Date: (\S+)\.$/.exec(state) ?? [];
  return { number: Number(number), file, title, status, date };
}

describe('the table of decisions in docs/decisions/README.md', () => {
  test('has one row for each decision number, in ascending order', () => {
    const numbers = rows.map(({ number }) => number);
    expect(numbers).toEqual([...new Set(numbers)].sort());
  });

  test('states the number, title, status and date of each decision exactly as the page of that decision', () => {
    expect(rows.flatMap(({ number, page }) => (page === null ? [] : { number: Number(number), ...page }))).toEqual(
      files.sort().map(pageOf),
    );
  });

  test('links each replaced decision to the accepted decision page or the design page that replaces it', () => {
    const accepted = new Set(rows.flatMap(({ page }) => (page?.status === 'accepted' ? page.file : [])));
    const isThere = (file: string): boolean =>
      accepted.has(file) || (file.startsWith('../design/') && existsSync(new URL(`${FOLDER}/${file}`, root)));
    const wrong = rows.filter(({ page, replacedBy }) =>
      page === null ? replacedBy === null || !isThere(replacedBy) : replacedBy !== null,
    );
    expect(wrong).toEqual([]);
  });
});

test('each decision number that source, tests or docs mention has a row in docs/decisions/README.md', () => {
  const known = new Set(rows.map(({ number }) => Number(number)));
  const named = [
    ...filesIn(['src', 'statecharts', 'test', 'bench', 'scripts', 'docs'], /\.(ts|js|c|h|md|sh)$/),
    ...rootPages,
  ].flatMap(({ path, text }) =>
    [...text.matchAll(/\b[Dd]ecisions? (\d+)\b|\bdecisions\/(\d{4})-/g)].map(([, one, other]) => ({
      path,
      number: Number(one ?? other),
    })),
  );
  expect(named.length).toBeGreaterThan(0);
  expect(named.filter(({ number }) => !known.has(number))).toEqual([]);
});
