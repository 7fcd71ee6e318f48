import type { Needs } from '#bus/bus-messages.js';
import type { AnalysisAnswer, AnalysisQuestion } from '#contracts/analysis/analysis.js';
import type { Assertion, CheckedAssertion } from '#contracts/analysis/assertion.js';
import type { ListedMembership, SelectorResolution } from '#contracts/kubernetes/membership.js';
import type { EnvelopeMode, Form } from '#contracts/policy/policy-document.js';
import type { Action, Selector } from '#contracts/policy/policy-model.js';
import type { Problem, Warning } from '#contracts/policy/policy-problem.js';
import type { TextEdit } from '#contracts/policy/policy-record.js';
import type { Program } from '#contracts/policy/program.js';
import type { ProofSamples } from '#contracts/policy/proof-types.js';
import type { ChangeSize } from '#contracts/policy/revision.js';
import type { InspectionImage, PolicyImage } from '#contracts/service-plane/inspection-image.js';
import type { ExplainQuery, Explanation } from '#policy/explain/explain.js';

/** Properties of the node that affect the validation, the warnings and the compiled form of a policy. */
export type PolicySurroundings = {
  /**
   * The setting `policy.fallback` of the node: the action for packets if the policy has no `default_policy`.
   */
  readonly fallback: Action;
  /** Whether the DNS proxy and the service plane run. Warnings depend on these two facts (D16). */
  readonly dns: boolean;
  readonly servicePlane: boolean;
  /** Whether the datapath also classifies packets to and from the node itself. */
  readonly policesNode: boolean;
  /**
   * Whether the datapath enforces IPv6 policies: `dataplane.ipv6` is `enforce`. Then documents may have IPv6
   * addresses, and programs have the tables of both families.
   */
  readonly ipv6: boolean;
};

/**
 * A policy as JSON text. In the envelope form, `body` is an envelope. In the singleton form (without name and
 * mode), it is a PolicyConfig, and `recordMode` is the mode of its policy record.
 */
export type PolicyText = {
  readonly body: Uint8Array;
  readonly form: Form;
  readonly recordMode: EnvelopeMode;
};

/**
 * A task for the policy thread: parse, validate and lint a policy. The thread also compiles the policy if
 * `compile` is true and the mode is not `disabled`.
 */
export type PreparePolicy = {
  readonly kind: 'prepare';
  readonly text: PolicyText;
  readonly surroundings: PolicySurroundings;
  /**
   * The names of the existing integrations. Null skips the check of integrations: the node made this check
   * when the policy was stored.
   */
  readonly integrations: readonly string[] | null;
  readonly compile: boolean;
  /** The cache key of the policy for later tasks, see `textKey`. */
  readonly key: string;
  /**
   * The cache key of the previous revision, with which the policy is compared; null for the first revision.
   * Omitted if no comparison is needed.
   */
  readonly before?: string | null;
  /**
   * The cache key of the policy in force, which stays in the cache because `check_assertions` follows.
   * Without it, a large policy replaces all other policies in the cache.
   */
  readonly inForce?: string | undefined;
};

/**
 * A task for the policy thread: prepare a write of one group of a policy. The policy is in the cache of the
 * thread, or the task includes the policy text.
 */
export type PrepareGroup = Omit<PreparePolicy, 'kind' | 'text' | 'integrations' | 'before' | 'inForce'> & {
  readonly kind: 'prepare_group';
  /**
   * The stored policy: its cache key, and its text. If the text is null, the thread searches only its
   * cache for the policy.
   */
  readonly base: { readonly key: string; readonly text: PolicyText | null };
  readonly group: string;
  /** The JSON text of the group; null removes the group. */
  readonly body: Uint8Array | null;
  readonly integrations: readonly string[];
};

/**
 * A task for the policy thread: compile a stored policy again, after the addresses that its selectors select
 * have changed. The thread searches only its cache for the policy.
 */
export type PrepareStored = {
  readonly kind: 'prepare_stored';
  /** The cache key of the policy, see `textKey`. */
  readonly key: string;
  readonly surroundings: PolicySurroundings;
};

/**
 * A task for the policy thread: end the last task that returned `needs_members`. `membership`: which
 * selectors are resolved, and the members (addresses) that they select, for the compilation and the proof
 * (test of a compiled policy in the kernel).
 */
export type PrepareWithMembers = {
  readonly kind: 'prepare_with_members';
  readonly id: number;
  readonly membership: ListedMembership;
};

