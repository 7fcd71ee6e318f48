import { formatPrefix } from '#addresses/ip-address.js';
import { addressKey } from '#contracts/policy/address-words.js';
import type { Address } from '#contracts/policy/policy-model.js';
import type {
  KubernetesObject,
  Labels,
  NodeRecord,
  ObjectMessage,
  PodRecord,
  ResourceName,
} from '#kubernetes/watch/objects.js';
import { isSameWatchScope, type WatchScope } from '#kubernetes/watch/watch-scopes.js';
import { type AddressFacts, mayClaim } from './claimable.js';
import { Claims, type ClaimTime, type OwnedAddress } from './claims.js';

/** The functions that `IntegrationObjects` calls after a change. They must not call its methods. */
export type ObjectListener = {
  /** Called when another object owns the address, or when its owner has new content. */
  readonly addressChanged: (address: Address) => void;
  /** An object or its claims to addresses have changed, or the object was removed. */
  readonly objectChanged: (resource: ResourceName, uid: string) => void;
  /** Called when a namespace was added or removed, or when its labels have changed. */
  readonly namespaceChanged: (name: string) => void;
  /**
   * The selector resolution (which selectors are resolved) must be computed again: a watch scope (such as the
   * pods of a namespace) is complete or has ended, or nodes, their labels or their pod networks have changed.
   */
  readonly resolutionOutdated: () => void;
};

/** A watch scope (such as all pods) with a complete list. `version`: the last received resource version. */
type ScopeState = { readonly scope: WatchScope; version: number };
export type CompleteScope = Readonly<ScopeState>;

/** An object, and the addresses that it owns. */
export type OwningObject = { readonly object: KubernetesObject; readonly owned: readonly OwnedAddress[] };

/**
 * The objects of one integration (Kubernetes API server), and their claims to addresses. Applies the messages
 * of its watch scopes, and notifies a listener of what has changed.
 */
