import { existsSync, readdirSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { fileAt, root } from './files.js';

const { text } = fileAt('CONTRIBUTING.md');

/** The text of a section of the page, from the heading `## title` to the next heading of this level. */
function section(title: string): string {
  const [, body = ''] = new RegExp(`^## ${title}\\n([\\s\\S]*?)(?=^## |(?![\\s\\S]))`, 'm').exec(text) ?? [];
  return body;
}

/** The paths of the folders in a folder, without those that are hidden or that Git ignores. */
function foldersIn(folder: string): readonly string[] {
  const ignored = new Set(
    fileAt('.gitignore')
      .text.split('\n')
      .map((line) => line.replaceAll('/', '')),
  );
  return readdirSync(new URL(folder, root), { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && !entry.name.startsWith('.') && !ignored.has(entry.name))
    .map(({ name }) => `${folder === '.' ? '' : folder}${name}/`);
}

test('the table of folders in CONTRIBUTING.md has exactly one row for each folder of the repository, of src/ and of test/, and no other row', () => {
  const cells = [...section('Folders').matchAll(/^\| (`.+?`) \|/gm)].map(([, cell = '']) => cell);
  const listed = cells.flatMap((cell) => cell.split(', ').map((path) => path.replaceAll('`', '')));
  const folders = ['.', 'src/', 'test/'].flatMap(foldersIn);
  expect(folders).toContain('src/api/');
  const isHidden = (path: string): boolean => path.startsWith('.');
  expect(listed.filter((path) => !isHidden(path)).sort()).toEqual([...folders].sort());
  expect(listed.filter((path) => isHidden(path) && !existsSync(new URL(path, root)))).toEqual([]);
});

describe('the recipes of "How to add …"', () => {
  const recipes = [...section('How to add …').matchAll(/^### (.+)\n([\s\S]*?)(?=^### |(?![\s\S]))/gm)].map(
    ([, title = '', body = '']) => ({ title, body }),
  );

  test('a recipe "How to add …" exists for each kind of change', () => {
    expect(recipes.map(({ title }) => title.replace(/ \(as .*/, ''))).toEqual([
      'A matcher',
      'A warning',
      'A finding type',
      'A metric',
      'A command',
      'A configuration key',
      'A drop reason',
      'A message between threads',
      'A route',
    ]);
  });

  test.each(recipes)('the recipes "How to add …" name existing files: $title', ({ body }) => {
    const missing: string[] = [];
    let folder = '';
    let files = 0;
    for (const [, name = ''] of body.matchAll(/`([\w./-]+)`/g)) {
      const isPath = /^(?:\.?\w+\/)/.test(name);
      // A file name without a folder is in the folder of the preceding path.
      if (!isPath && !/^[\w-]+(?:\.\w+)*\.(?:ts|h|sh|yaml)$/.test(name)) continue;
      const path = isPath ? name : `${folder}${name}`;
      if (isPath) folder = path.slice(0, path.lastIndexOf('/') + 1);
      files += 1;
      if (!existsSync(new URL(path, root))) missing.push(path);
    }
    expect(missing).toEqual([]);
    expect(files).toBeGreaterThan(4);
  });
});
