import { Subject, type Subscription } from 'rxjs';
import type {
  IntegrationFacts,
  MemberPage,
  MembersMessage,
  ObjectCounts,
  ReflectorChange,
  StoredObject,
  WatchedIntegration,
} from '#contracts/kubernetes/kubernetes-source.js';
import { type ListedMembership, NOTHING_LISTED } from '#contracts/kubernetes/membership.js';
import type { Address, Selector } from '#contracts/policy/policy-model.js';
import { ownAddresses } from '#dns/own-addresses.js';
import { Memberships } from '#kubernetes/members/memberships.js';
import { Feeds } from '#kubernetes/watch/feeds.js';
import { type IntegrationTarget, watchIntegration } from '#kubernetes/watch/integration-watch.js';
import { ObjectReader } from '#kubernetes/watch/object-reader.js';
import type { KubernetesObject } from '#kubernetes/watch/objects.js';
import { wantedObjectsOf } from '#kubernetes/watch/wanted-objects.js';
import type { Acknowledgement } from './acknowledgement.js';
import { factsOf, membersOf, objectCountsOf } from './integration-facts.js';
import type { KubernetesThreadOptions } from './kubernetes-messages.js';
import { MemberMessages, plainChange } from './member-messages.js';
import { ObjectChanges, StoredRecords } from './stored-objects.js';
import { watchedServer } from './watched-server.js';

/** An API server that the thread watches. `feeds` passes its objects to `Memberships`. */
type Integration = {
  watched: WatchedIntegration;
  readonly feeds: Feeds;
  readonly targets: Subject<IntegrationTarget>;
  subscription: Subscription | undefined;
  /** The names of the reflectors (list and watch of one resource) that have reported a phase. */
  readonly reflectors: Set<string>;
};

/**
 * The time in milliseconds for which the first message waits for an integration (a Kubernetes API server)
 * without a list.
 */
const FIRST_MESSAGE_MS = 5_000;

type Wait = { readonly selectors: readonly Selector[]; readonly resolve: () => void };

/**
 * The functions that send to the main thread. `failed` reports an error that no code expected; the thread
 * ends after it.
 */
export type KubernetesOutput = {
  readonly members: (message: MembersMessage) => void;
  readonly reflector: (change: ReflectorChange) => void;
  readonly failed: (failure: unknown) => void;
};

/**
 * The minimum interval in milliseconds between two reads of the node's addresses, because a read takes some
 * milliseconds on a node with many interfaces.
 */
const OWN_ADDRESSES_MS = 1_000;
/** The maximum number of addresses with owners in two integrations in the warnings of a write. */
const MAX_SHARED = 8;

/**
 * The work of the Kubernetes thread: watches the integrations, computes the addresses that selectors select
 * (members), and sends changes of members to the main thread.
 */
export class LocalKubernetes {
  readonly #options: KubernetesThreadOptions;
  readonly #output: KubernetesOutput;
  readonly #reader: ObjectReader;
  readonly #objects: ObjectChanges;
  readonly #memberships: Memberships;
  readonly #messages: MemberMessages;
  readonly #integrations = new Map<string, Integration>();
  readonly #waits = new Set<Wait>();
  readonly #stored: StoredRecords;
  /** Ends the wait for the first message. Undefined until the integrations and the selectors are known. */
  #firstMessage: NodeJS.Timeout | undefined;
  #isOpened = false;
  #isBegun = false;
  /** The integrations of the last call of `setIntegrations`; undefined before the first call. */
  #integrationsGiven: readonly WatchedIntegration[] | undefined;
  /** The selectors of the policy in force, and of the last call of `membership`. Undefined before. */
  #inForce: readonly Selector[] | undefined;
  #proposed: readonly Selector[] | undefined;

