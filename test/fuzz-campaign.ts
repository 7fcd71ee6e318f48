import { parseArgs } from 'node:util';
import { Random } from './seed.js';

/**
 * A fuzz target: `make` creates one input, and `check` throws an error if the result for this input is wrong.
 */
export type Target = {
  readonly make: (random: Random) => Uint8Array;
  readonly check: (bytes: Uint8Array, random: Random) => void;
};
type Told = { readonly inputs: number; readonly slowestMs: number; readonly failure: string | undefined };

const SLOW_MS = 1_000;

/**
 * Feeds random inputs to each target. A target ends after its share of the count or of the time, or at the
 * first input that fails. An input also fails if it takes more than `SLOW_MS`. The command line has the
 * options `--count`, `--seconds`, `--seed` and `--target`. Prints a failing input, and sets the exit code 1.
 */
export function playAll(targetsOf: (seed: number) => ReadonlyMap<string, Target>): void {
  const { values } = parseArgs({
    options: {
      count: { type: 'string', default: '10000000' },
      seconds: { type: 'string', default: '60' },
      seed: { type: 'string', default: String(Date.now() % 1_000_000) },
      target: { type: 'string', default: '' },
    },
  });
  const seed = Number(values.seed);
  const targets = [...targetsOf(seed)].filter(([name]) => values.target === '' || name === values.target);
  process.stdout.write(`fuzz: seed ${seed}, at most ${values.count} inputs and ${values.seconds} s\n`);
  for (const [name, target] of targets) {
    const usedBeforeMs = usedMs();
    const until = performance.now() + (1_000 * Number(values.seconds)) / targets.length;
    const count = Math.ceil(Number(values.count) / targets.length);
    const { inputs, slowestMs, failure } = play(target, new Random(seed), count, until);
    const rate = Math.round(inputs / ((usedMs() - usedBeforeMs) / 1_000));
    process.stdout.write(
      `fuzz: ${name}: ${inputs} inputs, ${rate} inputs/s of processor time, slowest ${slowestMs.toFixed(1)} ms\n`,
    );
    if (failure === undefined) continue;
    process.stdout.write(`fuzz: ${name}: ${failure}\n`);
    process.exitCode = 1;
  }
}

function play(target: Target, random: Random, inputs: number, untilMs: number): Told {
  let slowestMs = 0;
  const told = (done: number, failure?: string): Told => ({ inputs: done, slowestMs, failure });
  for (let done = 0; done < inputs; done++) {
    if (performance.now() > untilMs) return told(done);
    const bytes = target.make(random);
    const started = usedMs();
    try {
      target.check(bytes, random);
    } catch (error) {
      return told(done, `${String(error)}\n${Buffer.from(bytes).toString('hex')}`);
    }
    slowestMs = Math.max(slowestMs, usedMs() - started);
    if (slowestMs > SLOW_MS) return told(done, `slow: ${Buffer.from(bytes).toString('hex')}`);
  }
  return told(inputs);
}

/**
 * Returns the processor time of this process in milliseconds. Elapsed time would also contain the work of
 * other processes.
 */
function usedMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}
