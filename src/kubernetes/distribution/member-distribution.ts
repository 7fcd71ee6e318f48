import { type Observable, Subject } from 'rxjs';
import { backoffMs } from '#contracts/backoff.js';
import type { MembersChanged } from '#contracts/datapath/datapath.js';
import type { OwnerChange, OwnerChanges, OwnerName } from '#contracts/kubernetes/address-owner.js';
import type { MembersMessage, StoredObject } from '#contracts/kubernetes/kubernetes-source.js';
import {
  type ListedMembership,
  type MemberList,
  type MembershipChange,
  NO_SELECTORS,
  type SelectorResolution,
  type SharedAddress,
} from '#contracts/kubernetes/membership.js';
import type { MemberRecord } from '#policy/model/sources/member-record.js';
import { isSameResolution } from '#policy/model/sources/same-sources.js';
import { type MemberSink, MemberSync } from './member-sync.js';
import { ObjectWrites } from './object-writes.js';

/** The time in milliseconds between a change and its compilation, which then includes further changes. */
const COALESCE_MS = 20;
/**
 * The minimum time in milliseconds between two compilations for changed members (addresses that Kubernetes
 * objects own), so that they do not delay other writes and requests.
 */
const BETWEEN_MS = 200;
const MAX_WAIT_MS = 30_000;
const MAX_RESOLUTION_WAIT_MS = 2_000;
/**
 * The time in milliseconds by which the time of an event can precede its packet: one tick of the coarse clock
 * of the kernel.
 */
const EVENT_CLOCK_MS = 10;

/**
 * The parts of the node that get the members (addresses that Kubernetes objects own), and the store of these
 * objects. `trouble` reports a failure.
 */
export type DistributionPorts = {
  readonly record: MemberRecord;
  readonly datapath: MemberSink<MembersChanged> | null;
  readonly dns: MemberSink<unknown> | null;
  readonly servicePlane: MemberSink<unknown> | null;
  readonly store: (objects: readonly StoredObject[]) => Promise<void>;
  readonly trouble: (message: string, failure: unknown) => void;
};

/**
 * Passes the members (addresses that Kubernetes objects own) from the Kubernetes thread to all parts that
 * decide by them: datapath, DNS proxy and service plane. A removal is in force in all parts before any part
 * applies a later addition. Also stores the objects, keeps the names of the owners, and requests a
 * compilation if the policy in force lacks rules for members.
 */
export class MemberDistribution {
  readonly #ports: DistributionPorts;
  readonly #datapath: MemberSync<MembersChanged> | null;
  /** The DNS proxy and the service plane. */
  readonly #userSpaceParts: readonly Pick<MemberSync<unknown>, 'change' | 'replace' | 'close'>[];
  readonly #owners = new Map<number, OwnerName>();
  readonly #ownersChanged = new Subject<OwnerChanges>();
  readonly #outdated = new Subject<void>();
  readonly #addressesShared = new Subject<readonly SharedAddress[]>();
  readonly #objectWrites: ObjectWrites;
  #timer: NodeJS.Timeout | undefined;
  #due = 0;
  /** The resolved selectors and the networks of pods in the last message of the Kubernetes thread. */
  #resolution: SelectorResolution = NO_SELECTORS;
  /** The selector resolution with which the policy in force was compiled; null if it has no selectors. */
  #resolutionInForce: SelectorResolution | null = null;
  /**
   * Whether `#resolution` differs from `#resolutionInForce`. This is stored, because the comparison of
   * thousands of selectors is slow.
   */
  #isResolutionOutdated = false;
  /** The number of addresses that match no allow rule by a selector until the policy is compiled again. */
  #uncompiled = 0;
  /** The number of successive compilations after which the policy was still outdated. */
  #compilations = 0;
  #flippedAt = Number.NEGATIVE_INFINITY;
  #counts: Pick<MembersChanged, 'members' | 'refused'> | null = null;
  #generation = 0;
  #hasRoomForFormer = true;

