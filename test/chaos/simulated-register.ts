import type { Random } from '#test/seed.js';
import type { Operation } from './history-checker.js';

export const INITIAL = 'v0';

type Options = {
  readonly processes: number;
  readonly operations: number;
  /** The share of writes among the operations, from 0 to 1. */
  readonly writes: number;
};

/**
 * Returns the history of a register that is correct, in the order of returns. Each operation takes effect at
 * a random moment between its call and its return. Half of the writes are compare-and-swaps from the value
 * that their process saw last. Some operations are refused. Some have an unknown outcome: these take effect
 * within the usual time, much later, or never.
 */
export function simulatedHistory(random: Random, { processes, operations, writes }: Options): Operation[] {
  const history: Operation[] = [];
  const steps: { readonly at: number; readonly run: () => void }[] = [];
  let state = INITIAL;
  let values = 0;

  const addOperation = (process: string, seen: { value: string }, call: number, end: number): void => {
    const kind = random.chance(writes) ? 'write' : 'read';
    const isConditional = kind === 'write' && random.chance(0.5);
    const fate = random.pick(random.chance(0.05) ? (['refused', 'late', 'never'] as const) : (['done'] as const));
    let { value } = seen;
    let expected: string | null = null;
    let isDone = fate === 'done';
    steps.push({
      at: call,
      run: () => {
        if (kind === 'write') value = `v${++values}`;
        if (isConditional) expected = seen.value;
      },
    });
    steps.push({
      at: fate === 'late' ? call + random.between(0, 20) * (end - call) : momentIn(random, call, end),
      run: () => {
        if (fate === 'refused' || fate === 'never') return;
        if (kind === 'read') value = state;
        else if (expected === null || expected === state) state = value;
        else isDone = false;
      },
    });
    steps.push({
      at: end,
      run: () => {
        const isUnknown = fate === 'late' || fate === 'never';
        const outcome = isUnknown ? 'unknown' : isDone ? 'ok' : 'failed';
        if (outcome === 'ok') seen.value = value;
        else seen.value = state;
        history.push({
          process,
          kind,
          call,
          return: isUnknown ? Number.POSITIVE_INFINITY : end,
          value,
          expected,
          outcome,
        });
      },
    });
  };

  for (let number = 1; number <= processes; number++) {
    const seen = { value: INITIAL };
    let at = 0;
    for (let count = 0; count < operations / processes; count++) {
      const call = at + random.below(1_000) / 1_000;
      at = call + random.below(5_000) / 1_000;
      addOperation(`p${number}`, seen, call, at);
    }
  }
  for (const { run } of steps.toSorted((left, right) => left.at - right.at)) run();
  return history;
}

function momentIn(random: Random, from: number, to: number): number {
  return from + (random.below(1_000) / 1_000) * (to - from);
}
