import type { Fault } from './fault-schedule.js';
import { WRITE_STEPS, type WriteStep } from './write-steps.js';

/** How often a fault began at a step, and how the writes of these writers ended. */
export type StepCount = {
  readonly kind: Fault['kind'];
  readonly step: WriteStep;
  readonly planned: number;
  readonly hit: number;
  /** The number of these writes whose commit the injector saw. It sees none while all responses are cut. */
  readonly committed: number;
  /** The number of these writes that the writer put in force, although it was killed or stopped. */
  readonly flipped: number;
};

/**
 * The counts of one step are added. The sums are in the order of kinds, and for each kind in that of the
 * steps.
 */
export function sumOf(counts: readonly StepCount[]): StepCount[] {
  const kinds = [...new Set(counts.map(({ kind }) => kind))].sort();
  return kinds.flatMap((kind) =>
    WRITE_STEPS.flatMap((step) => {
      const same = counts.filter((each) => each.kind === kind && each.step === step);
      if (same.length === 0) return [];
      const total = (of: (count: StepCount) => number): number => same.reduce((sum, each) => sum + of(each), 0);
      return {
        kind,
        step,
        planned: total(({ planned }) => planned),
        hit: total(({ hit }) => hit),
        committed: total(({ committed }) => committed),
        flipped: total(({ flipped }) => flipped),
      };
    }),
  );
}
