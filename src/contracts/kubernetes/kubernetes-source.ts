import type { Address, Prefix, Selector } from '#contracts/policy/policy-model.js';
import type { OwnerChange, OwnerName } from './address-owner.js';
import type {
  ListedMembership,
  MemberList,
  MembershipChange,
  SelectorResolution,
  SharedAddress,
} from './membership.js';

/**
 * This file defines the interface of the Kubernetes thread. The thread watches the objects of all
 * integrations, and returns the addresses (members) that the selectors of policies select.
 */

/**
 * An integration as the thread uses it. With `in_cluster`, the address, the CA and the token are read from
 * the files that Kubernetes mounts for the service account, again for each connection.
 */
export type WatchedIntegration = {
  readonly name: string;
  readonly access:
    | { readonly by: 'token'; readonly url: string; readonly caPem: string; readonly token: string }
    | { readonly by: 'in_cluster' };
};

export type KubernetesOptions = {
  /** The networks of pods, in place of the `podCIDRs` of nodes. Undefined: those of the nodes. */
  readonly podNetworks: readonly Prefix[] | undefined;
  /** Whether IPv6 addresses become members too. If false, the IPv6 addresses of objects are left out. */
  readonly ipv6?: boolean | undefined;
  /** The name of the node whose pods are watched; null for the pods of all nodes. */
  readonly node: string | null;
  /** The name of this node in Kubernetes, if it is a node of the cluster. */
  readonly nodeName?: string | undefined;
};

/** A record for the store in the format of the thread. `value`: null removes the record. */
export type StoredObject = { readonly key: string; readonly value: string | null };

/**
 * The changed members (addresses that Kubernetes objects own) in one message of the thread. `replaces`: all
 * members, in the first message after each start of the thread; the numbers of sets of selectors begin anew.
 * `changes`: in later messages, at most one change that removes selectors or owners, and then at most one
 * that only adds.
 * - `owners`: the addresses whose owner has changed, with the name of the new owner; null if the address has
 *   no owner.
 * - `shared`: addresses that objects of two integrations own since the last message, at most about a hundred.
 * - `scope`: the selector resolution after the changes; undefined if it is the same as before.
 * - `stored`: the changed records for the store, from which a later process restores the members.
 */
export type MembersMessage = {
  readonly replaces: MemberList | null;
  readonly changes: readonly MembershipChange[];
  readonly owners: readonly OwnerChange[];
  readonly shared: readonly SharedAddress[];
  readonly scope: SelectorResolution | undefined;
  readonly stored: readonly StoredObject[];
};

/**
 * The phase of a reflector (list and watch of one resource) of an integration (a Kubernetes API server); null
 * if the integration no longer has the reflector. `at`: ISO 8601.
 */
export type ReflectorChange = {
  readonly integration: string;
  readonly name: string;
  readonly phase: ReflectorPhase | null;
  readonly reason: string | null;
  readonly at: string;
};

export type ObjectCounts = { readonly pods: number; readonly nodes: number; readonly namespaces: number };

/**
 * The facts about an integration. `addresses` and `networks` map each selector to the number of addresses and
 * networks that it selects.
 */
export type IntegrationFacts = {
  readonly objects: ObjectCounts;
  readonly selectors: readonly {
    readonly key: string;
    readonly resolved: boolean;
    readonly addresses: number;
    readonly networks: number;
  }[];
  readonly warnings: readonly { readonly code: string; readonly message: string }[];
};

/** A network of pods that a selector of `podCIDRs` selects, and the node that has it. */
export type OwnedNetwork = { readonly prefix: Prefix; readonly owner: OwnerName };

export type MemberPage = {
  /**
   * The networks that the selectors select, by ascending address, IPv4 first. Empty if the page follows an
   * address.
   */
  readonly networks: readonly OwnedNetwork[];
  /** The number of all addresses, also of those before and after the page. */
  readonly total: number;
  readonly members: readonly { readonly address: Address; readonly owner: OwnerName }[];
};

export type KubernetesListener = {
  /**
   * Applies the changed members (addresses that Kubernetes objects own). The thread sends the next message
   * after the promise has resolved. The promise must not wait for `membership`. If it rejects, the thread is
   * started again.
   */
  readonly members: (message: MembersMessage) => Promise<void>;
  readonly reflector: (change: ReflectorChange) => void;
  /**
   * Called when the thread has failed. The thread is started again after a pause, and the members (addresses
   * of pods and nodes) stay in force until then.
   */
  readonly failed: (reason: string) => void;
};

export type KubernetesSource = {
  /**
   * Starts the thread with the objects of the store. `restored` is called at each start of the thread. The
   * listener gets its first message after calls of `setIntegrations`, and of `setSelectors` or `membership`.
   * If the store lacks the objects of an integration (a Kubernetes API server), the message waits for the
   * first lists of this integration. It waits at most five seconds, or the time limit of a call of
   * `membership`.
   */
  open(restored: () => Promise<readonly StoredObject[]>, listener: KubernetesListener): Promise<void>;
  /** Sets the integrations. Removes the objects of each other integration, also from the store. */
  setIntegrations(integrations: readonly WatchedIntegration[]): void;
  /** Sets the selectors of the policy in force. */
  setSelectors(selectors: readonly Selector[]): void;
  /**
   * Returns the selector resolution (which selectors are resolved) and the members for the compilation of a
   * policy with these selectors. Waits until all of them are resolved, at most `withinMs`. The listener has
   * applied all changes up to the result before the promise resolves. The thread watches the objects of these
   * selectors until the next call, or until `release`. Before `setIntegrations`, no selector is resolved.
   */
  membership(selectors: readonly Selector[], withinMs: number): Promise<ListedMembership>;
  /**
   * Ends the watches for the selectors of `membership` that the policy in force does not contain. After this
   * call, no policy with these selectors may be put in force, because their deny rules would match no member.
   */
  release(): void;
  /**
   * Returns the facts about an integration (a Kubernetes API server), and visits all its objects for this.
   * Rejects at once if the thread does not run; so do the next two methods.
   */
  facts(integration: string): Promise<IntegrationFacts>;
  objectCounts(integration: string): Promise<ObjectCounts>;
  /**
   * Returns the selected addresses after the address `after`, ascending and IPv4 first, and the selected
   * networks.
   */
  membersOf(keys: readonly string[], after: Address | null, limit: number): Promise<MemberPage>;
  close(): Promise<void>;
};

/**
 * The phases of a reflector, which lists and watches objects of a Kubernetes API server.
 * - `connecting`: the server has not responded yet.
 * - `listing`: the server sends a list. Until the list is complete, the objects of the previous list stay in
 *   force.
 * - `watching`: the list is complete, and the server sends changes.
 * - `silent`: the server does not respond.
 * - `unauthorized`: the server refuses the token (401). `forbidden`: it refuses the access (403).
 * - `backing_off`: a request failed for another reason. The reflector tries again.
 */
export type ReflectorPhase =
  | 'connecting'
  | 'listing'
  | 'watching'
  | 'silent'
  | 'unauthorized'
  | 'forbidden'
  | 'backing_off';
