import type { Needs } from '#bus/bus-messages.js';
import type { InspectionImage, PolicyImage } from '#contracts/inspection-image.js';
import type { EnvelopeMode, Form } from '#contracts/policy-document.js';
import type { Action } from '#contracts/policy-model.js';
import type { Problem, Warning } from '#contracts/policy-problem.js';
import type { TextEdit } from '#contracts/policy-record.js';
import type { Program } from '#contracts/program.js';
import type { ProofSample } from '#contracts/proof-types.js';
import type { ExplainQuery, Explanation } from '#policy/explain/explain.js';

/** What a policy is read against. */
export type PolicySurroundings = {
  /** The node's `policy.fallback`. */
  readonly fallback: Action;
  /** Whether these parts run (D16). */
  readonly dns: boolean;
  readonly servicePlane: boolean;
  /** Whether packets to and from the node itself are judged. */
  readonly policesNode: boolean;
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
  /** Names the policy for later work on it: the ETag that it has once it is stored. */
  readonly key: string;
};

/** Write one group of a policy that the thread holds, or that comes along. */
export type PrepareGroup = Omit<PreparePolicy, 'kind' | 'text' | 'integrations'> & {
  readonly kind: 'prepare_group';
  /** The policy as it is stored: its ETag, and its text where the thread did not know it. */
  readonly base: { readonly key: string; readonly text: PolicyText | null };
  readonly group: string;
  /** The JSON text of the group; null removes it. */
  readonly body: Uint8Array | null;
  readonly integrations: readonly string[];
};

/** Find one group in the text of a policy. */
export type LocateGroup = {
  readonly kind: 'locate_group';
  readonly base: PrepareGroup['base'];
  readonly group: string;
  readonly surroundings: PolicySurroundings;
};
type LocatedGroup = {
  readonly kind: 'located';
  /** Byte offsets in the text of the PolicyConfig, the end excluded; null where there is no such group. */
  readonly span: { readonly from: number; readonly to: number } | null;
};

export type Inspected = Pick<InspectionImage, 'intercepts'> & { readonly policy: PolicyImage };

/** What a write puts in force, and what there is to say about it. */
export type Prepared = {
  readonly mode: EnvelopeMode;
  readonly warnings: readonly Warning[];
  readonly needs: Needs;
  readonly integrations: readonly string[];
  readonly program: Program | null;
  /** What the service plane is told of the policy; null where it is told nothing. */
  readonly inspected: Inspected | null;
  /** What the program is proved with, made while it is staged; null where there is none. */
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
  /** What becomes of the text of the stored PolicyConfig. */
  readonly edit: TextEdit;
  /** The JSON text of the group; empty where it was removed. */
  readonly groupJson: Uint8Array;
};
type NoSuchGroup = { readonly kind: 'no_such_group' };
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

/** Lint a policy and list the program that is made of it. */
export type DescribePolicy = {
  readonly kind: 'describe';
  readonly text: PolicyText;
  readonly surroundings: PolicySurroundings;
  /** What is more of the listing is cut off. */
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

/** What goes from thread to thread: a sample that is still to come is asked for. */
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
