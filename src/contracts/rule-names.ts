import type { PolicyRecord } from './policy-record.js';
import type { Texts } from './texts.js';

/**
 * The rule or default at each rank of a program: the identity under which its hits are counted, and its
 * names.
 */
export type RuleNames = {
  /** The record of the policy; null if none is active. */
  readonly policy: Pick<PolicyRecord, 'id' | 'revision'> | null;
  /** Low and high word for each rank. The low word is 0 if and only if the rank is unused. */
  readonly identities: Uint32Array;
  /** Rank → group, in the order of evaluation; `NONE` for the default of the policy. */
  readonly groups: Uint32Array;
  readonly groupIds: Texts;
  /** By rank; empty for defaults. */
  readonly ruleIds: Texts;
};

export type Decider =
  | { readonly kind: 'rule'; readonly group: string; readonly rule: string }
  | { readonly kind: 'group_default'; readonly group: string }
  | { readonly kind: 'policy_default' };
