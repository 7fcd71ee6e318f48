import { type Observable, Subject } from 'rxjs';
import type { OwnerChange, OwnerChanges, OwnerName } from '#contracts/address-owner.js';
import { backoffMs } from '#contracts/backoff.js';
import type { MembersChanged } from '#contracts/datapath.js';
import type { MembersMessage, StoredObject } from '#contracts/kubernetes-source.js';
import {
  type ListedMembership,
  type MemberList,
  type MembershipChange,
  NO_SELECTORS,
  type SelectorResolution,
  type SharedAddress,
} from '#contracts/membership.js';
import type { MemberRecord } from '#policy/model/sources/member-record.js';
import { isSameResolution } from '#policy/model/sources/same-sources.js';
import { type MemberSink, MemberSync } from './member-sync.js';
import { ObjectWrites } from './object-writes.js';

/** A compilation waits for this time after a change, so that it includes further changes. */
const COALESCE_MS = 20;
/** The least time between two compilations for members, so that other writes and requests go on. */
const BETWEEN_MS = 200;
const MAX_WAIT_MS = 30_000;
const MAX_RESOLUTION_WAIT_MS = 2_000;
/** The time of an event can be this much before the packet: a tick of the coarse clock of the kernel. */
const EVENT_CLOCK_MS = 10;

/** The parts that get the members, and the store of their objects. `trouble` reports a failure. */
export type DistributionPorts = {
  readonly record: MemberRecord;
  readonly datapath: MemberSink<MembersChanged> | null;
  readonly dns: MemberSink<unknown> | null;
  readonly servicePlane: MemberSink<unknown> | null;
  readonly store: (objects: readonly StoredObject[]) => Promise<void>;
  readonly trouble: (message: string, failure: unknown) => void;
};

/**
 * Passes the members of the Kubernetes thread to all parts that decide by them: datapath, DNS proxy and
 * service plane. A removal is in force in all parts before a later addition is in force in one part. Stores
 * the objects, keeps the names of the owners, and demands a compilation if the program in force lacks
 * members.
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
  /** The selector resolution of the last message. */
  #resolution: SelectorResolution = NO_SELECTORS;
  /** The resolution with which the policy in force was compiled; null if that policy has no selectors. */
  #resolutionInForce: SelectorResolution | null = null;
  /** Whether the two resolutions differ. Kept, because a resolution can have thousands of selectors. */
  #isResolutionOutdated = false;
  /** The number of addresses that are closed until a compilation. */
  #uncompiled = 0;
  /** The number of compilations after which the policy is still outdated. */
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

  /** Emits when the policy in force must be compiled again for its members. */
  get outdated(): Observable<void> {
    return this.#outdated;
  }

  /** Emits addresses that different objects own in two or more integrations from now on. */
  readonly addressesShared: Observable<readonly SharedAddress[]> = this.#addressesShared;

  /** Emits the owners that each message of the Kubernetes thread changes; nothing without integrations. */
  readonly ownersChanged: Observable<OwnerChanges> = this.#ownersChanged;

  /**
   * Applies a message of the Kubernetes thread. Resolves when all parts decide by it. The store gets its
   * objects later, see `ObjectWrites`.
   */
  async apply({ replaces, changes, owners, shared, scope, stored }: MembersMessage): Promise<void> {
    // The names are set first, so that they are known when the first packet matches a rule by a new member.
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

  /** Passes all members to a datapath that was opened. Its BPF programs keep former members until then. */
  async datapathOpened(): Promise<void> {
    await this.#datapath?.replace();
  }

  /** A program was put in force. `uncompiled`: the number of addresses for which it has no rules. */
  flipped(uncompiled: number): void {
    this.#uncompiled = uncompiled;
    this.#flippedAt = performance.now();
    if (uncompiled === 0) this.#compilations = 0;
    this.#demand();
  }

  /**
   * The datapath refused a program that is too large. Until another generation is in force, compilations must
   * leave out former members: with them, each further one would fail for the same reason.
   */
  capacityExceeded(): void {
    this.#hasRoomForFormer = false;
  }

  get hasRoomForFormer(): boolean {
    return this.#hasRoomForFormer;
  }

  /**
   * A policy is in force. `resolution`: the selector resolution with which it was compiled; null if the
   * policy has no selectors.
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

  /** Returns all owners, as the change from no owners. */
  owners(): OwnerChanges {
    const changes = Array.from(this.#owners, ([address, owner]) => ({ address, owner }));
    return { replaces: true, changes, sinceMs: 0 };
  }

  /** Returns the membership with all members. */
  listed(): ListedMembership {
    return { scope: this.#resolution, list: this.#ports.record.list() };
  }

  /** Returns the membership with the set of one address as its only member. */
  listedFor(address: number, scope = this.#resolution): ListedMembership {
    const set = this.#ports.record.setOf(address);
    const [addresses, sets] = set === undefined ? [[], []] : [[address], [set.number]];
    const list = { added: set === undefined ? [] : [set], dropped: [] };
    return { scope, list: { ...list, addresses: Uint32Array.from(addresses), sets: Uint32Array.from(sets) } };
  }

  /**
   * The number of addresses in the datapath, and of those that are closed because a table is full; null
   * before the first change.
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
   * Passes changes to the parts. The datapath stores the addresses of a change in their order. So it gets all
   * changes as one, with one walk over its flows. The other parts get the removals before it, and the
   * additions after it.
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

  /** Demands a compilation if one is due. An earlier time replaces a later one. */
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
   * The wait before the next compilation. After compilations that did not help it grows: for closed addresses
   * to 30 s. A changed resolution waits 2 s at most: deny rules of new networks are not in force meanwhile.
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
