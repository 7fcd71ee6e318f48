import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { filesIn, root, rootPages } from './files.js';

/** Matches a path of the repository in backticks in the text of a page. */
const NAMED = /`((?:src|statecharts|test|bench|bin|deploy|docs|examples|schemas|scripts)\/[^`\s*{}<>]*)`/g;
const LINKED = /\]\(([^)\s#]+)(?:#[^)]*)?\)/g;

const pages = [...rootPages, ...filesIn(['docs', 'bench'], /\.md$/)];

test('each repository path in backticks in the docs belongs to an existing file or folder', () => {
  const named = pages.flatMap(({ path, text }) => [...text.matchAll(NAMED)].map(([, file = '']) => ({ path, file })));
  expect(named.length).toBeGreaterThan(0);
  expect(named.filter(({ file }) => !existsSync(new URL(file, root)))).toEqual([]);
});

test('each relative link in the docs leads to an existing file', () => {
  const linked = pages.flatMap(({ path, text }) =>
    [...text.matchAll(LINKED)].map(([, to = '']) => ({ path, to })).filter(({ to }) => !/^[a-z]+:/.test(to)),
  );
  expect(linked.length).toBeGreaterThan(0);
  expect(linked.filter(({ path, to }) => !existsSync(new URL(to, new URL(path, root))))).toEqual([]);
});

test('each picture in docs/images is used in a page, with an alternative text', () => {
  const shown = pages.flatMap(({ path, text }) =>
    [...text.matchAll(/!\[([^\]]{20,})\]\(([^)\s]+)\)/g)].map(([, , to = '']) => new URL(to, new URL(path, root)).href),
  );
  const pictures = readdirSync(new URL('docs/images/', root)).map((name) => new URL(`docs/images/${name}`, root).href);
  expect([...new Set(shown)].sort()).toEqual(pictures.sort());
});

test('each relative link in a page of docs that is not only for developers leads to a file of the packages', () => {
  const stage = readFileSync(new URL('scripts/release/stage.sh', root), 'utf8');
  const packaged = /^cp -r (.*) "\$stage"$/m.exec(stage)?.[1]?.split(' ') ?? [];
  expect(packaged).toContain('docs');
  const linked = filesIn(['docs'], /^[^/]+\.md$/).flatMap(({ path, text }) => {
    const shown = path === 'docs/README.md' ? (text.split('## Developer')[0] ?? '') : text;
    return [...shown.matchAll(LINKED)].map(([, to = '']) => ({ path, to })).filter(({ to }) => !/^[a-z]+:/.test(to));
  });
  const topOf = ({ path, to }: (typeof linked)[number]): string =>
    new URL(to, new URL(path, 'file:///')).pathname.split('/')[1] ?? '';
  expect(linked.length).toBeGreaterThan(0);
  expect(linked.filter((link) => !packaged.includes(topOf(link)))).toEqual([]);
});

/** The anchors of the headings of a page, as GitHub makes them. */
function anchorsOf(text: string): ReadonlySet<string> {
  const headings = [...text.replaceAll(/^ *```[\s\S]*?^ *```$/gm, '').matchAll(/^#+ (.+)$/gm)];
  return new Set(
    headings.map(([, title = '']) =>
      title
        .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N}_\- ]/gu, '')
        .replaceAll(' ', '-'),
    ),
  );
}

test('each link to a heading of a page in the docs leads to an existing heading', () => {
  const anchors = new Map(pages.map(({ path, text }) => [new URL(path, root).href, anchorsOf(text)]));
  const linked = pages.flatMap(({ path, text }) =>
    [...text.matchAll(/\]\(([^)\s#:]*)#([^)\s]+)\)/g)].map(([, to = '', anchor = '']) => ({ path, to, anchor })),
  );
  expect(linked.length).toBeGreaterThan(0);
  const isAbsent = ({ path, to, anchor }: (typeof linked)[number]): boolean =>
    anchors.get(new URL(to === '' ? (path.split('/').at(-1) ?? '') : to, new URL(path, root)).href)?.has(anchor) ===
    false;
  expect(linked.filter(isAbsent)).toEqual([]);
});

test('each function in the tables of "Six walks" in ARCHITECTURE.md occurs in the file of the same table row', () => {
  const text = readFileSync(new URL('ARCHITECTURE.md', root), 'utf8');
  const steps = [...text.matchAll(/^\| `([^`]+)` \| `([^`]+)` \|/gm)].map(([, file = '', name = '']) => ({
    file,
    name,
  }));
  expect(steps.length).toBeGreaterThan(60);
  const isAbsent = ({ file, name }: (typeof steps)[number]): boolean =>
    !new RegExp(`(?<!\\w)${name}(?!\\w)`).test(readFileSync(new URL(file, root), 'utf8'));
  expect(steps.filter(isAbsent)).toEqual([]);
});
