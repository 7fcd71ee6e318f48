import type { Texts } from '#arrays/texts.js';
import type { Family } from './policy-model.js';
import type { PolicyRecord } from './policy-record.js';

/**
 * The names of the rule or default at each rank (position in the order of evaluation) of a compiled policy,
 * and the identity under which its hits are counted.
 */
export type RuleNames = {
  /** Id and revision of the policy record; null if no policy is active. */
  readonly policy: Pick<PolicyRecord, 'id' | 'revision'> | null;
  /**
   * For each rank (position in the policy), the low and then the high 32 bits of the identity under which
   * hits are counted. The low 32 bits are 0 exactly if the compiled policy does not use the rank.
   */
  readonly identities: Uint32Array;
  /**
   * For each rank (position in the policy), the index of its group in the order of evaluation; `NONE` for the
   * default of the policy.
   */
  readonly groups: Uint32Array;
  readonly groupIds: Texts;
  /** For each rank (position in the policy), the id of its rule; an empty text for the rank of a default. */
  readonly ruleIds: Texts;
  /**
   * For each rank (rule or default), the number (`VERDICT_NUMBER`) of the verdict that it gives by its action
   * and mode: allow, deny or audit.
   */
  readonly verdicts: Uint8Array;
  readonly sources: GroupSources;
};

/**
 * The source prefixes of all groups. `hasSelectors`: whether a group has Kubernetes selectors, so that its
 * members are not among the prefixes.
 */
export type GroupSources = Readonly<Record<Family, SourcePrefixes>> & { readonly hasSelectors: boolean };

/**
 * Source prefixes of one family. The prefixes of length `n` have the indexes `offsets[n]` … `offsets[n + 1] -
 * 1`, and are sorted by address and then by group. `addresses`: the words of each prefix (`ADDRESS_WORDS`).
 * `groups`: for each prefix, the index of its group.
 */
export type SourcePrefixes = {
  readonly offsets: Uint32Array;
  readonly addresses: Uint32Array;
  readonly groups: Uint32Array;
};

export type Decider =
  | { readonly kind: 'rule'; readonly group: string; readonly rule: string }
  | { readonly kind: 'group_default'; readonly group: string }
  | { readonly kind: 'policy_default' };
