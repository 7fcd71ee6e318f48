import { parseArgs } from 'node:util';
import { runChaos } from './chaos.js';

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '20' },
    first: { type: 'string', default: '1' },
    seconds: { type: 'string', default: '60' },
  },
});
const [seeds, first, seconds] = [values.seeds, values.first, values.seconds].map(Number);
if (![seeds, first, seconds].every((number) => Number.isInteger(number) && Number(number) > 0)) {
  console.error('chaos: --seeds, --first and --seconds must be whole numbers above 0');
  process.exit(2);
}
const interruption = new AbortController();
process.once('SIGINT', () => interruption.abort(new Error('interrupted')));
let violations = 0;
for (let seed = Number(first); seed < Number(first) + Number(seeds); seed++) {
  const report = await runChaos(seed, Number(seconds) * 1_000, interruption.signal);
  const { ok, failed, unknown } = report.writes;
  console.log(
    `seed ${seed}: ${report.faults.length} faults, writes ${ok} ok, ${failed} refused, ${unknown} unknown, ` +
      `${report.reads} reads, ${report.violations.length} violations`,
  );
  for (const violation of report.violations) console.log(`  ${violation}`);
  violations += report.violations.length;
}
console.log(`${seeds} seeds, ${violations} violations`);
process.exit(violations === 0 ? 0 : 1);