  constructor(ports: DistributionPorts) {
    this.#ports = ports;
    const { datapath, dns, servicePlane, record, store, trouble } = ports;
    this.#objectWrites = new ObjectWrites(store, trouble);
    const syncOf = <R>(sink: MemberSink<R> | null, noted: (result: R) => void = () => {}) =>
      sink === null ? null : new MemberSync(sink, record, { trouble, noted });
    this.#datapath = syncOf(datapath, (changed) => this.#noteChanged(changed));
    this.#userSpaceParts = [syncOf(dns), syncOf(servicePlane)].filter((of) => of !== null);
  }

  /** Emits when the policy in force must be compiled again for the present addresses of its selectors. */
  get outdated(): Observable<void> {
    return this.#outdated;
  }

  /** Emits each address that becomes shared: different objects own it in two or more integrations. */
  readonly addressesShared: Observable<readonly SharedAddress[]> = this.#addressesShared;

  /**
   * Emits the changed owners after each message of the Kubernetes thread. Never emits without integrations.
   */
  readonly ownersChanged: Observable<OwnerChanges> = this.#ownersChanged;

  /**
   * Applies a message of the Kubernetes thread. Resolves when all parts use the new members. The objects are
   * stored later, see `ObjectWrites`.
   */
  async apply({ replaces, changes, owners, shared, scope, stored }: MembersMessage): Promise<void> {
    // Set the names of owners first, so that they are known when the first packet of a new member matches a
    // rule.
    this.#applyOwners(replaces !== null, owners);
    if (shared.length > 0) this.#addressesShared.next(shared);
    if (replaces !== null) await this.#replace(replaces);
    await this.#change(changes);
    if (scope !== undefined) {
      this.#resolution = scope;
      this.#compareResolutions();
    }
    this.#demand();
    await this.#objectWrites.add(stored);
  }

  /** Resolves after an attempt to write all objects to the store. */
  flushObjects(): Promise<void> {
    return this.#objectWrites.flush();
  }

  /**
   * Passes all members to a datapath that was opened. Until then, its BPF programs use the members of an
   * earlier process.
   */
  async datapathOpened(): Promise<void> {
    await this.#datapath?.replace();
  }

  /**
   * Must be called when a program was put in force. `uncompiled`: the number of addresses whose allow rules
   * the program lacks.
   */
  flipped(uncompiled: number): void {
    this.#uncompiled = uncompiled;
    this.#flippedAt = performance.now();
    if (uncompiled === 0) this.#compilations = 0;
    this.#demand();
  }

  /**
   * Must be called when the datapath refused a compiled policy because it is too large. Until another
   * generation is in force, compilations then omit the rules for sets of selectors that no address has
   * (former members), because they would fail for the same reason again.
   */
  capacityExceeded(): void {
    this.#hasRoomForFormer = false;
  }

  get hasRoomForFormer(): boolean {
    return this.#hasRoomForFormer;
  }

