import type { Prefix, Selector } from '#contracts/policy/policy-model.js';
import type { OwnerChange, OwnerName } from './address-owner.js';
import type {
  ListedMembership,
  MemberList,
  MembershipChange,
  SelectorResolution,
  SharedAddress,
} from './membership.js';
import type { ReflectorPhase } from './reflector-state.js';

/**
 * This file defines the interface of the Kubernetes thread: it watches the objects of all integrations, and
 * gives the members of the selectors that policies name.
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
  /** The name of the node whose pods are watched; null for the pods of all nodes. */
  readonly node: string | null;
  /** The name of this node in Kubernetes, if it is a node of the cluster. */
  readonly nodeName?: string | undefined;
};

/** An object in the store, in the thread's own format. Null removes it. */
export type StoredObject = { readonly key: string; readonly value: string | null };

/**
 * The members that the thread gives at one time. `replaces`: all members, as the first message after each
 * start of the thread; the numbers of sets begin again. Otherwise `changes` has at most one change that takes
 * selectors or owners, and then at most one that only adds.
 * - `owners`: the addresses whose owner has another name now; null if the address has no owner.
 * - `shared`: addresses that are shared since the last message; at most some hundred.
 * - `scope`: the selector resolution after the members; undefined if it is the same as before.
 * - `stored`: the objects that the store has to keep so that a later process knows the members.
 */
export type MembersMessage = {
  readonly replaces: MemberList | null;
  readonly changes: readonly MembershipChange[];
  readonly owners: readonly OwnerChange[];
  readonly shared: readonly SharedAddress[];
  readonly scope: SelectorResolution | undefined;
  readonly stored: readonly StoredObject[];
};

/** The phase of a reflector of an integration; null if the integration lost the reflector. `at`: ISO 8601. */
export type ReflectorChange = {
  readonly integration: string;
  readonly name: string;
  readonly phase: ReflectorPhase | null;
  readonly reason: string | null;
  readonly at: string;
};

/** The number of objects of an integration. */
export type ObjectCounts = { readonly pods: number; readonly nodes: number; readonly namespaces: number };

/** The facts about an integration. `addresses` and `networks`: how many of them a selector selects. */
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
  /** The networks that the selectors select, by ascending address. Empty if the page follows an address. */
  readonly networks: readonly OwnedNetwork[];
  /** The number of all addresses, also of those before and after the page. */
  readonly total: number;
  readonly members: readonly { readonly address: number; readonly owner: OwnerName }[];
};

export type KubernetesListener = {
  /**
   * Applies members. The thread sends the next message after the promise has resolved. The promise must not
   * wait for `membership`. If it rejects, the thread is started again.
   */
  readonly members: (message: MembersMessage) => Promise<void>;
  readonly reflector: (change: ReflectorChange) => void;
  /** The thread failed and is started again after a pause. The members stay in force meanwhile. */
  readonly failed: (reason: string) => void;
};

export type KubernetesSource = {
  /**
   * Starts the thread with the objects of the store. `restored` is called at each start of the thread. The
   * first message to the listener follows after `setIntegrations`, and after `setSelectors` or `membership`:
   * at once if the store has the objects of each integration, otherwise when their first lists are complete.
   * After five seconds, or after the time of a call of `membership`, it waits no longer.
   */
  open(restored: () => Promise<readonly StoredObject[]>, listener: KubernetesListener): Promise<void>;
  /** Sets the integrations. Removes the objects of each other integration, also from the store. */
  setIntegrations(integrations: readonly WatchedIntegration[]): void;
  /** Sets the selectors of the policy in force. */
  setSelectors(selectors: readonly Selector[]): void;
  /**
   * Returns the resolution and the members for the compilation of a policy with these selectors. Waits until
   * all of them are resolved, at most `withinMs`. The listener has applied all changes up to the result
   * before the promise resolves. The selectors stay named until the next call, or until `release`. Without
   * `setIntegrations`, no selector is resolved.
   */
  membership(selectors: readonly Selector[], withinMs: number): Promise<ListedMembership>;
  /**
   * Names only the selectors of the policy in force from now on. No program that was compiled with other
   * selectors may be put in force afterwards: its deny rules by these selectors would match no member.
   */
  release(): void;
  /**
   * Looks at all objects of the integration. Rejects at once if the thread does not run, as the next two do.
   */
  facts(integration: string): Promise<IntegrationFacts>;
  objectCounts(integration: string): Promise<ObjectCounts>;
  /** Returns the members of selectors by ascending address, after the address `after`, and their networks. */
  membersOf(keys: readonly string[], after: number | null, limit: number): Promise<MemberPage>;
  close(): Promise<void>;
};