export class IntegrationObjects {
  readonly claims: Claims;
  /**
   * The number of objects that were omitted because the integration (a Kubernetes API server) has too many
   * objects.
   */
  skipped = 0;
  readonly #objects = {
    pods: new Map<string, PodRecord>(),
    nodes: new Map<string, NodeRecord>(),
    namespaces: new Map<string, KubernetesObject>(),
  };
  readonly #namespaceLabels = new Map<string, Labels>();
  readonly #listener: ObjectListener;
  readonly #maxObjects: number;
  #complete: readonly ScopeState[] = [];

  constructor(
    listener: ObjectListener,
    maxObjects: number,
    readonly facts: AddressFacts,
  ) {
    this.claims = new Claims(
      (address, object) => {
        listener.addressChanged(address);
        if (object !== undefined) listener.objectChanged(object.resource, object.uid);
      },
      (object, address) => mayClaim(object, address, facts),
    );
    this.#listener = listener;
    this.#maxObjects = maxObjects;
  }

  /** The watch scopes (such as the pods of a namespace) whose list is complete. */
  get scopes(): readonly WatchScope[] {
    return this.#complete.map(({ scope }) => scope);
  }

  get complete(): readonly CompleteScope[] {
    return this.#complete;
  }

  get nodes(): Iterable<NodeRecord> {
    return this.#objects.nodes.values();
  }

  get pods(): Iterable<PodRecord> {
    return this.#objects.pods.values();
  }

  *all(): Generator<KubernetesObject> {
    for (const resource of RESOURCES) yield* this.#ofResource(resource);
  }

  count(resource: ResourceName): number {
    return this.#objects[resource].size;
  }

  /** Returns an object with its addresses, to store it; undefined if there is no such object. */
  owning(resource: ResourceName, uid: string): OwningObject | undefined {
    const object = this.#objects[resource].get(uid);
    return object === undefined ? undefined : { object, owned: this.claims.of(object) };
  }

  /** Restores the objects and watch scopes of an earlier process. Call it before objects are added. */
  restore(objects: readonly OwningObject[], complete: readonly CompleteScope[]): void {
    for (const { object, owned } of objects) {
      const known: Map<string, KubernetesObject> = this.#objects[object.resource];
      known.set(object.uid, object);
      this.claims.restore(object, owned);
      this.#notify(undefined, object);
    }
    this.claims.settle();
    this.#complete = complete.map(({ scope, version }) => ({ scope, version }));
    this.#listener.resolutionOutdated();
  }

  /** Removes all objects and watch scopes, before the objects of another cluster are added. */
  clear(): void {
    this.#complete = [];
    for (const object of this.all()) this.#remove(object);
    this.claims.settle();
    this.claims.forgetVersions();
    this.#listener.resolutionOutdated();
  }

  /** The labels of the namespace of a pod; undefined if the namespace is not known. */
  namespaceLabelsOf(object: KubernetesObject): Labels | undefined {
    return object.resource === 'pods' ? this.#namespaceLabels.get(object.namespace) : undefined;
  }

  receive(scope: WatchScope, message: ObjectMessage): void {
    const complete = this.#complete.find((candidate) => isSameWatchScope(candidate.scope, scope));
    if (message.type === 'listed') {
      this.#list(complete ?? this.#begin(scope), message.objects, message.version);
      if (complete === undefined) this.#listener.resolutionOutdated();
    } else if (complete !== undefined) this.#apply(complete, message);
    this.claims.settle();
  }

  /** Ends a watch scope. Removes its objects, except those that another complete watch scope contains. */
  end(scope: WatchScope): void {
    this.#complete = this.#complete.filter((candidate) => !isSameWatchScope(candidate.scope, scope));
    for (const object of this.#ofResource(scope.resource)) {
      if (!this.#complete.some((other) => contains(other.scope, object))) this.#remove(object);
    }
    this.claims.settle();
    this.#listener.resolutionOutdated();
  }

  /**
   * Adds a watch scope (such as the pods of a namespace). Its version is 0 until its first list, because the
   * objects of that list can have claimed their addresses at any time before.
   */
  #begin(scope: WatchScope): ScopeState {
    const complete = { scope, version: 0 };
    this.#complete = [...this.#complete, complete];
    return complete;
  }

  /**
   * Replaces the objects of a watch scope by a list; keeps objects that are unchanged. Ends claims before it
   * makes claims, so that an address can move from one object to another. If the version of the list is lower
   * than the last version, the server was restored or replaced. Then removes the versions of all claims,
   * because they are not comparable.
   */
  #list(complete: ScopeState, objects: readonly KubernetesObject[], version: number): void {
    const { scope, version: before } = complete;
    const isRestored = version < before;
    complete.version = version;
    const listed = new Map(objects.map((object) => [object.uid, object]));
    for (const object of this.#ofResource(scope.resource)) {
      const after = listed.get(object.uid);
      if (after === undefined) {
        if (contains(scope, object)) this.#remove(object);
      } else if ((after.version < object.version && !isRestored) || isSameRecord(object, after)) {
        listed.delete(object.uid);
      } else this.claims.releaseLost(object, after);
    }
    if (isRestored) this.#forgetVersions();
    const first = before === 0 || isRestored ? 0 : before + 1;
    for (const object of listed.values()) {
      this.#put(object, { earliest: Math.min(first, object.version), latest: object.version });
    }
  }

  #forgetVersions(): void {
    this.claims.forgetVersions();
    for (const { resource, uid } of this.all()) this.#listener.objectChanged(resource, uid);
  }

  #apply(complete: ScopeState, message: Exclude<ObjectMessage, { readonly type: 'listed' }>): void {
    const version = message.type === 'changed' ? message.object.version : message.version;
    complete.version = Math.max(complete.version, version);
    const { resource } = complete.scope;
    const uid = message.type === 'changed' ? message.object.uid : message.uid;
    const before = this.#objects[resource].get(uid);
    // Two watch scopes can contain the same object. Ignore the older state if one of them is late.
    if (before !== undefined && version < before.version) return;
    if (message.type === 'deleted') {
      if (before !== undefined) this.#remove(before);
      return;
    }
    if (before !== undefined) this.claims.releaseLost(before, message.object);
    this.#put(message.object, { earliest: version, latest: version });
  }

  #put(object: KubernetesObject, time: ClaimTime): void {
    const objects: Map<string, KubernetesObject> = this.#objects[object.resource];
    const before = objects.get(object.uid);
    if (before === undefined && objects.size >= this.#maxObjects) {
      this.skipped++;
      return;
    }
    objects.set(object.uid, object);
    this.claims.claim(before, object, time);
    this.#notify(before, object);
  }

  #remove(object: KubernetesObject): void {
    this.#objects[object.resource].delete(object.uid);
    this.claims.releaseLost(object, undefined);
    this.#notify(object, undefined);
  }

  /** Notifies the listener of a changed object. `Claims` notifies the listener of changed addresses. */
  #notify(before: KubernetesObject | undefined, after: KubernetesObject | undefined): void {
    const object = after ?? before;
    if (object !== undefined) this.#listener.objectChanged(object.resource, object.uid);
    if (object?.resource === 'namespaces') {
      if (after === undefined) this.#namespaceLabels.delete(object.name);
      else this.#namespaceLabels.set(object.name, object.labels);
      if (!areEqual(before?.labels, after?.labels)) this.#listener.namespaceChanged(object.name);
    } else if (object?.resource === 'nodes') {
      const isAsBefore = areEqual(before?.labels, after?.labels) && areEqual(networksOf(before), networksOf(after));
      if (!isAsBefore || before?.undecided !== after?.undecided) this.#listener.resolutionOutdated();
    }
  }

  #ofResource(resource: ResourceName): Iterable<KubernetesObject> {
    return this.#objects[resource].values();
  }
}

const RESOURCES = ['pods', 'nodes', 'namespaces'] as const;

function contains({ resource, namespace, node }: WatchScope, object: KubernetesObject): boolean {
  if (resource !== object.resource) return false;
  if (object.resource !== 'pods') return true;
  return (namespace === null || namespace === object.namespace) && (node === null || node === object.nodeName);
}

/** Whether two records are equal. Equal records are not stored again after a list. */
function isSameRecord(a: KubernetesObject, b: KubernetesObject): boolean {
  return a.version === b.version && textOf(a) === textOf(b);
}

/** Returns the content of a record as text. JSON has no bigint, the type of an IPv6 address. */
function textOf(object: KubernetesObject): string {
  switch (object.resource) {
    case 'pods':
      return JSON.stringify({ ...object, addresses: object.addresses.map(addressKey) });
    case 'nodes': {
      const [internal, external] = [object.internal.map(addressKey), object.external.map(addressKey)];
      return JSON.stringify({ ...object, internal, external, podNetworks: object.podNetworks.map(formatPrefix) });
    }
    case 'namespaces':
      return JSON.stringify(object);
  }
}

function networksOf(object: KubernetesObject | undefined): readonly unknown[] | undefined {
  if (object?.resource !== 'nodes') return undefined;
  return object.podNetworks.flatMap(({ address, length }) => [address, length]);
}

function areEqual(a: readonly unknown[] | undefined, b: readonly unknown[] | undefined): boolean {
  return a === b || (a !== undefined && a.length === b?.length && a.every((value, index) => value === b[index]));
}