  /**
   * Must be called when a policy was put in force. `resolution`: the selector resolution with which the
   * policy was compiled; null if the policy has no selectors.
   */
  activated(generation: number, resolution: SelectorResolution | null): void {
    if (generation !== this.#generation) this.#hasRoomForFormer = true;
    this.#generation = generation;
    this.#resolutionInForce = resolution;
    this.#compareResolutions();
    this.#ports.record.policyChanged();
    this.#demand();
  }

  ownerOf(address: number): OwnerName | null {
    return this.#owners.get(address) ?? null;
  }

  /** Returns the owners of all addresses, in the form of a change that adds them. */
  owners(): OwnerChanges {
    const changes = Array.from(this.#owners, ([address, owner]) => ({ address, owner }));
    return { replaces: true, changes, sinceMs: 0 };
  }

  /** Returns the selector resolution with all members. */
  listed(): ListedMembership {
    return { scope: this.#resolution, list: this.#ports.record.list() };
  }

  /** Returns the selector resolution with the address `source` as the only member. */
  listedFor(address: number, scope = this.#resolution): ListedMembership {
    const set = this.#ports.record.setOf(address);
    const [addresses, sets] = set === undefined ? [[], []] : [[address], [set.number]];
    const list = { added: set === undefined ? [] : [set], dropped: [] };
    return { scope, list: { ...list, addresses: Uint32Array.from(addresses), sets: Uint32Array.from(sets) } };
  }

  /**
   * The number of members in the datapath, and the number of addresses that are deny-only
   * (`DENY_ONLY_MEMBER`) because a map is full; null before the first change.
   */
  get counts(): Pick<MembersChanged, 'members' | 'refused'> | null {
    return this.#counts;
  }

  async close(): Promise<void> {
    clearTimeout(this.#timer);
    for (const sync of [this.#datapath, ...this.#userSpaceParts]) sync?.close();
    await this.flushObjects();
  }

  #applyOwners(replaces: boolean, changes: readonly OwnerChange[]): void {
    const isChange = changes.length > 0 || (replaces && this.#owners.size > 0);
    if (!isChange) return;
    if (replaces) this.#owners.clear();
    for (const { address, owner } of changes) {
      if (owner === null) this.#owners.delete(address);
      else this.#owners.set(address, owner);
    }
    this.#ownersChanged.next({ replaces, changes, sinceMs: Date.now() - EVENT_CLOCK_MS });
  }

  async #replace(list: MemberList): Promise<void> {
    this.#ports.record.replace(list);
    await Promise.all([this.#datapath?.replace(), ...this.#userSpaceParts.map((sync) => sync.replace())]);
  }

  /**
   * Passes changes to the parts. The datapath gets all changes as one, because it applies the addresses of a
   * change in order and then walks over its flows once. The other parts get the removals before the datapath,
   * and the additions after it.
   */
  async #change(changes: readonly MembershipChange[]): Promise<void> {
    const last = changes.at(-1);
    if (last === undefined) return;
    for (const change of changes.slice(0, -1)) await this.#changeUserSpaceParts(change);
    this.#ports.record.change(last);
    await this.#datapath?.change(merged(changes));
    await Promise.all(this.#userSpaceParts.map((sync) => sync.change(last)));
  }

  async #changeUserSpaceParts(change: MembershipChange): Promise<void> {
    this.#ports.record.change(change);
    await Promise.all(this.#userSpaceParts.map((sync) => sync.change(change)));
  }

  #noteChanged({ members, refused, uncompiled }: MembersChanged): void {
    this.#counts = { members, refused };
    this.#uncompiled += uncompiled;
    this.#demand();
  }

  /**
   * Schedules a compilation if the policy is outdated. If a compilation is scheduled already, the earlier of
   * the two times applies.
   */
  #demand(): void {
    if (!this.#isOutdated()) return;
    const due = performance.now() + this.#waitMs();
    if (this.#timer !== undefined && this.#due <= due) return;
    clearTimeout(this.#timer);
    this.#due = due;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (!this.#isOutdated()) return;
      this.#compilations++;
      this.#outdated.next();
    }, due - performance.now());
    this.#timer.unref();
  }

  /**
   * Returns the time in milliseconds to wait before the next compilation. The time grows with each
   * compilation after which the policy is still outdated, up to 30 s. If the resolution has changed, it grows
   * only up to 2 s, because deny rules for new networks are not in force until the compilation.
   */
  #waitMs(): number {
    const pauseMs = Math.max(COALESCE_MS, this.#flippedAt + BETWEEN_MS - performance.now());
    if (this.#compilations === 0) return pauseMs;
    const mostMs = this.#isResolutionOutdated ? MAX_RESOLUTION_WAIT_MS : MAX_WAIT_MS;
    return Math.max(pauseMs, backoffMs(this.#compilations, BETWEEN_MS, mostMs));
  }

  #compareResolutions(): void {
    this.#isResolutionOutdated =
      this.#resolutionInForce !== null && !isSameResolution(this.#resolutionInForce, this.#resolution);
  }

  #isOutdated(): boolean {
    return this.#isResolutionOutdated || (this.#resolutionInForce !== null && this.#uncompiled > 0);
  }
}

function merged(changes: readonly MembershipChange[]): MembershipChange {
  const [only] = changes;
  if (only !== undefined && changes.length === 1) return only;
  return {
    added: changes.flatMap(({ added }) => added),
    addresses: Uint32Array.from(changes.flatMap(({ addresses }) => [...addresses])),
    sets: Uint32Array.from(changes.flatMap(({ sets }) => [...sets])),
    dropped: changes.flatMap(({ dropped }) => dropped),
  };
}
