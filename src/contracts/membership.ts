import type { KubernetesSource } from './policy-document.js';
import type { Prefix } from './policy-model.js';

/**
 * This file defines membership (D38a): which Kubernetes selectors select an address now. Membership changes
 * with each pod, and a policy names selectors. So a policy keeps its compiled form while members change.
 */

/** A Kubernetes selector of a source group. Selectors with equal `key` select the same addresses. */
export type Selector = { readonly key: string; readonly source: KubernetesSource };

/**
 * A set of selectors that select one address. The number belongs to the set until the process ends. The
 * numbers begin with 1, and the set without selectors has a number too: its addresses have an owner.
 */
export type SelectorSet = { readonly number: number; readonly keys: readonly string[] };

/**
 * A change of members. `addresses` and `sets` have one element for each address: the number of its new set,
 * or 0 if no object owns the address any more. `added` are the sets that no earlier change has named.
 */
export type MembershipChange = {
  readonly added: readonly SelectorSet[];
  readonly addresses: Uint32Array;
  readonly sets: Uint32Array;
};

/**
 * What a compiled policy depends on, besides the members. It changes seldom.
 * - `resolved`: the keys of the selectors whose objects are known. While a selector is not resolved, the deny
 *   rules of its group match every source, and its allow rules match only static sources (D19a).
 * - `closed`: the networks of pods. An address in them that no object owns gets no allow rule of a group with
 *   selectors, and every deny rule of such groups.
 */
export type SelectorScope = { readonly resolved: ReadonlySet<string>; readonly closed: readonly Prefix[] };

/** The set of selectors that select an address; undefined if no object owns the address. */
export type Members = { setOf(address: number): SelectorSet | undefined };

/** A node without integrations: no selector is resolved. */
export const NO_SELECTORS: SelectorScope = { resolved: new Set(), closed: [] };
export const NO_MEMBERS: Members = { setOf: () => undefined };
