// Draws each statechart as a page in docs/statecharts/.
import './usage.js';
import { mkdirSync, writeFileSync } from 'node:fs';
import { CHARTS } from '#statecharts/charts.js';
import { drawChart } from '#statecharts/drawing.js';

const folder = new URL('../docs/statecharts/', import.meta.url);
mkdirSync(folder, { recursive: true });
for (const [name, chart] of Object.entries(CHARTS)) {
  writeFileSync(new URL(`${name}.md`, folder), drawChart(chart));
  process.stdout.write(`docs/statecharts/${name}.md\n`);
}
