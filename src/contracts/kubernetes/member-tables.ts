import type { IntervalPool, Intervals } from '#contracts/policy/interval-map.js';

/**
 * The tables for sources with an owner (a Kubernetes object). The index of the set of source groups that
 * select an owner represents this owner: `EMPTY_SET` for the empty set, and `EMPTY_SET + n` for set `n` of
 * `sets`. `DENY_ONLY_INDEX` stands for a set that the compiled policy does not contain.
 */
export type MemberTables = MemberTrees &
  SelectorTables & {
    /** Maps a population (sources with the same groups) to the number of its rule list in `Program.lists`. */
    readonly lists: Uint32Array;
    /**
     * The pairs of a base (population without selectors) and a non-empty set of groups for which the compiled
     * policy has a population. The sets for base `b` are the elements `offsets[b]` … `offsets[b + 1] - 1` of
     * `indexes`, in ascending order.
     */
    readonly pairs: { readonly offsets: Uint32Array; readonly indexes: Uint32Array };
  };

/** The tables that map a set of selectors to the index of its set of groups. */
export type SelectorTables = {
  /** The resolved selectors of the policy, each with the indexes of its groups in ascending order. */
  readonly selectors: readonly { readonly key: string; readonly groups: readonly number[] }[];
  /** The sets of groups, each as ascending indexes. The first set is empty. */
  readonly sets: readonly (readonly number[])[];
};

/**
 * The tables that lead in two steps from a source address and the index of its set of groups to a population
 * (sources with the same groups).
 */
export type MemberTrees = {
  /**
   * Maps a source address to the number of its interval map in `trees`. This number stands for the groups
   * without selectors that contain the address.
   */
  readonly bases: Intervals;
  /** The interval map of each base: index of a set of groups → population (sources with the same groups). */
  readonly trees: IntervalPool;
};

/**
 * The index that stands for each set of groups that the compiled policy does not contain. A source with this
 * index is deny-only: of groups with selectors, only the deny rules apply to it (D38a).
 */
export const DENY_ONLY_INDEX = 0;
export const EMPTY_SET = 1;
