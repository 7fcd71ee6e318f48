// Writes the pages in docs/ and the JSON schemas in schemas/ that are generated from the code.
import './usage.js';
import { readFileSync, writeFileSync } from 'node:fs';
import { shapeOf } from '#cli/command-shape.js';
import { commandTree } from '#cli/command-tree.js';
import { processTerminal } from '#cli/output/terminal.js';
import { configJsonSchema } from '#config/schema/config-json-schema.js';
import { DROP_REASON_MEANING } from '#contracts/datapath/datapath-numbers.js';
import { createMetrics } from '#observe/metrics/metrics.js';
import { policyJsonSchema } from '#policy/document/json-schema.js';
import { cliPage } from './pages/cli-page.js';
import { configurationPage } from './pages/configuration-page.js';
import { errorsPage } from './pages/errors-page.js';
import { metricsPage } from './pages/metrics-page.js';
import { policyPage } from './pages/policy-page.js';

const unread = () =>
  Promise.reject(new Error('the generator of docs/metrics.md read a value; it needs only names and help texts'));
const metrics = createMetrics({ version: '', stats: unread, readiness: () => ({ ready: false, checks: [] }) });
const read = (file: string) => readFileSync(new URL(`../${file}`, import.meta.url), 'utf8');
const pages = {
  'cli.md': cliPage(shapeOf(commandTree(processTerminal, () => {}))),
  'configuration.md': configurationPage(),
  'errors.md': errorsPage(DROP_REASON_MEANING),
  'metrics.md': metricsPage(metrics.families()),
  'policy.md': policyPage(read('docs/policy.md'), (file) => read(`examples/policies/${file}`)),
};
const schemas = {
  'config.schema.json': configJsonSchema(),
  'policy.schema.json': policyJsonSchema('any'),
};
for (const [name, schema] of Object.entries(schemas)) {
  writeFileSync(new URL(`../schemas/${name}`, import.meta.url), `${JSON.stringify(schema, null, 2)}\n`);
  process.stdout.write(`schemas/${name}\n`);
}
for (const [name, text] of Object.entries(pages)) {
  writeFileSync(new URL(`../docs/${name}`, import.meta.url), text);
  process.stdout.write(`docs/${name}\n`);
}
