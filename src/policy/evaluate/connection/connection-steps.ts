import { EVERY_ADDRESS } from '#addresses/ip-address.js';
import { itemAt } from '#arrays/read.js';
import { DENY_ONLY_INDEX } from '#contracts/kubernetes/member-tables.js';
import { type Members, NO_MEMBERS, type SelectorResolution } from '#contracts/kubernetes/membership.js';
import {
  type Action,
  type Address,
  type Grants,
  type HostnamePattern,
  type Mode,
  noGrants,
  type Packet,
  type Rule,
  type Verdict,
} from '#contracts/policy/policy-model.js';
import type { Program } from '#contracts/policy/program.js';
import type { Decider } from '#contracts/policy/rule-names.js';
import { isAudited, rankOf, verdictOf } from '#contracts/policy/verdict-word.js';
import type { RequestFacts } from '#contracts/service-plane/http-facts.js';
import type { Inspection } from '#contracts/service-plane/inspection-image.js';
import type { TlsFacts } from '#contracts/service-plane/tls-facts.js';
import { classify } from '#policy/evaluate/classify.js';
import { mismatch } from '#policy/evaluate/mismatch.js';
import { outcome } from '#policy/model/rules/rank.js';
import { deciderAt } from '#policy/model/rules/rule-names.js';
import { GroupSetIndex } from '#policy/model/sources/member-index.js';
import { isInScope } from '#policy/model/sources/rule-scope.js';
import { SourceIndex } from '#policy/model/sources/source-index.js';
import { decidingMatcher, matchRequest } from './http-block.js';
import { matchTlsBlock, type UndecidableCause } from './tls-block.js';

/** A rule or default that matches the addresses and ports. Steps are evaluated in order (D3). */
export type Step = {
  readonly decider: Decider;
  readonly action: Action;
  readonly mode: Mode;
  /** The TLS matchers of the rule, which need data from the connection. Null: the step always decides. */
  readonly tls: Rule['tls'] | null;
};

/**
 * Why a step decided the connection. `matched`: the matchers of the step matched. `hidden`: the server
 * certificate is hidden. An `UndecidableCause`: the matchers of the step are undecidable, or the step denied
 * and the matchers of an earlier allow rule are undecidable. The other reasons name the form of the path of a
 * denied request that decided: an allow rule did not match it, or a deny rule matched it (D24).
 */
type Reason = 'matched' | 'hidden' | UndecidableCause | 'path_normalised' | 'path_decoded' | 'path_unreadable';

export type Decided = {
  readonly kind: 'decided';
  readonly step: Step;
  readonly verdict: Verdict;
  readonly reason: Reason;
};

export type ConnectionDecision =
  | Decided
  /**
   * The evaluation reached a rule that reads the server certificate. The caller of `decideConnection` must
   * fetch the certificate and call again.
   */
  | { readonly kind: 'needs_certificate' }
  /**
   * The service plane must intercept the connection. It then decides each HTTP request with the steps (rules
   * and defaults) from index `from` on.
   */
  | { readonly kind: 'intercept'; readonly from: number };

const everyGrant: Grants = { has: () => true };

/**
 * Finds the rules and defaults that may decide a connection. Create one `StepFinder` for each `Inspection`,
 * because the constructor builds an index of sources.
 */
export class StepFinder {
  readonly #sources: SourceIndex;
  /**
   * Finds the groups that select the owner of a source (a Kubernetes object). Null if no selector of the
   * policy is resolved, or if the policy decides without its compiled form.
   */
  readonly #sets: GroupSetIndex | null;

  /**
   * `members` is null if the owners of addresses (Kubernetes objects) are not known. Then groups with
   * selectors apply all their deny rules, and no allow rule because of a selector.
   */
  constructor(
    private readonly inspection: Inspection,
    private readonly members: Members | null = null,
  ) {
    const { policy, program, scope: resolution } = inspection;
    this.#sources = new SourceIndex(
      policy?.groups ?? [],
      members === null ? denyOnlyEverywhere(resolution) : resolution,
    );
    this.#sets = program === null || program.members === null ? null : new GroupSetIndex(program.members);
  }

  /**
   * Returns the rules and defaults that may decide a connection, in the order of evaluation. The last step
   * has no TLS matchers, so it always decides. `grants` is null if it is not known which addresses hostname
   * patterns match. Then the hostname of a deny rule matches, and the hostname of an allow rule does not
   * (D19a).
   */
  stepsOf(packet: Packet, grants: Grants | null): readonly Step[] {
    const { policy, program } = this.inspection;
    if (program !== null) {
      return [stepOfProgram(program, packet, this.#setOf(packet.source))];
    }
    const steps: Step[] = [];
    const members = this.members ?? NO_MEMBERS;
    for (const { group: index, scope } of this.#sources.groupsOf(packet.source, { members })) {
      const group = policy.groups[index];
      if (group === undefined) throw new RangeError('no such group');
      for (const rule of group.rules) {
        if (!isInScope(scope, rule.action)) continue;
        const known = grants ?? (rule.action === 'deny' ? everyGrant : noGrants);
        if (mismatch(rule, packet, known) !== undefined) continue;
        const { action, mode, tls } = rule;
        steps.push({ decider: { kind: 'rule', group: group.id, rule: rule.id }, action, mode, tls: tls ?? null });
        if (tls === undefined) return steps;
      }
      if (group.defaultAction === undefined || !isInScope(scope, group.defaultAction)) continue;
      const decider = { kind: 'group_default', group: group.id } as const;
      return [...steps, { decider, action: group.defaultAction, mode: group.mode, tls: null }];
    }
    const { action, mode } = policy.default;
    return [...steps, { decider: { kind: 'policy_default' }, action, mode, tls: null }];
  }

  #setOf(source: Address): number | undefined {
    if (this.members === null) return DENY_ONLY_INDEX;
    const set = this.members.setOf(source);
    return set === undefined ? undefined : this.#sets?.indexOf(set);
  }
}

