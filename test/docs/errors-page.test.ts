import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { DROP_REASON, DROP_REASON_MEANING } from '#contracts/datapath/datapath-numbers.js';
import { errorsPage } from '../../scripts/pages/errors-page.js';

test('docs/errors.md equals the page that is generated from the error tables', async () => {
  const page = await readFile(new URL('../../docs/errors.md', import.meta.url), 'utf8');
  expect(page, 'run: npm run docs').toBe(errorsPage(DROP_REASON_MEANING));
});

test('every drop reason has an explanation in `DROP_REASON_MEANING`', () => {
  expect(Object.keys(DROP_REASON_MEANING)).toEqual(Object.keys(DROP_REASON).filter((reason) => reason !== 'none'));
});
