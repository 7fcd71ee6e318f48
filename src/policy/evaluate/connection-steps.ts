import { itemAt } from '#arrays/read.js';
import type { RequestFacts } from '#contracts/http-facts.js';
import type { Inspection } from '#contracts/inspection-image.js';
import { CLOSED_INDEX } from '#contracts/member-tables.js';
import { type Members, NO_MEMBERS, type SelectorResolution } from '#contracts/membership.js';
import {
  type Action,
  type Grants,
  type HostnamePattern,
  type Mode,
  noGrants,
  type Packet,
  type Rule,
  type Verdict,
} from '#contracts/policy-model.js';
import type { Program } from '#contracts/program.js';
import type { Decider } from '#contracts/rule-names.js';
import type { TlsFacts } from '#contracts/tls-facts.js';
import { isAudited, rankOf, verdictOf } from '#contracts/verdict-word.js';
import { GroupSetIndex } from '#policy/model/member-index.js';
import { outcome } from '#policy/model/rank.js';
import { deciderAt } from '#policy/model/rule-names.js';
import { isInScope } from '#policy/model/rule-scope.js';
import { SourceIndex } from '#policy/model/source-index.js';
import { classify } from './classify.js';
import { decidingMatcher, matchRequest } from './http-block.js';
import { mismatch } from './mismatch.js';
import { matchTlsBlock } from './tls-block.js';

/**
 * A rule or default that matches the addresses and ports of a connection. The steps of a connection are
 * evaluated in order (D3).
 */
export type Step = {
  readonly decider: Decider;
  readonly action: Action;
  readonly mode: Mode;
  /** The TLS matchers of the rule, which need data from the connection. Null: the step always decides. */
  readonly tls: Rule['tls'] | null;
};

/**
 * Why a step decided the connection. `matched`: the matchers of the step matched. `unknown`: the matchers are
 * undecidable. `hidden`: the server certificate is hidden. The other reasons name the form of the path of a
 * denied request that decided: an allow rule did not match it, or a deny rule matched it (D24).
 */
type Reason = 'matched' | 'unknown' | 'hidden' | 'path_normalised' | 'path_decoded' | 'path_unreadable';

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
  /** Null if the policy has no resolved selector, or decides without a program. */
  readonly #sets: GroupSetIndex | null;

  /**
   * `members` is null if the owners of addresses are not known. Then each source gets every deny rule of a
   * group with selectors, and no allow rule by a selector.
   */
  constructor(
    private readonly inspection: Inspection,
    private readonly members: Members | null = null,
  ) {
    const { policy, program, scope: resolution } = inspection;
    this.#sources = new SourceIndex(policy?.groups ?? [], members === null ? closedEverywhere(resolution) : resolution);
    this.#sets = program === null || program.members === null ? null : new GroupSetIndex(program.members);
  }

  /**
   * Returns the rules and defaults that may decide a connection, in the order of evaluation. The last step
   * has no TLS matchers, so it always decides. `grants` is null if the grants are unknown. Then the hostname
   * of a deny rule matches, and the hostname of an allow rule does not (D19a).
   */
  stepsOf(packet: Packet, grants: Grants | null): readonly Step[] {
    const { policy, program } = this.inspection;
    if (program !== null) return [stepOfProgram(program, packet, this.#setOf(packet.source))];
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

  #setOf(source: number): number | undefined {
    if (this.members === null) return CLOSED_INDEX;
    const set = this.members.setOf(source);
    return set === undefined ? undefined : this.#sets?.indexOf(set);
  }
}

function closedEverywhere(resolution: SelectorResolution): SelectorResolution {
  return { ...resolution, closed: [{ address: 0, length: 0 }] };
}

/** Decides a connection by the properties of its TLS handshake that are known so far (D22, D22a). */
export function decideConnection(steps: readonly Step[], facts: TlsFacts): ConnectionDecision {
  for (const [index, step] of steps.entries()) {
    if (step.tls == null) return decided(step);
    if (step.tls.mode === 'intercept') {
      if (facts.hello.kind === 'hello') return { kind: 'intercept', from: index };
      const decision = unknown(step, facts);
      if (decision !== null) return decision;
      continue;
    }
    const decision = decideByMetadata(step, facts);
    if (decision !== null) return decision;
  }
  throw new Error('a walk ends with what decides');
}

/**
 * Decides an HTTP request of an intercepted connection (D24). The evaluation starts at the step with index
 * `from`. The server certificate must be known; a step that needs an unknown certificate is skipped.
 */
export function decideRequest(steps: readonly Step[], from: number, facts: TlsFacts, request: RequestFacts): Decided {
  for (let index = from; index < steps.length; index++) {
    const step = itemAt(steps, index);
    if (step.tls == null) return withPath(decided(step), steps.slice(from, index), request);
    if (step.tls.mode === 'intercept') {
      if (matchRequest(step.tls.http?.request, request, step.action) === 'yes')
        return withPath(decided(step), steps.slice(from, index + 1), request);
      continue;
    }
    const decision = decideByMetadata(step, facts);
    if (decision?.kind === 'decided') return decision;
  }
  throw new Error('a walk ends with what decides');
}

/** Adds the form of the path to the reason of a denial, if a form other than the path as sent decided. */
function withPath(decision: Decided, reached: readonly Step[], request: RequestFacts): Decided {
  if (decision.verdict === 'allow') return decision;
  for (const step of reached) {
    const isDecider = step === decision.step;
    if (step.tls?.mode !== 'intercept' || (step.action === 'deny' && !isDecider)) continue;
    const view = decidingMatcher(step.tls.http?.request, request, step.action)?.view;
    if (view != null && view !== 'raw') return { ...decision, reason: `path_${view}` };
  }
  return decision;
}

function decideByMetadata(step: Step, facts: TlsFacts): Decided | { readonly kind: 'needs_certificate' } | null {
  if (step.tls == null) return decided(step);
  switch (matchTlsBlock(step.tls, facts)) {
    case 'yes':
      return decided(step);
    case 'no':
      return null;
    case 'unknown':
      return unknown(step, facts);
    case 'hidden': {
      const action = step.tls.tls13_uninspectable === 'allow' ? 'allow' : 'deny';
      return { kind: 'decided', step, verdict: outcome(action, step.mode).verdict, reason: 'hidden' };
    }
    case 'needs_certificate':
      return { kind: 'needs_certificate' };
  }
}

/**
 * Decides by a rule whose matchers are undecidable. A deny rule matches, and an allow rule does not match
 * (D19a). If the ClientHello is unreadable, an allow rule under audit passes the connection, whatever later
 * rules decide (D4). Null: the evaluation continues with the next step.
 */
function unknown(step: Step, { hello }: TlsFacts): Decided | null {
  if (step.action === 'deny') return { ...decided(step), reason: 'unknown' };
  if (step.mode === 'audit' && hello.kind === 'unreadable')
    return { kind: 'decided', step, verdict: 'audit', reason: 'unknown' };
  return null;
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
 * Returns the grants of one address. `patterns` contains the texts of the hostname patterns for which the
 * address has a grant.
 */
export function grantsOf(address: number, patterns: ReadonlySet<string>): Grants {
  return { has: (pattern: HostnamePattern, asked: number) => asked === address && patterns.has(pattern.text) };
}
