import type { DecidedRegion, FlowQuestion } from './flow-question.js';

/**
 * The former policy of `opens_nothing_since`: a revision of a policy, or a policy file, which only
 * `weir policy test` reads. `policy`: the id or the name of the policy. Default: the policy in force.
 */
export type FormerPolicy =
  | { readonly revision: number; readonly policy?: string | undefined }
  | { readonly file: string };

/**
 * A statement about flows. `never`: no such flow passes. `always`: every such flow passes. `only`: such
 * flows pass from no other sources than those in `from`. `opens_nothing_since`: no flow passes that a former
 * policy denied.
 */
export type Assertion = {
  readonly id: string;
  /** `enforced`: an audited deny counts as a deny. Default: it passes its flows. */
  readonly judge?: 'effective' | 'enforced' | undefined;
  /** Whether a write that breaks the assertion is refused, or only has a warning. Default: `refuse`. */
  readonly on_failure?: 'refuse' | 'warn' | undefined;
} & (
  | { readonly never: FlowQuestion }
  | { readonly always: FlowQuestion }
  | { readonly only: FlowQuestion & { readonly from: NonNullable<FlowQuestion['from']> } }
  | { readonly opens_nothing_since: FormerPolicy }
);

/**
 * Whether an assertion holds for a policy. `unknown`: the check could not be completed, and no contradiction
 * was found until then.
 */
export type AssertionResult = {
  readonly id: string;
  readonly result: 'holds' | 'broken' | 'unknown';
  /** One sentence. */
  readonly message: string;
  /** The flows that contradict the assertion, the largest region (set of flows) first. */
  readonly regions: readonly DecidedRegion[];
  readonly regions_omitted: number;
};

/** An assertion that does not hold for the policy in force after a write. */
export type CheckedAssertion = AssertionResult & {
  /** The result for the policy in force before the write; null if there was no time for this check. */
  readonly before: AssertionResult['result'] | null;
};

/**
 * The effect of a failed assertion on a write. `overridden`: the write allows it by `?override`. `warns`: the
 * assertion already failed before the write, or has `on_failure: warn`.
 */
export type AssertionFailure = CheckedAssertion & { readonly effect: 'refuses' | 'overridden' | 'warns' };
