import { parseArgs } from 'node:util';
import { type ChaosReport, runChaos } from './chaos.js';
import { type StepCount, sumOf } from './step-counts.js';

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '20' },
    first: { type: 'string', default: '1' },
    seconds: { type: 'string', default: '60' },
  },
});
const [seeds, firstSeed, seconds] = [values.seeds, values.first, values.seconds].map(Number);
if (![seeds, firstSeed, seconds].every((number) => Number.isInteger(number) && Number(number) > 0)) {
  console.error('chaos: --seeds, --first and --seconds must be whole numbers above 0');
  process.exit(2);
}
const interruption = new AbortController();
process.once('SIGINT', () => interruption.abort(new Error('interrupted')));
const reports: ChaosReport[] = [];
for (let seed = Number(firstSeed); seed < Number(firstSeed) + Number(seeds); seed++) {
  const report = await runChaos(seed, Number(seconds) * 1_000, interruption.signal);
  print(report);
  reports.push(report);
}
const violations = reports.reduce((sum, report) => sum + report.violations.length, 0);
const ok = reports.reduce((sum, { writes }) => sum + writes.ok, 0);
console.log(`${seeds} seeds, ${ok} writes ok, ${violations} violations`);
printSteps(sumOf(reports.flatMap(({ steps }) => steps)));
process.exit(violations === 0 ? 0 : 1);

function print(report: ChaosReport): void {
  const { ok, failed, unknown } = report.writes;
  console.log(
    `seed ${report.seed}: ${report.faults.length} faults, writes ${ok} ok, ${failed} refused, ${unknown} unknown, ` +
      `${report.reads} reads, ${report.probes} probe rounds, ${report.violations.length} violations`,
  );
  const failures = [...report.failures].sort(([, left], [, right]) => right - left);
  console.log(`  without success: ${failures.map(([code, count]) => `${code} ${count}`).join(', ')}`);
  const [first] = report.unexplained;
  if (first !== undefined)
    console.log(
      `  ${report.unexplained.length} of them without a fault, first ${first.code} at ${first.node}: ${first.detail}`,
    );
  printSteps(report.steps);
  for (const violation of report.violations) console.log(`  ${violation}`);
}

function printSteps(steps: readonly StepCount[]): void {
  for (const kind of new Set(steps.map((each) => each.kind))) {
    const ofKind = steps.filter((each) => each.kind === kind);
    console.log(`  ${kind}: ${ofKind.map(stepText).join(', ')}`);
  }
}

/** For example `voted 3/4 (2 committed, 1 in force)`: planned four times, hit three times. */
function stepText({ step, planned, hit, committed, flipped }: StepCount): string {
  const ends = hit === 0 ? '' : ` (${committed} committed, ${flipped} in force)`;
  return `${step} ${hit}/${planned}${ends}`;
}
