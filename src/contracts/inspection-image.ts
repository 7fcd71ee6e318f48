import type { Policy } from './policy-model.js';
import type { Program } from './program.js';

/** Either the policy, or the program that it gave where no rule is about TLS or names: that says it all then. */
type Judging<P> = { readonly program: Program; readonly policy: null } | { readonly program: null; readonly policy: P };

/** What connections that were redirected are judged by: of the program of a generation. */
export type Inspection = Judging<Policy> & { readonly generation: number };

/** An `Inspection` on its way to a thread. */
export type InspectionImage = Judging<PolicyImage> & {
  readonly generation: number;
  /** Whether a rule intercepts. */
  readonly intercepts: boolean;
};

/** A policy in memory that threads share. */
export type PolicyImage = {
  /** All but the rules, as `v8.serialize` writes it. */
  readonly heads: Uint8Array;
  /** Where the JSON texts of the groups lie. */
  readonly chunks: readonly Uint8Array[];
};
