import type { Needs } from '#bus/messages.js';
import type { EnvelopeMode, Form } from '#policy/document.js';
import type { ExplainQuery, Explanation } from '#policy/explain.js';
import type { Action } from '#policy/model.js';
import type { Problem, Warning } from '#policy/problem.js';
import type { Program } from '#policy/program.js';
import type { ProofSample } from '#policy/proof.js';

/** What a policy is read against. */
export type PolicySurroundings = {
  /** The node's `policy.fallback`. */
  readonly fallback: Action;
  /** Whether these parts run (D16). */
  readonly dns: boolean;
  readonly servicePlane: boolean;
};

/** A policy as its JSON text: an envelope, or a PolicyConfig with the mode of its record. */
export type PolicyText = {
  readonly body: Uint8Array;
  readonly form: Form;
  readonly recordMode: EnvelopeMode;
};

/** Read, validate, lint; and compile unless its mode turns out to be `disabled`, or nobody asks for the program. */
export type PreparePolicy = {
  readonly kind: 'prepare';
  readonly text: PolicyText;
  readonly surroundings: PolicySurroundings;
  /** Names of the integrations that exist; null where the record was checked when it was written. */
  readonly integrations: readonly string[] | null;
  readonly compile: boolean;
};
export type PreparedPolicy = {
  readonly kind: 'prepared';
  /** The JSON text of the PolicyConfig, as it was sent. */
  readonly policyJson: Uint8Array;
  readonly mode: EnvelopeMode;
  readonly name: string | null;
  readonly warnings: readonly Warning[];
  readonly needs: Needs;
  readonly integrations: readonly string[];
  readonly program: Program | null;
  /** What the program is proved with; null where there is none. */
  readonly sample: ProofSample | null;
};
export type Unreadable = {
  readonly kind: 'unreadable';
  readonly code: 'invalid_body' | 'invalid_policy';
  readonly problems: readonly Problem[];
};
/** The compiler gave up: `detail` names what grew. */
export type TooLarge = { readonly kind: 'too_large'; readonly detail: string };

/** Explain by a policy that was explained by before, or that comes along. */
export type ExplainPolicy = {
  readonly kind: 'explain';
  /** Names a policy that the thread may know; null for a draft. */
  readonly key: string | null;
  readonly text: PolicyText | null;
  readonly surroundings: PolicySurroundings;
  readonly query: ExplainQuery;
};
type ExplainedPolicy = { readonly kind: 'explained'; readonly explanation: Explanation };
type UnknownPolicy = { readonly kind: 'unknown' };

export type PolicyWork = PreparePolicy | ExplainPolicy;
export type PolicyResult<W extends PolicyWork> = W extends PreparePolicy
  ? PreparedPolicy | Unreadable | TooLarge
  : ExplainedPolicy | UnknownPolicy | Unreadable;

export type WorkMessage = { readonly id: number; readonly work: PolicyWork };
export type ResultMessage =
  | { readonly id: number; readonly result: PolicyResult<PolicyWork> }
  | { readonly id: number; readonly failure: string };
