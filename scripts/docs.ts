import { writeFileSync } from 'node:fs';
import { errorsPage } from '#api/errors-page.js';
import { cliPage } from '#cli/cli-page.js';
import { shapeOf } from '#cli/command-shape.js';
import { commandTree } from '#cli/command-tree.js';
import { processTerminal } from '#cli/terminal.js';
import { configurationDocument } from '#config/documentation.js';
import { DROP_REASON_MEANING } from '#dataplane/program/numbers.js';
import { createMetrics } from '#observe/metrics.js';
import { metricsPage } from '#observe/metrics-page.js';

const unread = () => Promise.reject(new Error('nothing is scraped for a page'));
const metrics = createMetrics({ version: '', stats: unread, readiness: () => ({ ready: false, checks: [] }) });
const pages = {
  'cli.md': cliPage(shapeOf(commandTree(processTerminal, () => {}))),
  'configuration.md': configurationDocument(),
  'errors.md': errorsPage(DROP_REASON_MEANING),
  'metrics.md': metricsPage(metrics.families()),
};
for (const [name, text] of Object.entries(pages)) {
  writeFileSync(new URL(`../docs/${name}`, import.meta.url), text);
  process.stdout.write(`docs/${name}\n`);
}
