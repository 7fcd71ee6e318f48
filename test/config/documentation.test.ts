import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { configurationDocument } from '#config/documentation.js';

it('docs/configuration.md is up to date with the schema', () => {
  const file = readFileSync(new URL('../../docs/configuration.md', import.meta.url), 'utf8');
  expect(file).toBe(configurationDocument());
});
