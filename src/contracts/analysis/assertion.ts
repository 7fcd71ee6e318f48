import type { DecidedRegion, FlowQuestion } from './flow-question.js';

/**
 * A statement about flows. `never`: no such flow passes. `always`: every such flow passes. `only`: such
 * flows pass from no other sources than those in `from`.
 */
export type Assertion = {
  readonly id: string;
  /** `enforced`: an audited deny counts as a deny. Default: it passes its flows. */
  readonly judge?: 'effective' | 'enforced' | undefined;
} & (
  | { readonly never: FlowQuestion }
  | { readonly always: FlowQuestion }
  | { readonly only: FlowQuestion & { readonly from: NonNullable<FlowQuestion['from']> } }
);

/**
 * Whether a policy fulfils an assertion. `unknown`: the limit of steps was reached, and no contradiction was
 * found until then.
 */
export type AssertionResult = {
  readonly id: string;
  readonly result: 'fulfilled' | 'failed' | 'unknown';
  /** One sentence. */
  readonly message: string;
  /** The flows that contradict the assertion, the largest region first. */
  readonly regions: readonly DecidedRegion[];
  readonly regions_omitted: number;
};
