import type { PolicyRecord } from './policy-record.js';
import type { Texts } from './texts.js';

/** Who stands at each rank of a program: under which identity its hits are counted, and by which names it is shown. */
export type RuleNames = {
  /** The record that the policy is of; null where none is active. */
  readonly policy: Pick<PolicyRecord, 'id' | 'revision'> | null;
  /** Low and high word for each rank; the low one is 0 where nobody stands there, and nowhere else. */
  readonly identities: Uint32Array;
  /** Rank → group, in the order of the walk; `NONE` for the policy's default. */
  readonly groups: Uint32Array;
  readonly groupIds: Texts;
  /** By rank; empty for defaults. */
  readonly ruleIds: Texts;
};

export type Decider =
  | { readonly kind: 'rule'; readonly group: string; readonly rule: string }
  | { readonly kind: 'group_default'; readonly group: string }
  | { readonly kind: 'policy_default' };
