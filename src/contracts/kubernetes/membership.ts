import type { Prefix } from '#contracts/policy/policy-model.js';

/**
 * This file defines membership (D38a): which Kubernetes selectors select an address now. Membership changes
 * with each pod, and a policy names selectors. So a policy keeps its compiled form while members change.
 */

/**
 * A set of selectors that select one address. The number belongs to the set until the process ends. The
 * numbers begin with 1, and the set without selectors has a number too: its addresses have an owner.
 */
export type SelectorSet = { readonly number: number; readonly keys: readonly string[] };

/**
 * The set of an owner for which no selector can be decided, for example because its labels exceed a bound.
 * Its address is closed in each network: it gets no allow rule of a group with selectors, and every deny rule
 * of such groups (D19a). No change adds or drops this set.
 */
export const CLOSED_MEMBER: SelectorSet = { number: 0xffff_ffff, keys: [] };

/**
 * A change of members. `addresses` and `sets` have one element for each address: the number of its new set,
 * or 0 if no object owns the address any more. A number that no change has added means `CLOSED_MEMBER`.
 * `added` are the sets that no earlier change has named. `dropped` are the numbers of sets that no address
 * has after the change. A dropped number never occurs again.
 * Changes have an order: a change that takes a selector from an address comes before a change that only adds.
 * A resolution with more resolved selectors comes after the changes with the members of these selectors.
 */
export type MembershipChange = {
  readonly added: readonly SelectorSet[];
  readonly addresses: Uint32Array;
  readonly sets: Uint32Array;
  readonly dropped: readonly number[];
};

/**
 * All members at one time, as the change from no members. `added` has all sets that `sets` or a later change
 * may name.
 */
export type MemberList = MembershipChange;

/**
 * The selector resolution: which selectors are resolved, and which networks they select or close. A compiled
 * policy depends on it, besides the members. It changes seldom. Data that cross threads have it as `scope`.
 * - `resolved`: the keys of the selectors whose objects are known. While a selector is not resolved, the deny
 *   rules of its group match every source, and its allow rules match only static sources (D19a).
 * - `closed`: the networks of pods. An address in them that no object owns gets no allow rule of a group with
 *   selectors, and every deny rule of such groups.
 * - `networks`: the networks that a resolved selector selects besides its members: `podCIDRs` of nodes. Its
 *   groups have them like `sources.cidrs`, whether or not an object owns an address in them.
 */
export type SelectorResolution = {
  readonly resolved: ReadonlySet<string>;
  readonly closed: readonly Prefix[];
  readonly networks: ReadonlyMap<string, readonly Prefix[]>;
};

/** The set of selectors that select an address; undefined if no object owns the address. */
export type Members = { setOf(address: number): SelectorSet | undefined };

/** Decides which groups with selectors apply to a source. */
export type Membership = { readonly resolution: SelectorResolution; readonly members: Members };

/**
 * The input of the compiler and of the proof: the selector resolution, and all members at one time. `former`:
 * addresses and sets of members whose sets no address has now. The program has rules for them too, so that a
 * deployment that is scaled from zero needs no compilation. `list.added` has their sets.
 * `shared`: some of the addresses that different objects own in two or more integrations, for warnings.
 */
export type ListedMembership = {
  readonly scope: SelectorResolution;
  readonly list: MemberList;
  readonly former?: Pick<MembershipChange, 'addresses' | 'sets'>;
  readonly shared?: readonly SharedAddress[];
};

/** An address that different objects own in these integrations. It has the set `CLOSED_MEMBER`. */
export type SharedAddress = { readonly address: number; readonly integrations: readonly string[] };

/** A node without integrations: no selector is resolved. */
export const NO_SELECTORS: SelectorResolution = { resolved: new Set(), closed: [], networks: new Map() };
export const NO_MEMBERS: Members = { setOf: () => undefined };
export const NO_MEMBERSHIP: Membership = { resolution: NO_SELECTORS, members: NO_MEMBERS };
export const NOTHING_LISTED: ListedMembership = {
  scope: NO_SELECTORS,
  list: { added: [], addresses: new Uint32Array(0), sets: new Uint32Array(0), dropped: [] },
};
