import { AddressMap, AddressSet } from '#addresses/address-map.js';
import { compareAddresses } from '#addresses/ip-address.js';
import type { OwnedNetwork } from '#contracts/kubernetes/kubernetes-source.js';
import type {
  ListedMembership,
  MemberList,
  Members,
  MembershipChange,
  SelectorResolution,
  SelectorSet,
  SharedAddress,
} from '#contracts/kubernetes/membership.js';
import { NO_SELECTORS } from '#contracts/kubernetes/membership.js';
import type { Address, Selector } from '#contracts/policy/policy-model.js';
import { SelectorIndex } from '#kubernetes/selectors/selector-index.js';
import { isResolvable, resolutionOf, selectedNodes } from '#kubernetes/selectors/selector-resolution.js';
import { type CountedSet, SelectorSets } from '#kubernetes/selectors/selector-sets.js';
import { mayBeSelected, type ParsedSelector, parseSelector, selectsAddress } from '#kubernetes/selectors/selectors.js';
import type { KubernetesObject, Labels, ObjectMessage, ResourceName } from '#kubernetes/watch/objects.js';
import type { WatchScope } from '#kubernetes/watch/watch-scopes.js';
import { isSameResolution } from '#policy/model/sources/same-sources.js';
import type { AddressFacts } from './claimable.js';
import { type CompleteScope, IntegrationObjects, type OwningObject } from './integration-objects.js';
import { type MembershipWarning, sharedWarnings, warningsOf } from './membership-warnings.js';
import { type AddressOwner, OwnerNames, ownerNameOf } from './owner-names.js';

/** This file computes which selectors select each address, from the objects of all integrations. */

/**
 * The maximum number of pods, of nodes and of namespaces in one integration (API server). Kubernetes supports
 * 150,000 pods.
 */
const MAX_OBJECTS = 200_000;
/**
 * The maximum number of unused sets of selectors for which a compiled policy has rules. Each set can need a
 * separate rule list.
 */
const MAX_FORMER = 256;

/** `podNetworks` replaces the `podCIDRs` of the nodes. */
export type MembershipOptions = AddressFacts & {
  readonly maxObjects?: number | undefined;
  readonly maxUnusedSets?: number | undefined;
  /**
   * Called for each object that has changed, even if only its claims have changed. Must not call methods of
   * `Memberships`.
   */
  readonly objectChanged?: ((integration: string, resource: ResourceName, uid: string) => void) | undefined;
};

type Integration = {
  readonly objects: IntegrationObjects;
  selectors: readonly ParsedSelector[];
  index: SelectorIndex;
};

/**
 * Computes which addresses the selectors of policies select (their members). Input: the objects of
 * integrations, and the selectors of policies. Output: the changes of members that `drainChanges` returns.
 * Uses no clock and no I/O.
 */
export class Memberships implements Members {
  readonly #options: MembershipOptions;
  readonly #integrations = new Map<string, Integration>();
  readonly #sets: SelectorSets;
  /** The set of selectors of each address that an object owns, as of the last call of `drainChanges`. */
  readonly #members = new AddressMap<CountedSet>();
  /** The addresses whose sets of selectors or owners may have changed. */
  readonly #changed = new AddressSet();
  /** The names of the owners of addresses, as of the last call of `drainChanges`. */
  readonly owners = new OwnerNames();
  /** The addresses that different objects own in two or more integrations, as of the last `drainChanges`. */
  readonly #shared = new AddressSet();
  /** The addresses that objects of several integrations have since the last call of `drainShared`. */
  readonly #newlyShared = new AddressSet();
  #selectors: readonly ParsedSelector[] = [];
  #resolution: SelectorResolution = NO_SELECTORS;
  /** Whether `#resolution` (which selectors are resolved) must be computed again. */
  #isResolutionOutdated = false;
  /**
   * Whether the selectors changed since the last call of `drainChanges`. Sets of selectors that addresses
   * lose because of this cannot occur again, so `former` does not return them.
   */
  #haveSelectorsChanged = false;

  constructor(options: MembershipOptions = {}) {
    this.#options = options;
    this.#sets = new SelectorSets(options.maxUnusedSets);
  }

