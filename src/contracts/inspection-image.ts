import type { Policy } from './policy-model.js';
import type { Program } from './program.js';

/** The policy, or only its program if no rule has TLS matchers or names: then the program alone decides. */
type PolicyOrProgram<P> =
  | { readonly program: Program; readonly policy: null }
  | { readonly program: null; readonly policy: P };

/** The policy or program by which redirected connections are decided, and its generation. */
export type Inspection = PolicyOrProgram<Policy> & { readonly generation: number };

/** An `Inspection` as it is sent to a thread. */
export type InspectionImage = PolicyOrProgram<PolicyImage> & {
  readonly generation: number;
  /** Whether a rule intercepts TLS. */
  readonly intercepts: boolean;
};

/** A policy in memory that threads share. */
export type PolicyImage = {
  /** The policy without its rules, as written by `v8.serialize`. */
  readonly heads: Uint8Array;
  /** The memory that holds the JSON texts of the groups. */
  readonly chunks: readonly Uint8Array[];
};
