import { writeFileSync } from 'node:fs';
import { errorsPage } from '#api/errors-page.js';
import { configurationDocument } from '#config/documentation.js';
import { DROP_REASON_MEANING } from '#dataplane/program/numbers.js';

const pages = {
  'configuration.md': configurationDocument(),
  'errors.md': errorsPage(DROP_REASON_MEANING),
};
for (const [name, text] of Object.entries(pages)) {
  writeFileSync(new URL(`../docs/${name}`, import.meta.url), text);
  process.stdout.write(`docs/${name}\n`);
}