/**
 * A task for the policy thread: compare the policy with the cache key `key` with the previous revision. Its
 * text is in the task, because the cache did not contain it when the policy was prepared.
 */
export type MeasurePolicy = { readonly kind: 'measure'; readonly key: string; readonly before: PolicyText };
/** `size`: null if the cache does not contain the policy any more, or if the text before is not JSON. */
type MeasuredChange = { readonly kind: 'measured'; readonly size: ChangeSize | null };

/** A task for the policy thread: find the position of one group in the text of a policy. */
export type LocateGroup = {
  readonly kind: 'locate_group';
  readonly base: PrepareGroup['base'];
  readonly group: string;
  readonly surroundings: PolicySurroundings;
};
type LocatedGroup = {
  readonly kind: 'located';
  /**
   * The byte offsets of the group in the PolicyConfig text; `to` is excluded. Null if the policy has no such
   * group.
   */
  readonly span: { readonly from: number; readonly to: number } | null;
};

export type Inspected = Pick<InspectionImage, 'intercepts'> & { readonly policy: PolicyImage };

/**
 * The result of a task that prepares a policy write: the program (compiled policy) to activate, the
 * warnings, and which other parts of the node the policy needs.
 */
export type Prepared = {
  readonly mode: EnvelopeMode;
  readonly warnings: readonly Warning[];
  readonly needs: Needs;
  readonly integrations: readonly string[];
  /** The selectors of the policy, and which of them were resolved when it was compiled. */
  readonly selectors: readonly Selector[];
  readonly scope: SelectorResolution;
  readonly program: Program | null;
  /** Whether the compiled policy has rules for unused sets of selectors, see `ListedMembership.former`. */
  readonly hasFormer: boolean;
  /**
   * The policy for the service plane (TLS and HTTP inspection); null if the compiled policy alone can decide
   * connections.
   */
  readonly inspected: Inspected | null;
  /**
   * The packets with which the datapath is checked before the activation (proof). The thread computes them
   * while the main thread stages the program. Null if no program was compiled.
   */
  readonly samples: Promise<ProofSamples> | null;
};
type PreparedPolicy = Prepared & {
  readonly kind: 'prepared';
  /** The JSON text of the PolicyConfig, byte for byte as the client sent it. */
  readonly policyJson: Uint8Array;
  readonly name: string | null;
  /**
   * The size of the change; null if the task contains no previous revision, or if that revision is not in the
   * cache.
   */
  readonly size: ChangeSize | null;
};
type PreparedGroup = Prepared & {
  readonly kind: 'prepared_group';
  readonly created: boolean;
  /** The edit that changes the stored PolicyConfig text to the new text. */
  readonly edit: TextEdit;
  /** The JSON text of the written group; empty if the task removed the group. */
  readonly groupJson: Uint8Array;
  readonly size: ChangeSize;
};
/** The result of a task whose policy has Kubernetes selectors. A task `PrepareWithMembers` must follow. */
type NeedsMembers = { readonly kind: 'needs_members'; readonly id: number; readonly selectors: readonly Selector[] };
type PreparedStored = Omit<Prepared, 'warnings'> & { readonly kind: 'prepared_stored' };
type NoSuchGroup = { readonly kind: 'no_such_group' };
export type Unreadable = {
  readonly kind: 'unreadable';
  readonly code: 'invalid_body' | 'invalid_policy';
  readonly problems: readonly Problem[];
};
/**
 * The result of a task whose policy exceeds a compile limit. `detail` is a sentence that names the limit.
 */
export type TooLarge = { readonly kind: 'too_large'; readonly detail: string };

/**
 * A task for the policy thread: explain the decision of a policy. The policy is in the cache of the thread,
 * or the task includes the policy text.
 */
export type ExplainPolicy = {
  readonly kind: 'explain';
  /** The cache key of the policy; null for a draft (a policy in the request), which is not cached. */
  readonly key: string | null;
  readonly text: PolicyText | null;
  readonly surroundings: PolicySurroundings;
  readonly query: ExplainQuery;
  readonly membership?: ListedMembership;
};
type ExplainedPolicy = { readonly kind: 'explained'; readonly explanation: Explanation };
type UnknownPolicy = { readonly kind: 'unknown' };

