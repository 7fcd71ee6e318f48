import type { Decider, RuleNames } from '#contracts/rule-names.js';
import { rankOf } from '#contracts/verdict-word.js';
import type { RuleNameHistory } from '#dataplane/events/rule-name-history.js';
import { deciderAt } from '#policy/model/rule-names.js';
import type { FindingIdentity } from './findings/finding.js';

/**
 * The rule that decided, by the names of the policy. All fields are null if no rule decided, or if the policy
 * is no longer known.
 */
export type NamedDecider = Pick<FindingIdentity, 'policyId' | 'sourceGroup' | 'rule' | 'decidedBy'>;

const NOBODY: NamedDecider = { policyId: null, sourceGroup: null, rule: null, decidedBy: null };

/** Resolves the rule of an event to its names. Results are cached until another policy is activated. */
export class RuleNameResolver {
  readonly #ruleNameHistory: RuleNameHistory;
  #epoch: number | undefined;
  #byHit = new Map<number, { readonly check: number; readonly decider: NamedDecider }>();

  constructor(ruleNameHistory: RuleNameHistory) {
    this.#ruleNameHistory = ruleNameHistory;
  }

  /** Resolves an index into `hits` and its check value. */
  ofHit(hit: number, check: number): NamedDecider {
    const epoch = this.#ruleNameHistory.inForce?.epoch;
    if (epoch !== this.#epoch) {
      this.#byHit = new Map();
      this.#epoch = epoch;
    }
    const known = this.#byHit.get(hit);
    if (known?.check === check) return known.decider;
    const found = hit === 0 ? undefined : this.#ruleNameHistory.finder().find(hit, check);
    const decider = found === undefined ? NOBODY : nameAt(found.ruleNames, found.rank);
    this.#byHit.set(hit, { check, decider });
    return decider;
  }

  /** Resolves a decision word of the program of this generation. */
  ofWord(generation: number, word: number): NamedDecider {
    const ruleNames = this.#ruleNameHistory.ofGeneration(generation);
    return ruleNames === undefined ? NOBODY : nameAt(ruleNames, rankOf(word));
  }

  /** Returns the decider of a policy of this generation with the policy's id. */
  ofNames(generation: number, decider: Decider | null): NamedDecider {
    return decider === null ? NOBODY : named(this.#ruleNameHistory.ofGeneration(generation), decider);
  }

  /** The generation of an epoch. Null for a program that another process activated. */
  generationOf(epoch: number): number | null {
    return this.#ruleNameHistory.generationOf(epoch) ?? null;
  }
}

function nameAt(ruleNames: RuleNames, rank: number): NamedDecider {
  if (rank >= ruleNames.groups.length) return NOBODY;
  return named(ruleNames, deciderAt(ruleNames, rank));
}

function named(ruleNames: RuleNames | undefined, decider: Decider): NamedDecider {
  return {
    policyId: ruleNames?.policy?.id ?? null,
    sourceGroup: decider.kind === 'policy_default' ? null : decider.group,
    rule: decider.kind === 'rule' ? decider.rule : null,
    decidedBy: decider.kind,
  };
}
