/** How a pending change ends. Times are in milliseconds. */
export type ChangeTerms =
  /** The change is reverted unless it is confirmed within this time. */
  | { readonly kind: 'confirm'; readonly within_ms: number }
  /**
   * Only `nodes` enforce the change at first, about `share` percent of the nodes. All nodes enforce it after
   * `hold_ms`. The change is reverted if one of `nodes` is not ready, or denies too much.
   */
  | { readonly kind: 'rollout'; readonly share: number; readonly hold_ms: number; readonly nodes: readonly string[] };

/** The terms of a policy write, its author and its time (ISO 8601, UTC). */
export type PendingWrite = { readonly terms: ChangeTerms; readonly by: string; readonly at: string };

/**
 * A policy write that Weir reverts by itself under the conditions of its terms: the former policy then comes
 * in force again.
 */
export type PendingChange = PendingWrite & {
  /** The id of the commit of the write. */
  readonly id: string;
  /** The generation (number of the activation) of the write. */
  readonly generation: number;
  readonly before: { readonly generation: number };
};

export type RevertedChange = { readonly generation: number; readonly at: string; readonly reason: string };

/** The end of a pending change. `complete`: it was confirmed, or all nodes enforce it. */
export type ChangeEnd = {
  readonly change: string;
  readonly outcome: 'complete' | 'revert';
  /** The reason as one sentence for the operator. */
  readonly reason: string;
  readonly at: string;
  readonly by: string;
  /** The comment of the operator who confirmed or reverted the change. */
  readonly comment?: string;
  /**
   * The condition of the end. `elapsed`: the time of the change has elapsed. `unhealthy`: the leader found a
   * failed node. `asked`: an operator asked for the end.
   */
  readonly because: 'elapsed' | 'unhealthy' | 'asked';
};
