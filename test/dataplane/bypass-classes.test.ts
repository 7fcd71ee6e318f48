import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const root = new URL('../../', import.meta.url);
const page = readFileSync(new URL('docs/bypass-classes.md', root), 'utf8');
const rows = page.split('\n').flatMap((line) => {
  const cells = /^\| ([FHKNRT]\d+) \|(.*)\|$/.exec(line);
  return cells === null
    ? []
    : [{ id: cells[1], files: [...line.matchAll(/`(test\/[^`]*)`/g)].map(([, file]) => file ?? '') }];
});

test('docs/bypass-classes.md lists every class of bypass in the expected order, each with at least one test file', () => {
  expect(rows.map(({ id }) => id)).toEqual([
    ...Array.from({ length: 19 }, (_, index) => `K${index + 1}`),
    'R1',
    'N1',
    'N3',
    'T1',
    'H4',
    'F10',
    'F19',
  ]);
  expect(rows.filter(({ files }) => files.length === 0)).toEqual([]);
});

test('every test file that docs/bypass-classes.md names exists and contains a test', () => {
  const files = rows.flatMap(({ files }) => files);
  const wrong = files.filter((file) => {
    const path = new URL(file, root);
    return !existsSync(path) || !/\b(test|it)\b/.test(readFileSync(path, 'utf8'));
  });
  expect(wrong).toEqual([]);
});
