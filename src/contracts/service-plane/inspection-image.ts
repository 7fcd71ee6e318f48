import type { SelectorResolution } from '#contracts/kubernetes/membership.js';
import type { Policy } from '#contracts/policy/policy-model.js';
import type { Program } from '#contracts/policy/program.js';

/**
 * The policy if at least one rule has TLS matchers or a hostname. Otherwise only the compiled program, which
 * decides by addresses and ports.
 */
type PolicyOrProgram<P> =
  | { readonly program: Program; readonly policy: null }
  | { readonly program: null; readonly policy: P };

/**
 * The policy or the program (compiled policy) with which the service plane (TLS and HTTP inspection) decides
 * redirected connections, and its generation.
 */
export type Inspection = PolicyOrProgram<Policy> & Compiled;

type Compiled = {
  readonly generation: number;
  /** Which Kubernetes selectors were resolved when the policy was compiled, and their networks. */
  readonly scope: SelectorResolution;
};

/** A policy in the form in which it is sent to a thread of the TLS and HTTP inspection. */
export type InspectionImage = PolicyOrProgram<PolicyImage> &
  Compiled & {
    /** Whether at least one rule of the policy intercepts TLS. */
    readonly intercepts: boolean;
  };

/** A serialised policy in memory that several threads share. */
export type PolicyImage = {
  /** The policy without the rules of its groups, serialised by `v8.serialize`. */
  readonly heads: Uint8Array;
  /** Memory chunks that contain the JSON texts of the source groups. */
  readonly chunks: readonly Uint8Array[];
};