/** A task for the policy thread: lint a policy and format its compiled form as text. */
export type DescribePolicy = {
  readonly kind: 'describe';
  readonly text: PolicyText;
  readonly surroundings: PolicySurroundings;
  readonly membership?: ListedMembership;
  /** The maximum size of the listing in bytes. The thread truncates a longer listing. */
  readonly maxBytes: number;
};
type DescribedPolicy = {
  readonly kind: 'described';
  readonly warnings: readonly Warning[];
  /** The listing of the program (compiled policy), as UTF-8 text. */
  readonly listing: Uint8Array;
};

/**
 * A task for the policy thread: analyse policies. Each policy is in the cache of the thread, or the task
 * includes its text. The key is null for a draft, which is not cached.
 */
export type AnalysePolicies = {
  readonly kind: 'analyse';
  readonly policies: readonly { readonly key: string | null; readonly text: PolicyText | null }[];
  readonly surroundings: PolicySurroundings;
  readonly question: AnalysisQuestion;
};
type AnalysedPolicies = { readonly kind: 'analysed'; readonly answer: AnalysisAnswer };
/** An error: this build cannot read a policy of the task. `policy`: its index in the task. */
type UnreadablePolicy = Unreadable & { readonly policy: number };

/**
 * A policy for a task that needs its model: its cache key, and its text. If the text is null, the thread
 * searches only its cache for the policy.
 */
export type KnownPolicy = { readonly key: string; readonly text: PolicyText | null };

/**
 * A task for the policy thread: check assertions for the policy in force after a write. `before` and `after`:
 * the policy in force before and after the write; null if none is active.
 */
export type CheckAssertions = {
  readonly kind: 'check_assertions';
  readonly before: KnownPolicy | null;
  readonly after: KnownPolicy | null;
  readonly surroundings: PolicySurroundings;
  readonly assertions: readonly Assertion[];
  /**
   * The former policies of `opens_nothing_since`, by the id of the assertion. Null: the history does not
   * contain the policy. Undefined: the policy was not read yet.
   */
  readonly former: Readonly<Record<string, KnownPolicy | null>> | undefined;
  /** Assertions that are not checked within this time are unknown. */
  readonly budgetMs: number;
  /** The maximum number of regions (sets of flows) of each assertion in the result. */
  readonly limit: number;
};
/** The result: the assertions that are not true after the write. */
type CheckedAssertions = { readonly kind: 'checked_assertions'; readonly found: readonly CheckedAssertion[] };
/**
 * The thread needs the earlier policies with which these assertions compare. The task must be repeated with
 * them.
 */
type NeedsFormer = { readonly kind: 'needs_former'; readonly assertions: readonly string[] };

export type PolicyWork =
  | PreparePolicy
  | PrepareGroup
  | PrepareStored
  | PrepareWithMembers
  | MeasurePolicy
  | LocateGroup
  | ExplainPolicy
  | AnalysePolicies
  | CheckAssertions
  | DescribePolicy;
type ResultOfKind = {
  readonly prepare: PreparedPolicy | NeedsMembers | Unreadable | TooLarge;
  readonly prepare_group: PreparedGroup | NeedsMembers | NoSuchGroup | UnknownPolicy | Unreadable | TooLarge;
  readonly prepare_stored: PreparedStored | NeedsMembers | UnknownPolicy | TooLarge;
  readonly prepare_with_members: PreparedPolicy | PreparedGroup | PreparedStored | TooLarge;
  readonly measure: MeasuredChange;
  readonly locate_group: LocatedGroup | UnknownPolicy | Unreadable;
  readonly explain: ExplainedPolicy | UnknownPolicy | Unreadable;
  readonly analyse: AnalysedPolicies | UnknownPolicy | UnreadablePolicy;
  readonly check_assertions: CheckedAssertions | NeedsFormer | UnknownPolicy;
  readonly describe: DescribedPolicy | Unreadable | TooLarge;
};
export type PolicyResult<W extends PolicyWork> = ResultOfKind[W['kind']];

/**
 * The result of a task in the form that the thread sends. The thread computes the proof samples after its
 * reply, so the reply contains an id instead. The main thread requests the samples with this id.
 */
type WithoutPromise<R> = R extends Omit<Prepared, 'warnings'> ? Omit<R, 'samples'> & { readonly samples: null } : R;
export type PolicyThreadRequests = {
  /** Answers as soon as the thread runs, to detect that it has started. */
  begin(): void;
  perform(work: PolicyWork): {
    readonly result: WithoutPromise<PolicyResult<PolicyWork>>;
    readonly samplesId: number | null;
  };
  samples(id: number): ProofSamples;
};
