import { describe, expect, test } from 'vitest';
import { fileAt, filesIn, rootPages } from './files.js';

const OWN = 'test/docs/contract.test.ts';
const FOLDERS = ['bench', 'bin', 'deploy', 'docs', 'examples', 'scripts', 'src', 'statecharts', 'test'];
const READ = /\.(ts|js|cjs|c|h|md|sh|yaml|json|snap)$/;
/**
 * Matches a reference such as `D12` or `F7` (one letter and a number), but not inside a word, a colour, an
 * escape such as `%C3`, base64 text, a file name or a MAC address.
 */
const REFERENCE = /(?<![\w%\\#+.-]|[0-9A-F]:)([BDFHKNRT]\d{1,2}[a-z]?)(?![\w+=-]|:[0-9A-F]{2}\b)/g;

const numbersIn = (text: string): string[] => [...text.matchAll(REFERENCE)].map(([, number]) => number ?? '');

/** Maps each reference number in use, such as `B5`, to the paths of the files that contain this number. */
function references(): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const { path, text } of [...rootPages, ...filesIn(FOLDERS, READ)]) {
    if (path === OWN) continue;
    for (const number of new Set(numbersIn(text))) found.set(number, [...(found.get(number) ?? []), path]);
  }
  return found;
}

function numbersOf(page: string, entry: RegExp): string[] {
  return [...fileAt(page).text.matchAll(entry)].map(([, number]) => number ?? '');
}

const used = references();
const without = (entries: readonly string[], letters: string): string[] =>
  [...used]
    .filter(([number]) => letters.includes(number.charAt(0)) && !entries.includes(number))
    .map(([number, found]) => `${number} in ${found[0]}`);

describe('docs/contract.md', () => {
  const headings = numbersOf('docs/contract.md', /^### ([BD]\d+[a-z]?)\. \S/gm);

  test('docs/contract.md has a heading for every D and B reference (such as D12) that source, tests or docs contain', () => {
    expect(without(headings, 'BD')).toEqual([]);
  });

  test('docs/contract.md has exactly one heading for each D and B number, in ascending order', () => {
    const order = new Intl.Collator('en', { numeric: true });
    const sorted = (letter: string): string[] =>
      [...new Set(headings)].filter((number) => number.startsWith(letter)).sort(order.compare);
    expect(headings).toEqual([...sorted('D'), ...sorted('B')]);
  });
});

describe('docs/bypass-classes.md', () => {
  test('docs/bypass-classes.md has a table row for every F, H, K, N, R and T reference (such as F7) in source, tests or docs', () => {
    expect(without(numbersOf('docs/bypass-classes.md', /^\| ([FHKNRT]\d+) \|/gm), 'FHKNRT')).toEqual([]);
  });
});

describe('the search for references such as D12', () => {
  test('the search for references such as D12 finds whole words only, and both references of a range such as D9–D12', () => {
    expect(numbersIn('(D9–D12), D17a. K1: N1/N3; "F10"')).toEqual(['D9', 'D12', 'D17a', 'K1', 'N1', 'N3', 'F10']);
    expect(numbersIn('%D1%B4 \\D1 0xD1 #D17 MIID12 D0:9F:12 T12= x.B3 H264 RFC1858')).toEqual([]);
  });

  test('the search for references such as D12 finds references in TypeScript, C and Markdown files', () => {
    const endings = new Set([...used.values()].flat().map((file) => file.slice(file.lastIndexOf('.'))));
    expect([...endings]).toEqual(expect.arrayContaining(['.ts', '.h', '.md']));
  });
});
