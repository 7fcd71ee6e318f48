import { type Observable, Subject } from 'rxjs';
import { AddressMap } from '#addresses/address-map.js';
import type { MembersChanged } from '#contracts/datapath/datapath.js';
import type { OwnerChange, OwnerChanges, OwnerName } from '#contracts/kubernetes/address-owner.js';
import type { MembersMessage, StoredObject } from '#contracts/kubernetes/kubernetes-source.js';
import type {
  ListedMembership,
  MemberList,
  MembershipChange,
  SelectorResolution,
  SharedAddress,
} from '#contracts/kubernetes/membership.js';
import type { Address } from '#contracts/policy/policy-model.js';
import type { MemberRecord } from '#policy/model/sources/member-record.js';
import { CompileDemand } from './compile-demand.js';
import { type MemberSink, MemberSync } from './member-sync.js';
import { ObjectWrites } from './object-writes.js';

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
  readonly #owners = new AddressMap<OwnerName>();
  readonly #ownersChanged = new Subject<OwnerChanges>();
  readonly #addressesShared = new Subject<readonly SharedAddress[]>();
  readonly #objectWrites: ObjectWrites;
  readonly #demand = new CompileDemand();
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
  readonly outdated: Observable<void> = this.#demand.outdated;

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
    this.#demand.received(scope);
    await this.#objectWrites.add(stored);
  }

  /** Writes all waiting Kubernetes objects to the store. Resolves after the attempt. */
  flushObjects(): Promise<void> {
    return this.#objectWrites.flush();
  }

  /**
   * Passes all members (addresses of pods and nodes) to a datapath that was opened. Until then, its BPF
   * programs use the members of an earlier process.
   */
  async datapathOpened(): Promise<void> {
    await this.#datapath?.replace();
  }

  /**
   * Must be called when a program was put in force. `uncompiled`: the number of addresses whose allow rules
   * the program lacks.
   */
  flipped(uncompiled: number): void {
    this.#demand.flipped(uncompiled);
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
   * Must be called when a policy was put in force. `resolution`: the selector resolution (which selectors are
   * resolved) with which the policy was compiled; null if the policy has no selectors.
   */
  activated(generation: number, resolution: SelectorResolution | null): void {
    if (generation !== this.#generation) this.#hasRoomForFormer = true;
    this.#generation = generation;
    this.#ports.record.policyChanged();
    this.#demand.activated(resolution);
  }

  ownerOf(address: Address): OwnerName | null {
    return this.#owners.get(address) ?? null;
  }

  /** Returns the owners of all addresses, in the form of a change that adds them. */
  owners(): OwnerChanges {
    const changes = Array.from(this.#owners, ([address, owner]) => ({ address, owner }));
    return { replaces: true, changes, sinceMs: 0 };
  }

  /** Returns the selector resolution (which selectors are resolved) with all members. */
  listed(): ListedMembership {
    return { scope: this.#demand.resolution, list: this.#ports.record.list() };
  }

  /** Returns the selector resolution with the address `source` as the only member. */
  listedFor(address: Address, scope = this.#demand.resolution): ListedMembership {
    const set = this.#ports.record.setOf(address);
    const [addresses, sets] = set === undefined ? [[], []] : [[address], [set.number]];
    const list = { added: set === undefined ? [] : [set], dropped: [] };
    return { scope, list: { ...list, addresses, sets: Uint32Array.from(sets) } };
  }

  /**
   * The number of members in the datapath, and the number of addresses that are deny-only
   * (`DENY_ONLY_MEMBER`) because a map is full; null before the first change.
   */
  get counts(): Pick<MembersChanged, 'members' | 'refused'> | null {
    return this.#counts;
  }

  async close(): Promise<void> {
    this.#demand.close();
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
    this.#demand.membersChanged(uncompiled);
  }
}

function merged(changes: readonly MembershipChange[]): MembershipChange {
  const [only] = changes;
  if (only !== undefined && changes.length === 1) return only;
  return {
    added: changes.flatMap(({ added }) => added),
    addresses: changes.flatMap(({ addresses }) => addresses),
    sets: Uint32Array.from(changes.flatMap(({ sets }) => [...sets])),
    dropped: changes.flatMap(({ dropped }) => dropped),
  };
}
