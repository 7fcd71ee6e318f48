import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { errorsPage } from '#api/errors-page.js';

test('docs/errors.md says what the tables say', async () => {
  const page = await readFile(new URL('../../docs/errors.md', import.meta.url), 'utf8');
  expect(page, 'run: node --conditions=weir-source --import tsx scripts/errors-doc.ts').toBe(errorsPage());
});

test('drop reasons have a part of their own where they are known', () => {
  expect(errorsPage({ spoofed_source: 'The source does not route back.' })).toContain(
    '\n| `spoofed_source` | The source does not route back. |\n',
  );
});
