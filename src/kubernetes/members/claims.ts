import { AddressMap, AddressSet } from '#addresses/address-map.js';
import type { Address } from '#contracts/policy/policy-model.js';
import type { KubernetesObject } from '#kubernetes/watch/objects.js';

/**
 * The claim of an object to an address. The object claimed the address at a resource version from `earliest`
 * to `latest`: an event of a watch gives the exact version, a list only these bounds.
 */
type Claim = { object: KubernetesObject; earliest: number; latest: number };

/**
 * The number of ended claims (of objects to addresses) whose resource versions are kept: at least this, at
 * most twice this.
 */
const KEPT_ENDED = 8192;

/** A number that is lower than every Kubernetes resource version of a server. */
const BEFORE_ALL = -1;

/** The bounds of the resource version at which an object claimed its new addresses. */
export type ClaimTime = { readonly earliest: number; readonly latest: number };

/** An address that an object owns, and the bounds of the resource version at which the object claimed it. */
export type OwnedAddress = readonly [address: Address, earliest: number, latest: number];

/**
 * Decides which object owns an address in one integration (Kubernetes API server): the object that claimed
 * the address last. When the owner ends its claim, an older claim becomes valid again only if its object
 * still runs: an ended object keeps its address in the API for some time. Call `settle` after each message.
 */
export class Claims {
  readonly #owners = new AddressMap<Claim>();
  /** For each address, the claims of Kubernetes objects that do not own it. */
  readonly #others = new AddressMap<Claim[]>();
  /**
   * Addresses that have lost their owner since the last call of `settle`, and that other objects may claim.
   */
  readonly #vacant = new AddressSet();
  /**
   * For addresses without an owner (Kubernetes object): the resource version at which the last owner claimed
   * the address. A full map becomes `#endedBefore`, because removing single oldest entries of a Map is slow
   * in V8.
   */
  #ended = new AddressMap<number>();
  #endedBefore = new AddressMap<number>();
  readonly #changed: (address: Address, object?: KubernetesObject) => void;
  readonly #mayClaim: (object: KubernetesObject, address: Address) => boolean;

  /**
   * Calls `changed` for each address whose owner changes to another object, or whose owner has new content.
   * `object`: the object that lost the address to a later claim, or that owns it again. A claim for which
   * `mayClaim` returns false has no effect.
   */
  constructor(
    changed: (address: Address, object?: KubernetesObject) => void,
    mayClaim: (object: KubernetesObject, address: Address) => boolean,
  ) {
    this.#changed = changed;
    this.#mayClaim = mayClaim;
  }

  ownerOf(address: Address): KubernetesObject | undefined {
    return this.#owners.get(address)?.object;
  }

  addresses(): Iterable<Address> {
    return this.#owners.keys();
  }

  get size(): number {
    return this.#owners.size;
  }

  /**
   * Ends the claims of an object to addresses that `after` no longer claims, and updates its other claims.
   * `after` is undefined if the object was deleted.
   */
  releaseLost(before: KubernetesObject, after: KubernetesObject | undefined): void {
    const kept = after === undefined ? [] : claimedAddresses(after);
    for (const address of claimedAddresses(before)) {
      const remaining = after !== undefined && kept.includes(address) ? after : undefined;
      const claim = this.#owners.get(address);
      if (claim?.object.uid !== before.uid) {
        this.#updateOther(address, before.uid, remaining);
        continue;
      }
      if (remaining === undefined) this.#end(address, claim);
      else claim.object = remaining;
      this.#changed(address);
    }
  }

