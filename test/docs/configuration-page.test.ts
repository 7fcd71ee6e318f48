import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { configurationPage } from '../../scripts/pages/configuration-page.js';

it('docs/configuration.md equals the page that is generated from the configuration schema', () => {
  const file = readFileSync(new URL('../../docs/configuration.md', import.meta.url), 'utf8');
  expect(file).toBe(configurationPage());
});