function denyOnlyEverywhere(resolution: SelectorResolution): SelectorResolution {
  return { ...resolution, podNetworks: [...EVERY_ADDRESS.ipv4, ...EVERY_ADDRESS.ipv6] };
}

/** Decides a connection by the properties of its TLS handshake that are known so far (D22, D22a). */
export function decideConnection(steps: readonly Step[], facts: TlsFacts): ConnectionDecision {
  let undecided: UndecidableCause | null = null;
  for (const [index, step] of steps.entries()) {
    if (step.tls?.mode === 'intercept' && facts.hello.kind === 'hello') return { kind: 'intercept', from: index };
    const decision = decideByMetadata(step, facts);
    if (decision.kind === 'decided') return withCause(decision, undecided);
    if (decision.kind === 'needs_certificate') return decision;
    undecided ??= decision.undecided;
  }
  throw new Error('decide a connection: neither a rule nor a default decided');
}

/**
 * Decides an HTTP request of an intercepted connection (D24). The evaluation starts at the step with index
 * `from`. The caller has requested the server certificate before. If it is still unknown, a step that
 * needs it does not decide.
 */
export function decideRequest(steps: readonly Step[], from: number, facts: TlsFacts, request: RequestFacts): Decided {
  let undecided: UndecidableCause | null = null;
  for (let index = from; index < steps.length; index++) {
    const step = itemAt(steps, index);
    const decision = step.tls?.mode === 'intercept' ? decideByRequest(step, request) : decideByMetadata(step, facts);
    if (decision.kind === 'decided')
      return withCause(withPath(decision, steps.slice(from, index + 1), request), undecided);
    if (decision.kind === 'passed') undecided ??= decision.undecided;
  }
  throw new Error('decide a connection: neither a rule nor a default decided');
}

/** Adds the form of the path to the reason of a denial, if a form other than the path as sent decided. */
function withPath(decision: Decided, reached: readonly Step[], request: RequestFacts): Decided {
  if (decision.verdict === 'allow' || decision.reason !== 'matched') return decision;
  for (const step of reached) {
    const isDecider = step === decision.step;
    if (step.tls?.mode !== 'intercept' || (step.action === 'deny' && !isDecider)) continue;
    const view = decidingMatcher(step.tls.http?.request, request, step.action)?.view;
    if (view != null && view !== 'raw') return { ...decision, reason: `path_${view}` };
  }
  return decision;
}

/**
 * If the matchers of an earlier allow rule were undecidable, adds the cause to the reason of a denial. Uses
 * the first such rule.
 */
function withCause(decision: Decided, undecided: UndecidableCause | null): Decided {
  if (decision.verdict === 'allow' || decision.reason !== 'matched' || undecided === null) return decision;
  return { ...decision, reason: undecided };
}

/**
 * The result of a step that does not decide. `undecided`: why its matchers are undecidable; null if they do
 * not match.
 */
type Passed = { readonly kind: 'passed'; readonly undecided: UndecidableCause | null };

const NO_MATCH: Passed = { kind: 'passed', undecided: null };

function decideByRequest(step: Step, request: RequestFacts): Decided | Passed {
  return matchRequest(step.tls?.http?.request, request, step.action) === 'yes' ? decided(step) : NO_MATCH;
}

function decideByMetadata(step: Step, facts: TlsFacts): Decided | { readonly kind: 'needs_certificate' } | Passed {
  if (step.tls == null) return decided(step);
  const match = matchTlsBlock(step.tls, facts);
  switch (match) {
    case 'yes':
      return decided(step);
    case 'no':
      return NO_MATCH;
    case 'hidden': {
      const action = step.tls.tls13_uninspectable === 'allow' ? 'allow' : 'deny';
      return { kind: 'decided', step, verdict: outcome(action, step.mode).verdict, reason: 'hidden' };
    }
    case 'needs_certificate':
      return { kind: 'needs_certificate' };
    default:
      return decideUndecidable(step, match, facts);
  }
}

/**
 * Decides by a rule whose matchers are undecidable. A deny rule matches, and an allow rule does not match
 * (D19a). If the ClientHello is unreadable, an allow rule in audit mode passes the connection, and later
 * rules are not evaluated (D4).
 */
function decideUndecidable(step: Step, cause: UndecidableCause, { hello }: TlsFacts): Decided | Passed {
  if (step.action === 'deny') return { ...decided(step), reason: cause };
  if (step.mode === 'audit' && hello.kind === 'unreadable')
    return { kind: 'decided', step, verdict: 'audit', reason: cause };
  return { kind: 'passed', undecided: cause };
}

function decided(step: Step): Decided {
  return { kind: 'decided', step, verdict: outcome(step.action, step.mode).verdict, reason: 'matched' };
}

function stepOfProgram(program: Program, packet: Packet, set: number | undefined): Step {
  const word = classify(program, packet, undefined, set);
  const action = verdictOf(word) === 'allow' ? 'allow' : 'deny';
  const decider = deciderAt(program.ruleNames, rankOf(word));
  return { decider, action, mode: isAudited(word) ? 'audit' : 'enforce', tls: null };
}

/**
 * Returns an object that tells which hostname patterns one address matches. `patterns` contains the texts of
 * the hostname patterns for which the address has a grant.
 */
export function grantsOf(address: Address, patterns: ReadonlySet<string>): Grants {
  return { has: (pattern: HostnamePattern, asked: Address) => asked === address && patterns.has(pattern.text) };
}
