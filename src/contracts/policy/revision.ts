/**
 * The operation that wrote a revision of a policy.
 * - `write`: a write of the whole policy; `group_write`: a write or removal of one source group.
 * - `file`: the policy file (`policy.file`).
 * - `rollback`: an operator wrote the document of an earlier revision again.
 * - `revert`: a pending change ended, and the policy before it came in force again.
 * - `rollout`: any write that was rolled out in stages.
 */
export const VIAS = ['write', 'group_write', 'file', 'rollback', 'revert', 'rollout'] as const;
export type Via = (typeof VIAS)[number];

export type ItemCounts = { readonly added: number; readonly changed: number; readonly removed: number };

/**
 * The difference between the document of a revision and that of the revision before. Groups and rules are
 * compared by their ids, as JSON values: white space and the order of members do not count. `other`: whether
 * something else differs: the form, the mode, `default_policy`, or the order of groups or rules.
 */
export type ChangeSize = { readonly groups: ItemCounts; readonly rules: ItemCounts; readonly other: boolean };

/** An activation or a removal of a policy, which makes no new revision. `at`: ISO 8601, UTC. */
export type PolicyEvent = {
  readonly by: string;
  readonly at: string;
  readonly comment?: string;
  /** The ids of assertions that the write broke, and that its author named in `?override`. */
  readonly overrides?: readonly string[];
  /** The generation of the event; absent if the event did not change the policy in force. */
  readonly generation?: number;
};

/** How a revision was written. A member is absent if it is unknown, or if it does not apply. */
export type RevisionOrigin = {
  readonly via?: Via;
  readonly comment?: string;
  /** The id of the source group that the write changed, if it changed one group only. */
  readonly source_group?: string;
  /** The earlier revision whose document a rollback or a revert wrote again. */
  readonly of_revision?: number;
  readonly size?: ChangeSize;
  /** The ids of assertions that the write broke, and that its author named in `?override`. */
  readonly overrides?: readonly string[];
};

/** The facts that the history keeps about a revision, beside the policy record. */
export type RevisionFacts = RevisionOrigin & {
  /** The generation of the write; absent if the write did not activate the policy. */
  readonly generation?: number;
  /** The number of bytes that the write has added to the store. */
  readonly bytes?: number;
  /** The last activation of this revision without a write. */
  readonly activated?: PolicyEvent;
  /** The removal of the policy, if this was its last revision. */
  readonly removed?: PolicyEvent;
};
