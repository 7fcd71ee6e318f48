import { existsSync } from 'node:fs';
import { expect, test } from 'vitest';
import { filesIn, root, rootPages } from './files.js';

/** What a path in backticks begins with, if it is a path of the repository. */
const NAMED = /`((?:src|statecharts|test|bench|scripts|docs)\/[^`\s*{}<>]*)`/g;
const LINKED = /\]\(([^)\s#]+)(?:#[^)]*)?\)/g;

const pages = [...rootPages, ...filesIn(['docs'], /\.md$/)];

test('files that the docs name exist', () => {
  const named = pages.flatMap(({ path, text }) => [...text.matchAll(NAMED)].map(([, file = '']) => ({ path, file })));
  expect(named.length).toBeGreaterThan(0);
  expect(named.filter(({ file }) => !existsSync(new URL(file, root)))).toEqual([]);
});

test('relative links of the docs lead to files', () => {
  const linked = pages.flatMap(({ path, text }) =>
    [...text.matchAll(LINKED)].map(([, to = '']) => ({ path, to })).filter(({ to }) => !/^[a-z]+:/.test(to)),
  );
  expect(linked.length).toBeGreaterThan(0);
  expect(linked.filter(({ path, to }) => !existsSync(new URL(to, new URL(path, root))))).toEqual([]);
});
