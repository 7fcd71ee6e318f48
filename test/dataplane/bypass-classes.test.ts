import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const root = new URL('../../', import.meta.url);
const page = readFileSync(new URL('docs/bypass-classes.md', root), 'utf8');
const rows = page.split('\n').flatMap((line) => {
  const cells = /^\| (K\d+) \|(.*)\|$/.exec(line);
  return cells === null
    ? []
    : [{ id: cells[1], files: [...line.matchAll(/`(test\/[^`]*)`/g)].map(([, file]) => file ?? '') }];
});

/** Frames are tried in these; the others are about layouts, swaps and grants. */
const OTHERS = ['btf', 'swap', 'granted', 'grants-under-load', 'bypass-classes'];

test('the page names every class, in order, with tests', () => {
  expect(rows.map(({ id }) => id)).toEqual(Array.from({ length: 17 }, (_, index) => `K${index + 1}`));
  expect(rows.filter(({ files }) => files.length === 0)).toEqual([]);
});

test('every file that it names has tests', () => {
  const files = rows.flatMap(({ files }) => files);
  const wrong = files.filter((file) => {
    const path = new URL(file, root);
    return !existsSync(path) || !/\btest(\.each)?[(<]/.test(readFileSync(path, 'utf8'));
  });
  expect(wrong).toEqual([]);
});

test('every test of frames is named', () => {
  const named = new Set(rows.flatMap(({ files }) => files));
  const frames = readdirSync(new URL('test/dataplane/', root)).filter((file) => file.endsWith('.test.ts'));
  const unnamed = frames
    .filter((file) => !named.has(`test/dataplane/${file}`))
    .map((file) => file.replace('.test.ts', ''));
  expect(unnamed.filter((name) => !OTHERS.includes(name))).toEqual([]);
});
