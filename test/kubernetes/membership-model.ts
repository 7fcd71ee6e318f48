import type { LabelSelectorConfig } from '#contracts/policy/policy-document.js';
import type { Address, Selector } from '#contracts/policy/policy-model.js';
import type { KubernetesObject, ObjectMessage } from '#kubernetes/watch/objects.js';
import type { WatchScope } from '#kubernetes/watch/watch-scopes.js';

type Claim = {
  readonly object: KubernetesObject;
  readonly address: Address;
  readonly earliest: number;
  readonly latest: number;
};
type ClaimEvent =
  | ({ readonly type: 'claim' } & Claim)
  | { readonly type: 'end'; readonly uid: string; readonly address: Address }
  /** A message was applied: an address without an owner can now go to a claim that has not ended. */
  | { readonly type: 'settled'; readonly objects: Objects }
  /** After a restored backup, earlier versions mean nothing. `versions`: the present one of each object. */
  | { readonly type: 'restored'; readonly versions: ReadonlyMap<string, number> };

type Entry = { readonly scope: WatchScope; readonly message: ObjectMessage | 'ended' };
type Objects = ReadonlyMap<string, KubernetesObject>;

/**
 * A plain model of membership. It keeps all messages. On each question it computes the objects, the history
 * of claims and the owners again from the first message on.
 */
export class MembershipModel {
  readonly #entries = new Map<string, Entry[]>();
  selectors: readonly Selector[] = [];

  tell(integration: string, scope: WatchScope, message: ObjectMessage | 'ended'): void {
    this.#entries.set(integration, [...(this.#entries.get(integration) ?? []), { scope, message }]);
  }

  remove(integration: string): void {
    this.#entries.delete(integration);
  }

  /** Maps each address with an owner to the sorted keys of the selectors that select it, or `deny-only`. */
  members(): Map<Address, readonly string[]> {
    const members = new Map<Address, string[]>();
    const denyOnly = new Set<Address>();
    const uids = new Map<Address, string>();
    for (const [integration, entries] of this.#entries) {
      const { objects, events, complete } = replay(entries);
      const hasNamespaces = [...complete.values()].some(({ scope }) => scope.resource === 'namespaces');
      for (const [address, owner] of ownersOf(events, objects)) {
        const depends = this.selectors.some(
          ({ source }) =>
            source.integration === integration &&
            source.pod_selector?.namespace_selector !== undefined &&
            selects({ key: '', source: withoutNamespaces(source) }, owner, address, objects),
        );
        if (owner.uid !== (uids.get(address) ?? owner.uid)) denyOnly.add(address);
        uids.set(address, owner.uid);
        const isUnknown = hasNamespaces && depends && namespaceOf(owner, objects) === undefined;
        if (owner.undecided === true || isUnknown) denyOnly.add(address);
        const keys = this.selectors
          .filter(({ source }) => source.integration === integration)
          .filter((selector) => selects(selector, owner, address, objects))
          .map(({ key }) => key);
        members.set(address, [...(members.get(address) ?? []), ...keys].sort());
      }
    }
    for (const address of denyOnly) members.set(address, ['deny-only']);
    return members;
  }
}

function withoutNamespaces(source: Selector['source']): Selector['source'] {
  const { namespace_selector: _, ...pod } = source.pod_selector ?? {};
  return { ...source, pod_selector: pod };
}

function namespaceOf(pod: KubernetesObject, objects: Objects): KubernetesObject | undefined {
  const namespaces = [...objects.values()].filter(({ resource }) => resource === 'namespaces');
  return pod.resource === 'pods' ? namespaces.find(({ name }) => name === pod.namespace) : undefined;
}

function replay(entries: readonly Entry[]) {
  const objects = new Map<string, KubernetesObject>();
  const complete = new Map<string, { readonly scope: WatchScope; version: number }>();
  const events: ClaimEvent[] = [];
  const put = (object: KubernetesObject, earliest: number) => {
    for (const address of missing(claimsOf(object), claimsOf(objects.get(object.uid))))
      events.push({ type: 'claim', object, address, earliest, latest: object.version });
    objects.set(object.uid, object);
  };
  const end = (before: KubernetesObject | undefined, after: KubernetesObject | undefined) => {
    if (before === undefined) return;
    for (const address of missing(claimsOf(before), claimsOf(after)))
      events.push({ type: 'end', uid: before.uid, address });
  };
  const remove = (object: KubernetesObject) => {
    end(object, undefined);
    objects.delete(object.uid);
  };
  for (const { scope, message } of entries) {
    const name = JSON.stringify(scope);
    const state = complete.get(name) ?? { scope, version: 0 };
    if (message === 'ended') {
      complete.delete(name);
      const others = [...complete.values()];
      for (const object of [...objects.values()].filter((object) => contains(scope, object)))
        if (!others.some((other) => contains(other.scope, object))) remove(object);
    } else if (message.type === 'listed') {
      const isRestored = message.version < state.version;
      const uids = new Set(message.objects.map(({ uid }) => uid));
      for (const object of [...objects.values()]) if (contains(scope, object) && !uids.has(object.uid)) remove(object);
      const newer = message.objects.filter((object) => {
        const before = objects.get(object.uid);
        return isRestored || before === undefined || before.version <= object.version;
      });
      for (const object of newer) end(objects.get(object.uid), object);
      if (isRestored) {
        const versions = [...objects.values(), ...newer].map(({ uid, version }) => [uid, version] as const);
        events.push({ type: 'restored', versions: new Map(versions) });
      }
      const first = state.version === 0 || isRestored ? 0 : state.version + 1;
      for (const object of newer) put(object, Math.min(first, object.version));
      complete.set(name, { scope, version: message.version });
    } else if (complete.has(name)) {
      const { uid, version } = message.type === 'changed' ? message.object : message;
      state.version = Math.max(state.version, version);
      const before = objects.get(uid);
      if (before !== undefined && version < before.version) continue;
      if (message.type === 'changed') {
        end(before, message.object);
        put(message.object, version);
      } else if (before !== undefined) remove(before);
    }
    events.push({ type: 'settled', objects: new Map(objects) });
  }
  return { objects, events, complete };
}

