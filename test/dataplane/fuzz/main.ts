import { fork } from 'node:child_process';
import { parseArgs } from 'node:util';
import type { Family } from '#contracts/policy/policy-model.js';
import { fuzz, textOf } from './campaign.js';

const { values } = parseArgs({
  options: {
    packets: { type: 'string', default: '10000000' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    family: { type: 'string', default: 'ipv4' },
    processes: { type: 'string', default: '2' },
    share: { type: 'boolean', default: false },
  },
});
const packets = Number(values.packets);
const seed = Number(values.seed);
const processes = Math.min(2, Math.max(1, Number(values.processes)));

if (values.family !== 'ipv4' && values.family !== 'ipv6') throw new RangeError(`not a family: ${values.family}`);
const family: Family = values.family;

type WorkerReport = { readonly packets?: number; readonly failure?: string };

/** Compares the packets of this child process, and sends progress and the failure to the parent process. */
function work(): void {
  const { failure } = fuzz(family, packets, seed, (done) => process.send?.({ packets: done } satisfies WorkerReport));
  process.send?.({ ...(failure === undefined ? {} : { failure: textOf(failure) }) } satisfies WorkerReport);
  process.disconnect();
}

async function lead(): Promise<void> {
  process.stdout.write(`fuzz: ${packets} packets of ${family}, seed ${seed}, ${processes} processes\n`);
  const started = performance.now();
  const done = new Array<number>(processes).fill(0);
  const rate = (): string => {
    const sum = done.reduce((all, one) => all + one, 0);
    return `${sum} packets, ${Math.round(sum / ((performance.now() - started) / 1_000))} packets/s`;
  };
  const failures: string[] = [];
  let reportedAt = started;
  await Promise.all(
    done.map(async (_, index) => {
      const share = [
        '--share',
        '--packets',
        String(Math.ceil(packets / processes)),
        '--seed',
        String(seed + index * 1_000_003),
        '--family',
        family,
      ];
      const child = fork(process.argv[1] ?? '', share);
      child.on('message', (report: WorkerReport) => {
        if (report.packets !== undefined) done[index] = report.packets;
        if (report.failure !== undefined) failures.push(report.failure);
        if (performance.now() - reportedAt < 5_000) return;
        reportedAt = performance.now();
        process.stdout.write(`fuzz: ${rate()}\n`);
      });
      const code = await new Promise<number | null>((resolve) => child.once('exit', resolve));
      if (code !== 0) throw new Error(`process ${index} ended with ${code}`);
    }),
  );
  for (const failure of failures) process.stdout.write(`${failure}\n`);
  process.stdout.write(`fuzz: ${rate()}, ${failures.length === 0 ? 'no mismatch' : `${failures.length} mismatches`}\n`);
  if (failures.length > 0) process.exitCode = 1;
}

if (values.share) work();
else await lead();