  /** Sets the selectors that must be computed: those of the policy in force and of a proposed policy. */
  setSelectors(selectors: Iterable<Selector>): void {
    const byKey = new Map<string, Selector>();
    for (const selector of selectors) byKey.set(selector.key, selector);
    const known = new Set(this.#selectors.map(({ key }) => key));
    if (byKey.size !== known.size || [...byKey.keys()].some((key) => !known.has(key))) {
      this.#sets.forgetLast();
      this.#haveSelectorsChanged = true;
    }
    this.#selectors = [...byKey.values()].map(parseSelector);
    for (const [name, integration] of this.#integrations) this.#setSelectorsOf(name, integration);
    this.#isResolutionOutdated = true;
  }

  /** Applies a message from a list or a watch of an integration (Kubernetes API server). */
  receive(name: string, scope: WatchScope, message: ObjectMessage): void {
    const integration = this.#integration(name);
    const hadNamespaces = hasNamespaces(integration);
    integration.objects.receive(scope, message);
    if (hadNamespaces !== hasNamespaces(integration)) this.#markAddresses(integration);
  }

  /** Ends a watch scope (such as the pods of a namespace), whose objects are no longer needed. */
  endScope(name: string, scope: WatchScope): void {
    const integration = this.#integrations.get(name);
    if (integration === undefined) return;
    integration.objects.end(scope);
    if (scope.resource === 'namespaces') this.#markAddresses(integration);
  }

  /** Restores the objects of an integration (a Kubernetes API server) that an earlier process has stored. */
  restore(name: string, objects: readonly OwningObject[], complete: readonly CompleteScope[]): void {
    this.#integration(name).objects.restore(objects, complete);
  }

  /**
   * Removes the objects of an integration. Before the next call of `drainChanges`, the caller must add the
   * objects of another cluster.
   */
  clear(name: string): void {
    this.#integrations.get(name)?.objects.clear();
  }

  /** Removes an integration (Kubernetes API server) with its objects. No policy may use it (D38). */
  remove(name: string): void {
    const integration = this.#integrations.get(name);
    if (integration === undefined) return;
    this.#integrations.delete(name);
    this.#markAddresses(integration);
    this.#isResolutionOutdated = true;
  }

  /**
   * Returns the changes since the last call: at most one that removes selectors or owners from addresses, and
   * then at most one that only adds. After the call, `resolution` and `owners` match these changes.
   */
  drainChanges(): readonly MembershipChange[] {
    const removals = new ChangeLists();
    const additions = new ChangeLists();
    for (const address of this.#changed) {
      const before = this.#members.get(address);
      const owners = this.ownersOf(address);
      const isShared = new Set(owners.map(({ object }) => object.uid)).size > 1;
      this.#noteShared(address, isShared);
      const after = isShared ? this.#sets.denyOnly : this.#computeSet(address, owners);
      this.owners.set(address, isShared ? undefined : owners[0]);
      if (before === after) continue;
      if (after === undefined) this.#members.delete(address);
      else {
        this.#members.set(address, after);
        this.#sets.use(after);
      }
      if (before !== undefined) this.#sets.release(before, this.#haveSelectorsChanged ? undefined : address);
      const addsOnly = after !== undefined && after !== this.#sets.denyOnly;
      const lists = addsOnly && (before === undefined || isSubset(before, after)) ? additions : removals;
      lists.addresses.push(address);
      lists.sets.push(after?.number ?? 0);
    }
    this.#changed.clear();
    this.#haveSelectorsChanged = false;
    this.#renewResolution();
    const added = this.#sets.drainAdded();
    const dropped = this.#sets.drop();
    const lists = [removals, additions].filter(({ addresses }) => addresses.length > 0);
    return lists.map((list, index) => ({
      added: index === 0 ? added : [],
      addresses: list.addresses,
      sets: Uint32Array.from(list.sets),
      dropped: index === lists.length - 1 ? dropped : [],
    }));
  }

  /** The number of addresses that may have new owners or selectors since the last `drainChanges`. */
  get waiting(): number {
    return this.#changed.size;
  }

  /**
   * Returns all members as of the last call of `drainChanges`, and all sets of selectors to which a later
   * change may refer without adding them.
   */
  list(): MemberList {
    return {
      added: [...this.#sets.all()],
      addresses: [...this.#members.keys()],
      sets: Uint32Array.from([...this.#members.values()], ({ number }) => number),
      dropped: [],
    };
  }

  /**
   * Returns the sets of selectors that became unused last, at most `MAX_FORMER`, each with the address that
   * had it last. See `ListedMembership`.
   */
  former(): Required<ListedMembership>['former'] {
    const found = this.#sets.lastUnused(MAX_FORMER);
    return {
      addresses: found.map(([address]) => address),
      sets: Uint32Array.from(found, ([, set]) => set),
    };
  }

  /**
   * Which selectors are resolved, as of the last call of `drainChanges`. The same object is returned while
   * nothing has changed. Apply the changes of `drainChanges` before a resolution with more resolved
   * selectors.
   */
  get resolution(): SelectorResolution {
    return this.#resolution;
  }

  /**
   * Whether the selected addresses or the resolved selectors may have changed since the last `drainChanges`.
   */
  get isChanged(): boolean {
    return this.#changed.size > 0 || this.#isResolutionOutdated;
  }

  /**
   * Whether all objects are known on which these selectors depend. Also considers messages since the last
   * call of `drainChanges`.
   */
  areResolvable(selectors: Iterable<Selector>): boolean {
    return [...selectors].every((selector) => {
      const objects = this.#integrations.get(selector.source.integration)?.objects;
      return objects !== undefined && isResolvable(parseSelector(selector), objects);
    });
  }

  setOf(address: Address): CountedSet | undefined {
    return this.#members.get(address);
  }

  /** Returns the objects that own an address, in the alphabetical order of their API servers. */
  ownersOf(address: Address): readonly AddressOwner[] {
    const owners: AddressOwner[] = [];
    for (const [integration, { objects }] of this.#integrations) {
      const object = objects.claims.ownerOf(address);
      if (object !== undefined) owners.push({ integration, object });
    }
    return owners.length < 2 ? owners : owners.sort((a, b) => (a.integration < b.integration ? -1 : 1));
  }

  /** The number of addresses that each selector selects. A selector without addresses is absent. */
  counts(): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (const { keys, uses } of this.#sets.all()) {
      if (uses === 0) continue;
      for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + uses);
    }
    return counts;
  }

  *membersOf(key: string): Generator<Address> {
    for (const [address, { keys }] of this.#members) if (keys.includes(key)) yield address;
  }

  /** The networks of pods that a selector selects, with the nodes that have them. */
  networksOf(key: string): readonly OwnedNetwork[] {
    const selector = this.#selectors.find((each) => each.key === key);
    if (selector?.resource !== 'nodes' || !this.#resolution.networks.has(key)) return [];
    const { integration } = selector;
    return selectedNodes(selector, this.#integration(integration).objects).flatMap((object) =>
      object.podNetworks.map((prefix) => ({ prefix, owner: ownerNameOf({ integration, object }) })),
    );
  }

  /** Returns at most `most` of the addresses that different objects own in two or more integrations. */
  sharedAddresses(most: number): readonly SharedAddress[] {
    const found: SharedAddress[] = [];
    for (const address of this.#shared) {
      if (found.length >= most) break;
      found.push(this.#sharedAddress(address));
    }
    return found;
  }

  /**
   * Returns at most `most` of the addresses that became shared after the last call. The other addresses are
   * not returned later.
   */
  drainShared(most: number): readonly SharedAddress[] {
    const drained = [...this.#newlyShared].slice(0, most).map((address) => this.#sharedAddress(address));
    this.#newlyShared.clear();
    return drained;
  }

  warnings(name: string): readonly MembershipWarning[] {
    const integration = this.#integrations.get(name);
    if (integration === undefined) return [];
    const shared = [...this.#shared]
      .sort(compareAddresses)
      .map((address) => ({ address, owners: this.ownersOf(address) }))
      .filter(({ owners }) => owners.some((owner) => owner.integration === name));
    return [...warningsOf(name, integration, this.#resolution.podNetworks), ...sharedWarnings(name, shared)];
  }

  objectsOf(name: string): IntegrationObjects | undefined {
    return this.#integrations.get(name)?.objects;
  }

  #renewResolution(): void {
    if (!this.#isResolutionOutdated) return;
    const objects = new Map([...this.#integrations].map(([name, integration]) => [name, integration.objects]));
    const resolution = resolutionOf(this.#selectors, objects, this.#options.podNetworks);
    if (!isSameResolution(resolution, this.#resolution)) this.#resolution = resolution;
    this.#isResolutionOutdated = false;
  }

  #integration(name: string): Integration {
    const known = this.#integrations.get(name);
    if (known !== undefined) return known;
    const integration = this.#newIntegration(name);
    this.#integrations.set(name, integration);
    this.#setSelectorsOf(name, integration);
    return integration;
  }

  #newIntegration(name: string): Integration {
    const objects = new IntegrationObjects(
      {
        addressChanged: (address) => this.#changed.add(address),
        objectChanged: (resource, uid) => this.#options.objectChanged?.(name, resource, uid),
        namespaceChanged: (namespace) => this.#markNamespace(integration, namespace),
        resolutionOutdated: () => {
          this.#isResolutionOutdated = true;
        },
      },
      this.#options.maxObjects ?? MAX_OBJECTS,
      this.#options,
    );
    const integration: Integration = { objects, selectors: [], index: new SelectorIndex([]) };
    return integration;
  }

  /** Sets the selectors of an API server. Marks all its addresses if the selectors have changed. */
  #setSelectorsOf(name: string, integration: Integration): void {
    const selectors = this.#selectors.filter(({ integration: of }) => of === name);
    const before = new Set(integration.selectors.map(({ key }) => key));
    if (selectors.length === before.size && selectors.every(({ key }) => before.has(key))) return;
    integration.selectors = selectors;
    integration.index = new SelectorIndex(selectors);
    this.#markAddresses(integration);
  }

  /** Marks all addresses of an integration, so that `drainChanges` computes their sets of selectors again. */
  #markAddresses({ objects }: Integration): void {
    for (const address of objects.claims.addresses()) this.#changed.add(address);
  }

  /** Marks the addresses of the pods of a namespace as changed, because its labels have changed. */
  #markNamespace({ objects, selectors }: Integration, namespace: string): void {
    if (!selectors.some((selector) => selector.resource === 'pods' && selector.namespaceLabels !== undefined)) return;
    for (const address of objects.claims.addresses()) {
      const owner = objects.claims.ownerOf(address);
      if (owner?.resource === 'pods' && owner.namespace === namespace) this.#changed.add(address);
    }
  }

  #sharedAddress(address: Address): SharedAddress {
    return { address, integrations: this.ownersOf(address).map(({ integration }) => integration) };
  }

  #noteShared(address: Address, isShared: boolean): void {
    if (isShared === this.#shared.has(address)) return;
    if (isShared) {
      this.#shared.add(address);
      this.#newlyShared.add(address);
    } else {
      this.#shared.delete(address);
      this.#newlyShared.delete(address);
    }
  }

  /**
   * Returns the set of selectors of an address; undefined if no object owns the address. `owners`: the owner
   * object in each integration that contains it. If selectors cannot be evaluated for the object in one
   * integration, the address is deny-only (`DENY_ONLY_MEMBER`).
   */
  #computeSet(address: Address, owners: readonly AddressOwner[]): CountedSet | undefined {
    const keys: string[] = [];
    let isDenyOnly = false;
    for (const { integration: name, object: owner } of owners) {
      const integration = this.#integration(name);
      const { objects, index } = integration;
      const namespaceLabels = objects.namespaceLabelsOf(owner);
      isDenyOnly ||= owner.undecided === true || isOfUnknownNamespace(integration, owner, namespaceLabels);
      for (const selector of index.matching(owner, namespaceLabels)) {
        const isOfOther =
          owner.resource === 'nodes' && selector.resource === 'nodes' && !selectsAddress(selector, owner, address);
        if (!isOfOther) keys.push(selector.key);
      }
    }
    if (owners.length > 1) keys.sort();
    if (isDenyOnly) return this.#sets.denyOnly;
    return owners.length === 0 ? undefined : this.#sets.of(keys);
  }
}

/** Whether a selector cannot be decided for a pod because its namespace is not known. */
function isOfUnknownNamespace(of: Integration, owner: KubernetesObject, labels: Labels | undefined): boolean {
  if (owner.resource !== 'pods' || labels !== undefined || !hasNamespaces(of)) return false;
  return of.selectors.some((selector) => mayBeSelected(selector, owner));
}

/** Whether all namespaces are known. If not, selectors by labels of namespaces are not resolved. */
function hasNamespaces({ objects }: Integration): boolean {
  return objects.scopes.some(({ resource }) => resource === 'namespaces');
}

class ChangeLists {
  readonly addresses: Address[] = [];
  readonly sets: number[] = [];
}

function isSubset(inner: SelectorSet, outer: SelectorSet): boolean {
  return inner.keys.every((key) => outer.keys.includes(key));
}