  /** Makes a claim for each address that `object` has and that `before` did not have. */
  claim(before: KubernetesObject | undefined, object: KubernetesObject, time: ClaimTime): void {
    const old = before === undefined ? [] : claimedAddresses(before);
    for (const address of claimedAddresses(object)) {
      if (old.includes(address) || !this.#mayClaim(object, address)) continue;
      const claim = { object, earliest: time.earliest, latest: time.latest };
      const owner = this.#owners.get(address);
      const isFirst = owner === undefined && !this.#others.has(address) && claim.latest >= this.#endedAt(address);
      if (!isFirst && (owner === undefined || !isLater(claim, owner))) {
        this.#addOther(address, claim);
        continue;
      }
      if (owner !== undefined) this.#addOther(address, owner);
      this.#owners.set(address, claim);
      this.#changed(address, owner?.object);
    }
  }

  /** Assigns each address that has lost its owner to the object with the latest valid claim. */
  settle(): void {
    for (const address of this.#vacant) {
      if (this.#owners.has(address)) continue;
      const endedAt = this.#endedAt(address);
      let last: Claim | undefined;
      for (const claim of this.#others.get(address) ?? []) {
        const mayOwn = claim.latest >= endedAt || isRunning(claim.object);
        if (mayOwn && (last === undefined || isLater(claim, last))) last = claim;
      }
      if (last === undefined) continue;
      this.#updateOther(address, last.object.uid, undefined);
      this.#owners.set(address, last);
      this.#changed(address, last.object);
    }
    this.#vacant.clear();
  }

  /** Returns the addresses that the object owns, with the bounds of the versions of its claims. */
  of(object: KubernetesObject): readonly OwnedAddress[] {
    return claimedAddresses(object).flatMap((address): OwnedAddress[] => {
      const claim = this.#owners.get(address);
      return claim?.object.uid === object.uid ? [[address, claim.earliest, claim.latest]] : [];
    });
  }

  /**
   * Restores the claims of an object that `of` returned in an earlier process. Claims of the object to other
   * addresses get a version that is older than every restored claim.
   */
  restore(object: KubernetesObject, owned: readonly OwnedAddress[]): void {
    for (const [address, earliest, latest] of owned) {
      if (!this.#mayClaim(object, address)) continue;
      this.#owners.set(address, { object, earliest, latest });
      this.#changed(address);
    }
    for (const address of claimedAddresses(object)) {
      if (this.#owners.get(address)?.object !== object && this.#mayClaim(object, address))
        this.#addOther(address, { object, earliest: BEFORE_ALL, latest: BEFORE_ALL });
    }
  }

  /**
   * Removes the versions of all claims, before objects of a server whose versions are not comparable are
   * added. Until the next events, the start times of the objects decide which claim is later.
   */
  forgetVersions(): void {
    this.#ended.clear();
    this.#endedBefore.clear();
    for (const claim of [...this.#owners.values(), ...[...this.#others.values()].flat()]) {
      claim.earliest = 0;
      claim.latest = claim.object.version;
    }
  }

  #endedAt(address: Address): number {
    return this.#ended.get(address) ?? this.#endedBefore.get(address) ?? 0;
  }

  #end(address: Address, claim: Claim): void {
    this.#owners.delete(address);
    this.#vacant.add(address);
    this.#ended.set(address, Math.max(claim.earliest, this.#endedAt(address)));
    if (this.#ended.size < KEPT_ENDED) return;
    this.#endedBefore = this.#ended;
    this.#ended = new AddressMap();
  }

  #addOther(address: Address, claim: Claim): void {
    const others = this.#others.get(address);
    if (others === undefined) this.#others.set(address, [claim]);
    else others.push(claim);
    this.#vacant.add(address);
  }

  /**
   * Updates the claim of an object that does not own the address. `after`: the new content of the object;
   * undefined if the claim has ended.
   */
  #updateOther(address: Address, uid: string, after: KubernetesObject | undefined): void {
    const others = this.#others.get(address) ?? [];
    const at = others.findIndex(({ object }) => object.uid === uid);
    const claim = others[at];
    if (claim === undefined) return;
    this.#vacant.add(address);
    if (after !== undefined) claim.object = after;
    else if (others.length === 1) this.#others.delete(address);
    else others.splice(at, 1);
  }
}

/**
 * Whether claim `a` is later than claim `b`. If the bounds of the versions overlap, the object that started
 * later has the later claim.
 */
function isLater(a: Claim, b: Claim): boolean {
  if (a.earliest > b.latest) return true;
  if (a.latest < b.earliest) return false;
  if (a.object.started !== b.object.started) return a.object.started > b.object.started;
  return a.latest !== b.latest ? a.latest > b.latest : a.object.uid > b.object.uid;
}

function isRunning(object: KubernetesObject): boolean {
  return object.resource !== 'pods' || (object.phase === 'Running' && !object.deleting);
}

const NONE: readonly Address[] = [];

/** Returns the addresses that an object claims (section D38a of the contract). */
export function claimedAddresses(object: KubernetesObject): readonly Address[] {
  switch (object.resource) {
    case 'pods': {
      if (object.hostNetwork || object.phase === 'Succeeded' || object.phase === 'Failed') return NONE;
      return object.deleting && !object.running ? NONE : object.addresses;
    }
    case 'nodes':
      return object.external.length === 0 ? object.internal : [...new Set([...object.internal, ...object.external])];
    case 'namespaces':
      return NONE;
  }
}