  constructor(options: KubernetesThreadOptions, acknowledgement: Acknowledgement, output: KubernetesOutput) {
    this.#options = options;
    this.#output = output;
    const readsIpv6 = options.ipv6 ?? false;
    this.#reader = new ObjectReader(readsIpv6);
    this.#objects = new ObjectChanges(readsIpv6);
    this.#stored = new StoredRecords(readsIpv6);
    this.#memberships = new Memberships({
      podNetworks: options.podNetworks,
      own: ownAddressesFor(OWN_ADDRESSES_MS),
      nodeName: options.nodeName,
      objectChanged: (integration, resource, uid) => this.#objects.changed(integration, resource, uid),
    });
    const integrationOf = (name: string) => ({
      cluster: this.#integrations.get(name)?.feeds.cluster,
      objects: this.#memberships.objectsOf(name),
    });
    const sources = { memberships: this.#memberships, objects: this.#objects, integrationOf };
    this.#messages = new MemberMessages(sources, acknowledgement, (message) => output.members(message));
  }

  /** Adds a part of the objects in the store. The caller must call `open` after the last part. */
  restorePart(records: readonly StoredObject[]): void {
    this.#stored.add(records);
  }

  /** Must be called after all parts of the stored objects were restored by `restorePart`. */
  open(): void {
    this.#isOpened = true;
    this.#begin();
  }

  setIntegrations(integrations: readonly WatchedIntegration[]): void {
    this.#integrationsGiven = integrations;
    if (this.#isBegun) this.#useIntegrations(integrations);
    else this.#begin();
  }

  setSelectors(selectors: readonly Selector[]): void {
    this.#inForce = selectors;
    this.#selectorsChanged();
  }

  setProposedSelectors(selectors: readonly Selector[]): void {
    this.#proposed = selectors;
    this.#selectorsChanged();
  }

  release(): void {
    if (this.#proposed === undefined) return;
    this.#proposed = undefined;
    this.#selectorsChanged();
  }

  /** Must be called when the main thread has applied the last message with members (addresses of objects). */
  acknowledge(): void {
    this.#messages.acknowledge();
  }

  async membership(selectors: readonly Selector[], withinMs: number): Promise<ListedMembership> {
    this.setProposedSelectors(selectors);
    await this.#resolved(selectors, withinMs);
    // Before the integrations are known, a first message would remove all members (addresses of pods and
    // nodes) of the previous process.
    if (!this.#isBegun) return NOTHING_LISTED;
    // The time limit has passed: members of other integrations must not wait longer for an integration (a
    // Kubernetes API server) without a list.
    this.#messages.open();
    await this.#messages.flushed();
    const { resolution: scope } = this.#memberships;
    return {
      scope,
      list: plainChange(this.#memberships.list()),
      former: this.#memberships.former(),
      shared: this.#memberships.sharedAddresses(MAX_SHARED),
    };
  }

  facts(integration: string): IntegrationFacts {
    return factsOf(integration, this.#memberships, this.#selectors());
  }

  objectCounts(integration: string): ObjectCounts {
    return objectCountsOf(integration, this.#memberships);
  }

  membersOf(keys: readonly string[], after: Address | null, limit: number): MemberPage {
    return membersOf(this.#memberships, keys, { after, limit });
  }

  /** Restores the objects of the store, when all of them were sent and the integrations are known. */
  #begin(): void {
    if (this.#isBegun || !this.#isOpened || this.#integrationsGiven === undefined) return;
    this.#isBegun = true;
    this.#useIntegrations(this.#integrationsGiven);
    const names = new Set(this.#integrationsGiven.map(({ name }) => name));
    for (const name of this.#stored.names) if (!names.has(name)) this.#objects.remove(this.#stored.keysOf(name));
    this.#stored.clear();
    this.#changed();
  }

  #useIntegrations(integrations: readonly WatchedIntegration[]): void {
    const names = new Set(integrations.map(({ name }) => name));
    for (const name of [...this.#integrations.keys()]) if (!names.has(name)) this.#remove(name);
    for (const watched of integrations) {
      const known = this.#integrations.get(watched.name);
      if (known === undefined) this.#add(watched);
      else known.watched = watched;
    }
    this.#retarget();
    this.#changed();
  }

  #add(watched: WatchedIntegration): void {
    const { name } = watched;
    const integration: Integration = {
      watched,
      feeds: new Feeds(name, this.#memberships),
      targets: new Subject(),
      subscription: undefined,
      reflectors: new Set(),
    };
    this.#integrations.set(name, integration);
    this.#restore(name, integration);
    integration.subscription = watchIntegration<KubernetesObject>(
      integration.targets,
      (resource) => (value) => this.#reader.read(resource, value),
      this.#options.times,
    ).subscribe({
      next: (event) => {
        if (event.type !== 'reflector.changed') {
          integration.feeds.handle(event);
          this.#objects.scopesChanged(name);
          this.#changed();
          return;
        }
        if (event.phase === null) integration.reflectors.delete(event.name);
        else integration.reflectors.add(event.name);
        const { name: reflector, phase, reason, at } = event;
        this.#output.reflector({ integration: name, name: reflector, phase, reason, at });
      },
      error: (failure: unknown) => this.#output.failed(failure),
    });
  }

  /** Restores the stored objects of one integration, if they are complete and belong to the same cluster. */
  #restore(name: string, { watched, feeds }: Integration): void {
    const restored = this.#stored.objectsOf(name);
    if (restored?.cluster === this.#serverOf(watched).cluster) {
      feeds.restore(restored.cluster, restored.objects, restored.scopes);
      this.#objects.stored(name);
    } else this.#objects.remove(this.#stored.keysOf(name));
  }

  #remove(name: string): void {
    const integration = this.#integrations.get(name);
    const objects = this.#memberships.objectsOf(name);
    integration?.subscription?.unsubscribe();
    this.#integrations.delete(name);
    for (const { resource, uid } of objects?.all() ?? []) this.#objects.changed(name, resource, uid);
    this.#objects.scopesChanged(name);
    this.#memberships.remove(name);
    const at = new Date().toISOString();
    for (const reflector of integration?.reflectors ?? [])
      this.#output.reflector({ integration: name, name: reflector, phase: null, reason: null, at });
  }

  #selectors(): readonly Selector[] {
    const all = [...(this.#inForce ?? []), ...(this.#proposed ?? [])];
    return [...new Map(all.map((selector) => [selector.key, selector])).values()];
  }

  #selectorsChanged(): void {
    this.#memberships.setSelectors(this.#selectors());
    if (this.#isBegun) this.#retarget();
    this.#changed();
  }

  /**
   * Watches the objects that the selectors need. Does nothing before the selectors are known, because the
   * stored objects would be removed as not needed.
   */
  #retarget(): void {
    if ((this.#inForce ?? this.#proposed) === undefined) return;
    const selectors = this.#selectors();
    const { node, podNetworks } = this.#options;
    // With an empty list of pod networks, a new pod needs no rules before it is known. Then a watch for each
    // of a few namespaces is sufficient.
    const areNewPodsDenyOnly = podNetworks === undefined || podNetworks.length > 0;
    for (const [name, { watched, targets }] of this.#integrations) {
      const own = selectors.filter(({ source }) => source.integration === name);
      const wanted = wantedObjectsOf(own, { node, areNewPodsDenyOnly, hasPodNetworks: podNetworks !== undefined });
      targets.next({ ...this.#serverOf(watched), wanted });
    }
  }

  #serverOf(watched: WatchedIntegration): Omit<IntegrationTarget, 'wanted'> {
    return watchedServer(watched, this.#options.serviceAccountFolder);
  }

  #changed(): void {
    if (this.#hasInputs) {
      if (this.#areListed()) this.#messages.open();
      else
        this.#firstMessage ??= setTimeout(
          () => this.#messages.open(),
          this.#options.firstMessageMs ?? FIRST_MESSAGE_MS,
        );
    }
    this.#messages.changed();
    for (const wait of this.#waits) if (this.#memberships.areResolvable(wait.selectors)) wait.resolve();
  }

  /** Whether the integrations and the selectors are known. */
  get #hasInputs(): boolean {
    return this.#isBegun && (this.#inForce ?? this.#proposed) !== undefined;
  }

  /**
   * Whether each integration (a Kubernetes API server) has its objects. A first message without them would
   * remove members that deny rules of the policy in force still need. `FIRST_MESSAGE_MS` limits the wait for
   * an integration that never gets a list.
   */
  #areListed(): boolean {
    return [...this.#integrations.values()].every(({ feeds }) => feeds.cluster !== undefined);
  }

  #resolved(selectors: readonly Selector[], withinMs: number): Promise<void> {
    if (this.#isBegun && this.#memberships.areResolvable(selectors)) return Promise.resolve();
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        this.#waits.delete(wait);
        resolve();
      };
      const wait = { selectors, resolve: end };
      const timer = setTimeout(end, withinMs);
      this.#waits.add(wait);
    });
  }
}

/** Returns a function that reads the addresses of this machine, at most once in `ms`. */
function ownAddressesFor(ms: number): () => ReadonlySet<Address> {
  let read: { readonly at: number; readonly addresses: ReadonlySet<Address> } | undefined;
  return () => {
    if (read === undefined || performance.now() - read.at > ms)
      read = { at: performance.now(), addresses: ownAddresses() };
    return read.addresses;
  };
}