/**
 * Returns the owner of each address: the object with the last claim to it. After that claim has ended, the
 * owner is a running object with an older claim, or an object whose claim is not older.
 */
function ownersOf(events: readonly ClaimEvent[], objects: Objects): Map<Address, KubernetesObject> {
  const addresses = new Map<Address, { owner: Claim | undefined; others: Claim[]; endedAt: number }>();
  for (const event of events) {
    if (event.type === 'restored') {
      const again = (claim: Claim) => ({ ...claim, earliest: 0, latest: event.versions.get(claim.object.uid) ?? 0 });
      for (const state of addresses.values()) {
        state.owner = state.owner && again(state.owner);
        state.others = state.others.map(again);
        state.endedAt = 0;
      }
      continue;
    }
    if (event.type === 'settled') {
      for (const state of addresses.values()) {
        const mayOwn = ({ latest, object }: Claim) =>
          latest >= state.endedAt || isRunning(event.objects.get(object.uid));
        state.owner ??= state.others.filter(mayOwn).reduce<Claim | undefined>(laterOf, undefined);
        state.others = state.others.filter((claim) => claim !== state.owner);
      }
      continue;
    }
    const state = addresses.get(event.address) ?? { owner: undefined, others: [], endedAt: 0 };
    addresses.set(event.address, state);
    if (event.type === 'end') {
      state.others = state.others.filter(({ object }) => object.uid !== event.uid);
      if (state.owner?.object.uid !== event.uid) continue;
      state.endedAt = Math.max(state.endedAt, state.owner.earliest);
      state.owner = undefined;
    } else if (state.owner !== undefined && isLater(event, state.owner)) {
      state.others.push(state.owner);
      state.owner = event;
    } else state.others.push(event);
  }
  const owners = new Map<Address, KubernetesObject>();
  for (const [address, { owner }] of addresses) {
    const object = owner === undefined ? undefined : objects.get(owner.object.uid);
    if (object !== undefined) owners.set(address, object);
  }
  return owners;
}

function laterOf(a: Claim | undefined, b: Claim): Claim {
  return a === undefined || isLater(b, a) ? b : a;
}

/** Returns whether an object runs, so that an older claim of it can decide again. */
export function isRunning(object: KubernetesObject | undefined): boolean {
  if (object?.resource !== 'pods') return object !== undefined;
  return object.phase === 'Running' && !object.deleting;
}

function isLater(a: Claim, b: Claim): boolean {
  if (a.earliest > b.latest) return true;
  if (a.latest < b.earliest) return false;
  if (a.object.started !== b.object.started) return a.object.started > b.object.started;
  if (a.latest !== b.latest) return a.latest > b.latest;
  return a.object.uid > b.object.uid;
}

/** Returns the addresses that an object claims, by the table "object → claims" of the contract. */
export function claimsOf(object: KubernetesObject | undefined): readonly Address[] {
  if (object === undefined || object.resource === 'namespaces') return [];
  if (object.resource === 'nodes') return [...object.internal, ...object.external];
  const hasCompleted = object.phase === 'Succeeded' || object.phase === 'Failed';
  const hasEnded = object.deleting && !object.running;
  return object.hostNetwork || hasCompleted || hasEnded ? [] : object.addresses;
}

function missing(of: readonly Address[], from: readonly Address[]): readonly Address[] {
  return [...new Set(of)].filter((address) => !from.includes(address));
}

function contains(scope: WatchScope, object: KubernetesObject): boolean {
  if (scope.resource !== object.resource) return false;
  return object.resource !== 'pods' || scope.namespace === null || scope.namespace === object.namespace;
}

function selects({ source }: Selector, owner: KubernetesObject, address: Address, objects: Objects): boolean {
  const { pod_selector: pod, node_selector: node } = source;
  if (owner.resource === 'nodes') {
    if (node === undefined || !matches(node, owner)) return false;
    const kinds = node.addresses ?? ['InternalIP'];
    const isInternal = kinds.includes('InternalIP') && owner.internal.includes(address);
    return isInternal || (kinds.includes('ExternalIP') && owner.external.includes(address));
  }
  if (owner.resource !== 'pods' || pod === undefined || !matches(pod, owner)) return false;
  if (pod.namespace !== undefined && pod.namespace !== owner.namespace) return false;
  if (pod.service_account !== undefined && pod.service_account !== owner.serviceAccount) return false;
  if (pod.namespace_selector === undefined) return true;
  const own = namespaceOf(owner, objects);
  return own !== undefined && matches(pod.namespace_selector, own);
}

function matches(selector: LabelSelectorConfig, { labels }: KubernetesObject): boolean {
  const map = new Map<string, string>();
  for (let at = 0; at < labels.length; at += 2) map.set(labels[at] as string, labels[at + 1] as string);
  const { match_labels: wanted = {}, match_expressions: expressions = [] } = selector;
  if (Object.entries(wanted).some(([key, value]) => map.get(key) !== value)) return false;
  return expressions.every(({ key, operator, values = [] }) => {
    const value = map.get(key);
    if (operator === 'Exists') return value !== undefined;
    if (operator === 'DoesNotExist') return value === undefined;
    const isIn = value !== undefined && values.includes(value);
    return operator === 'In' ? isIn : !isIn;
  });
}
