import type { Needs } from '#bus/bus-messages.js';
import type { InspectionImage, PolicyImage } from '#contracts/inspection-image.js';
import type { EnvelopeMode, Form } from '#contracts/policy-document.js';
import type { Action } from '#contracts/policy-model.js';
import type { Problem, Warning } from '#contracts/policy-problem.js';
import type { TextEdit } from '#contracts/policy-record.js';
import type { Program } from '#contracts/program.js';
import type { ProofSample } from '#contracts/proof-types.js';
import type { ExplainQuery, Explanation } from '#policy/explain/explain.js';

/** Facts of the node that validation and warnings depend on. */
export type PolicySurroundings = {
  /** The node's `policy.fallback`. */
  readonly fallback: Action;
  /** Whether these parts run (D16). */
  readonly dns: boolean;
  readonly servicePlane: boolean;
  /** Whether packets to and from the node itself are classified. */
  readonly policesNode: boolean;
};

/** A policy as JSON text: an envelope, or a PolicyConfig with the mode of its record. */
export type PolicyText = {
  readonly body: Uint8Array;
  readonly form: Form;
  readonly recordMode: EnvelopeMode;
};

/**
 * Task: read, validate and lint a policy. It also compiles, unless the mode is `disabled` or no program is
 * requested.
 */
export type PreparePolicy = {
  readonly kind: 'prepare';
  readonly text: PolicyText;
  readonly surroundings: PolicySurroundings;
  /** Names of the existing integrations; null if the record was checked when it was written. */
  readonly integrations: readonly string[] | null;
  readonly compile: boolean;
  /** Key of the policy for later tasks: the ETag that it has once it is stored. */
  readonly key: string;
};

/** Task: write one group of a policy that the thread holds, or whose text is included. */
export type PrepareGroup = Omit<PreparePolicy, 'kind' | 'text' | 'integrations'> & {
  readonly kind: 'prepare_group';
  /** The policy as stored: its ETag, and its text if the thread did not hold it. */
  readonly base: { readonly key: string; readonly text: PolicyText | null };
  readonly group: string;
  /** The JSON text of the group; null removes it. */
  readonly body: Uint8Array | null;
  readonly integrations: readonly string[];
};

/** Task: find one group in the text of a policy. */
export type LocateGroup = {
  readonly kind: 'locate_group';
  readonly base: PrepareGroup['base'];
  readonly group: string;
  readonly surroundings: PolicySurroundings;
};
type LocatedGroup = {
  readonly kind: 'located';
  /** Byte offsets in the text of the PolicyConfig, the end excluded; null if there is no such group. */
  readonly span: { readonly from: number; readonly to: number } | null;
};

export type Inspected = Pick<InspectionImage, 'intercepts'> & { readonly policy: PolicyImage };

/** The program that a write puts in force, and its warnings. */
export type Prepared = {
  readonly mode: EnvelopeMode;
  readonly warnings: readonly Warning[];
  readonly needs: Needs;
  readonly integrations: readonly string[];
  readonly program: Program | null;
  /** The policy for the service plane; null if the service plane needs none. */
  readonly inspected: Inspected | null;
  /** The sample for the proof, made while the program is staged; null if there is none. */
  readonly sample: Promise<ProofSample> | null;
};
type PreparedPolicy = Prepared & {
  readonly kind: 'prepared';
  /** The JSON text of the PolicyConfig, as it was sent. */
  readonly policyJson: Uint8Array;
  readonly name: string | null;
};
type PreparedGroup = Prepared & {
  readonly kind: 'prepared_group';
  readonly created: boolean;
  /** The change of the text of the stored PolicyConfig. */
  readonly edit: TextEdit;
  /** The JSON text of the group; empty if it was removed. */
  readonly groupJson: Uint8Array;
};
type NoSuchGroup = { readonly kind: 'no_such_group' };
export type Unreadable = {
  readonly kind: 'unreadable';
  readonly code: 'invalid_body' | 'invalid_policy';
  readonly problems: readonly Problem[];
};
/** The compiler stopped at a limit; `detail` names the limit. */
export type TooLarge = { readonly kind: 'too_large'; readonly detail: string };

/** Task: explain a packet by a policy that the thread holds, or whose text is included. */
export type ExplainPolicy = {
  readonly kind: 'explain';
  /** Key of a policy that the thread may hold; null for a draft. */
  readonly key: string | null;
  readonly text: PolicyText | null;
  readonly surroundings: PolicySurroundings;
  readonly query: ExplainQuery;
};
type ExplainedPolicy = { readonly kind: 'explained'; readonly explanation: Explanation };
type UnknownPolicy = { readonly kind: 'unknown' };

/** Task: lint a policy and list its program. */
export type DescribePolicy = {
  readonly kind: 'describe';
  readonly text: PolicyText;
  readonly surroundings: PolicySurroundings;
  /** A longer listing is truncated to this size. */
  readonly maxBytes: number;
};
type DescribedPolicy = {
  readonly kind: 'described';
  readonly warnings: readonly Warning[];
  /** UTF-8. */
  readonly listing: Uint8Array;
};

export type PolicyWork = PreparePolicy | PrepareGroup | LocateGroup | ExplainPolicy | DescribePolicy;
type ResultOfKind = {
  readonly prepare: PreparedPolicy | Unreadable | TooLarge;
  readonly prepare_group: PreparedGroup | NoSuchGroup | UnknownPolicy | Unreadable | TooLarge;
  readonly locate_group: LocatedGroup | UnknownPolicy | Unreadable;
  readonly explain: ExplainedPolicy | UnknownPolicy | Unreadable;
  readonly describe: DescribedPolicy | Unreadable | TooLarge;
};
export type PolicyResult<W extends PolicyWork> = ResultOfKind[W['kind']];

/** The sample is made after the answer, so the answer carries an id and `sample` fetches it. */
type WithoutPromise<R> = R extends Prepared ? Omit<R, 'sample'> & { readonly sample: null } : R;
export type PolicyAsks = {
  /** Returns when the thread has started. */
  begin(): void;
  perform(work: PolicyWork): {
    readonly result: WithoutPromise<PolicyResult<PolicyWork>>;
    readonly sampleId: number | null;
  };
  sample(id: number): ProofSample;
};
