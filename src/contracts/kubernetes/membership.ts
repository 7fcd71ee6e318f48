import type { Address, Prefix } from '#contracts/policy/policy-model.js';

/**
 * This file defines membership (D38a): which Kubernetes selectors select an address now. Membership changes
 * with each pod. A policy contains only selectors, so it need not be compiled again when members change.
 */

/**
 * The set of all selectors that select one address. The set keeps its number until the process ends. Numbers
 * begin with 1. The empty set also has a number, for addresses that have an owner (Kubernetes object) and no
 * selector.
 */
export type SelectorSet = { readonly number: number; readonly keys: readonly string[] };

/**
 * The set of an owner (Kubernetes object) for which selectors cannot be evaluated, for example because its
 * labels exceed a limit. Its address is deny-only: groups with selectors apply all their deny rules and none
 * of their allow rules to it (D19a). No change adds or drops this set.
 */
export const DENY_ONLY_MEMBER: SelectorSet = { number: 0xffff_ffff, keys: [] };

/**
 * A change of members of both IP families. `addresses` and `sets` have one element for each address: the
 * number of its new set, or 0 if no object owns the address any more. A number that no change has added means
 * `DENY_ONLY_MEMBER`.
 * `added`: the sets that occur for the first time. `dropped`: the numbers of sets that no address has after
 * the change. A dropped number never occurs again. Apply changes in order: first a change that removes a
 * selector from an address, then a change that only adds. Apply a resolution with more resolved selectors
 * after the changes with the members of these selectors.
 */
export type MembershipChange = {
  readonly added: readonly SelectorSet[];
  readonly addresses: readonly Address[];
  readonly sets: Uint32Array;
  readonly dropped: readonly number[];
};

/**
 * All members at one time, in the form of a change that adds them. `added` also contains the sets of
 * selectors that no address has now, if a later change may use their numbers.
 */
export type MemberList = MembershipChange;

/**
 * The selector resolution: which Kubernetes selectors are resolved, and which networks they select. A
 * compiled policy depends on it as well as on the members. It changes rarely. In messages between threads,
 * its name is `scope`.
 * - `resolved`: the keys of the selectors whose objects are known. While a selector is not resolved, the deny
 *   rules of its group match every source, and its allow rules match only static sources (D19a).
 * - `podNetworks`: the networks of pods. An address in them without an owner is deny-only: groups with
 *   selectors apply all their deny rules and none of their allow rules to it.
 * - `networks`: the networks that a resolved selector selects in addition to its members (`podCIDRs` of
 *   nodes). For the groups of the selector, they have the effect of `sources.cidrs`, whether or not an object
 *   owns an address in them.
 */
export type SelectorResolution = {
  readonly resolved: ReadonlySet<string>;
  readonly podNetworks: readonly Prefix[];
  readonly networks: ReadonlyMap<string, readonly Prefix[]>;
};

/** Returns the set of selectors that select an address; undefined if no object owns the address. */
export type Members = { setOf(address: Address): SelectorSet | undefined };

/** The data that decide which groups with Kubernetes selectors apply to a source. */
export type Membership = { readonly resolution: SelectorResolution; readonly members: Members };

/**
 * The input of the compiler and of the proof (test of a compiled policy in the kernel): the selector
 * resolution (which selectors are resolved), and all members at one time. `former`: sets of selectors that no
 * address has now, each with the last address that had it. The program also has rules for them, so that a
 * deployment that is scaled up from zero needs no compilation. `list.added` contains these sets. `shared`:
 * some of the addresses that different objects own in two or more integrations, for warnings.
 */
export type ListedMembership = {
  readonly scope: SelectorResolution;
  readonly list: MemberList;
  readonly former?: Pick<MembershipChange, 'addresses' | 'sets'>;
  readonly shared?: readonly SharedAddress[];
};

/** An address that different objects own in these integrations. It has the set `DENY_ONLY_MEMBER`. */
export type SharedAddress = { readonly address: Address; readonly integrations: readonly string[] };

/**
 * The selector resolution (which selectors are resolved) of a node without Kubernetes integrations: no
 * selector is resolved.
 */
export const NO_SELECTORS: SelectorResolution = { resolved: new Set(), podNetworks: [], networks: new Map() };
export const NO_MEMBERS: Members = { setOf: () => undefined };
export const NO_MEMBERSHIP: Membership = { resolution: NO_SELECTORS, members: NO_MEMBERS };
export const NOTHING_LISTED: ListedMembership = {
  scope: NO_SELECTORS,
  list: { added: [], addresses: [], sets: new Uint32Array(0), dropped: [] },
};
