import type { KubernetesObject } from './objects.js';

/**
 * The claim of an object to an address. The object claimed the address at a resource version from `earliest`
 * to `latest`. An event gives the exact version; a list gives bounds.
 */
type Claim = { object: KubernetesObject; earliest: number; latest: number };

/** The versions of at least this number of ended claims are kept, and of at most twice this number. */
const KEPT_ENDED = 8192;

/** The bounds of the resource version at which an object claimed its new addresses. */
export type ClaimTime = { readonly earliest: number; readonly latest: number };

/** A claim in force: the address, and the bounds of the version of the claim. */
export type OwnedAddress = readonly [address: number, earliest: number, latest: number];

/**
 * Decides which object owns an address in one integration: the last object that claimed it. A claim ends the
 * older claim to the same address. The older claim does not come back when the owner goes.
 */
export class Claims {
  readonly #owners = new Map<number, Claim>();
  /**
   * For addresses without an owner: the version at which their last owner had claimed them. When the map is
   * full, it becomes `#endedBefore`. To delete the oldest entry of a Map one at a time is slow in V8.
   */
  #ended = new Map<number, number>();
  #endedBefore = new Map<number, number>();
  readonly #changed: (address: number, displaced?: KubernetesObject) => void;

  /**
   * Calls `changed` for each address whose owner becomes another object, or whose owner object has new
   * content. `displaced`: the object whose claim a later claim has ended.
   */
  constructor(changed: (address: number, displaced?: KubernetesObject) => void) {
    this.#changed = changed;
  }

  ownerOf(address: number): KubernetesObject | undefined {
    return this.#owners.get(address)?.object;
  }

  addresses(): IterableIterator<number> {
    return this.#owners.keys();
  }

  get size(): number {
    return this.#owners.size;
  }

  /**
   * Ends the claims of an object to addresses that `after` does not claim any more, and updates the others.
   * `after` is undefined if the object is deleted.
   */
  releaseLost(before: KubernetesObject, after: KubernetesObject | undefined): void {
    const kept = after === undefined ? [] : claimedAddresses(after);
    for (const address of claimedAddresses(before)) {
      const claim = this.#owners.get(address);
      if (claim?.object.uid !== before.uid) continue;
      if (after !== undefined && kept.includes(address)) claim.object = after;
      else this.#end(address, claim);
      this.#changed(address);
    }
  }

  /** Claims the addresses that `object` has, and that `before` had not. */
  claim(before: KubernetesObject | undefined, object: KubernetesObject, time: ClaimTime): void {
    const old = before === undefined ? [] : claimedAddresses(before);
    for (const address of claimedAddresses(object)) {
      if (old.includes(address)) continue;
      const claim = { object, earliest: time.earliest, latest: time.latest };
      const owner = this.#owners.get(address);
      if (owner !== undefined ? !isLater(claim, owner) : claim.latest < this.#endedAt(address)) continue;
      this.#owners.set(address, claim);
      this.#changed(address, owner?.object);
    }
  }

  /** Returns the claims of an object that are in force. */
  of(object: KubernetesObject): readonly OwnedAddress[] {
    return claimedAddresses(object).flatMap((address): OwnedAddress[] => {
      const claim = this.#owners.get(address);
      return claim?.object.uid === object.uid ? [[address, claim.earliest, claim.latest]] : [];
    });
  }

  /** Makes the claims of an object as `of` has returned them in an earlier process. */
  restore(object: KubernetesObject, owned: readonly OwnedAddress[]): void {
    for (const [address, earliest, latest] of owned) {
      this.#owners.set(address, { object, earliest, latest });
      this.#changed(address);
    }
  }

  /**
   * Forgets the versions of all claims, because the versions of another server follow. Until the next events,
   * the start times of objects decide.
   */
  forgetVersions(): void {
    this.#ended.clear();
    this.#endedBefore.clear();
    for (const claim of this.#owners.values()) {
      claim.earliest = 0;
      claim.latest = claim.object.version;
    }
  }

  #endedAt(address: number): number {
    return this.#ended.get(address) ?? this.#endedBefore.get(address) ?? 0;
  }

  #end(address: number, claim: Claim): void {
    this.#owners.delete(address);
    this.#ended.set(address, claim.earliest);
    if (this.#ended.size < KEPT_ENDED) return;
    this.#endedBefore = this.#ended;
    this.#ended = new Map();
  }
}

/** Whether claim `a` is later than claim `b`. If the bounds of the versions overlap, the later start wins. */
function isLater(a: Claim, b: Claim): boolean {
  if (a.earliest > b.latest) return true;
  if (a.latest < b.earliest) return false;
  if (a.object.started !== b.object.started) return a.object.started > b.object.started;
  return a.latest !== b.latest ? a.latest > b.latest : a.object.uid > b.object.uid;
}

const NONE: readonly number[] = [];

/** Returns the addresses that an object claims (section D38a of the contract). */
function claimedAddresses(object: KubernetesObject): readonly number[] {
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
