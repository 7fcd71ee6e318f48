/*
 * The folder `upgrade` replaces a datapath by another one. It moves entries of the old maps in three ways:
 * - share: the new datapath uses the same map.
 * - copy: write the entries of a map unchanged into another map with the same layout.
 * - migrate: convert an entry of the old map to the layout of the new map, and add it to the new map. If the
 *   new map already has the same flow, add the counts of both.
 * BPF programs use the old maps meanwhile. The delta is what they change in a flow or in hits after these
 * were read; it is migrated afterwards.
 *
 * Files: `successor.ts` decides which maps are shared, and loads the new datapath. `predecessors.ts` lets its
 * programs call those of the earlier datapath. `state-migration.ts` migrates flows, fragments and counters,
 * and `hits-migration.ts` migrates hits. `pinned-flows.ts` reads flows of each layout version.
 * `struct-conversion.ts` converts layouts. `flow-migration.ts` calls the BPF program that adds a flow to the
 * new flow table.
 */

import type { Enforced } from '#contracts/datapath/datapath.js';
import type { KeptBase } from '#contracts/datapath/unconfirmed.js';
import type { Family } from '#contracts/policy/policy-model.js';
import { mapId, mapShape } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject, MapName } from '#dataplane/loader/bpf-object.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import { type Capacity, capacityFor, type Need } from '#dataplane/object/capacity.js';
import {
  familyObjectsOf,
  IPV6_MAPS,
  type LoadedObject,
  loadObject,
  mapsOf,
  objectsOf,
  SHARED_BY_LOADS,
  startSweep,
} from '#dataplane/object/loaded-object.js';
import { type Pinned, type PinnedMaps, pinMaps, pinnedOf } from '#dataplane/object/map-set.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { type HitsMap, HitsMigration } from './hits-migration.js';
import { clearPredecessors } from './predecessors.js';
import { StateMigration } from './state-migration.js';
import { type FixedOptions, type Inheritance, loadHandover, prepareSuccessor, type Successor } from './successor.js';

/** Attaches `Upgrade.programs` to every hook. Throws if a hook has another program afterwards. */
export type SwitchHooks = () => void;

/**
 * Replaces one datapath by another, while every packet is still classified. There are three cases:
 * - If the new datapath uses the maps in force, each hook is switched to the new BPF programs.
 * - If a policy does not fit into the maps, Weir copies these maps into larger maps, and shares all other
 *   maps. The old and the new programs then classify in the same way while the hooks are switched.
 * - If flows must be migrated, handover programs (handover.h) are attached to the hooks first. They hand
 *   every packet to the old programs, until one store puts the new policy in force on all hooks at the same
 *   time. Afterwards they hand only packets that they would drop to the old programs, until all flows are
 *   migrated.
 *
 * If this process ends at any step, the next process finds the state in the pins.
 */
export class Upgrade {
  readonly #programCapacity: number;
  readonly #pinPath: string;
  /** True if an earlier datapath was in force when this object was created. */
  readonly adopted: boolean;
  /** Whether this process created the folder of pins in `#current`. */
  readonly #isNew: boolean;
  #current: Successor;
  #inheritance: Inheritance;
  /**
   * The generation (the API's number of an activation) that an earlier datapath enforced when this object was
   * created; null if there was none. Read when this object is created, because `flip` must not map memory.
   */
  readonly #enforcedBefore: Enforced | null;
  /**
   * The migration of the hits of the earlier datapath. Its method `finish`, at the end of the takeover, adds
   * the hits that the earlier datapath has counted meanwhile.
   */
  #hitsMigration: HitsMigration | undefined;
  #sweeps = false;
  /** The time when the last migration of the flows began, by the monotonic clock in nanoseconds. */
  #migrationStartNs = 0n;

  constructor(fixed: FixedOptions, programCapacity: number, pinPath: string) {
    this.#programCapacity = programCapacity;
    this.#pinPath = pinPath;
    const { loaded, set, handover, isNew, ...inheritance } = prepareSuccessor(fixed, programCapacity, pinPath);
    this.#current = { loaded, set, handover };
    this.#inheritance = inheritance;
    this.#isNew = isNew;
    this.adopted = inheritance.inForce !== undefined;
    this.#enforcedBefore = inheritance.inForce?.inspect((slots) => slots.enforced()) ?? null;
    if (handover !== undefined) {
      this.#hitsMigration = this.#migrateInheritedHits();
      this.#copyInheritedGrants();
    } else if (inheritance.predecessors.length > 0) {
      // An earlier process ended while it migrated the state, so its handover programs are still on the
      // hooks. Migrate the state again.
      this.#migrateState();
    }
  }

  get loaded(): LoadedObject {
    return this.#current.loaded;
  }

  get set(): PinnedMaps {
    return this.#current.set;
  }

  /**
   * The BPF object whose programs must be on the hooks now: the handover (takeover by a new process) programs
   * while this datapath takes over from an earlier one, else those of the loaded object.
   */
  get programs(): BpfObject {
    return this.#current.handover ?? this.#current.loaded.object;
  }

  /** Whether a takeover is under way: hooks may have programs of an earlier build. */
  get hasHandover(): boolean {
    return this.#current.handover !== undefined;
  }

  /** True during a takeover while the earlier datapath classifies packets: no new policy is in force yet. */
  get awaitsFlip(): boolean {
    return this.#current.handover !== undefined && this.loaded.slots.epoch === 0;
  }

  /** Returns the generation (activation number in the API) of the policy in force; null if there is none. */
  enforced(): Enforced | null {
    return this.awaitsFlip ? this.#enforcedBefore : this.loaded.slots.enforced();
  }

  /** Returns the same as `enforced`, and also the SHA-256 digest of the compiled policy. */
  inForce(): (Enforced & { readonly imageSha256: string }) | null {
    if (!this.awaitsFlip) return this.loaded.slots.inForce();
    return this.#inheritance.inForce?.inspect((slots) => slots.inForce()) ?? null;
  }

  /**
   * Returns the base (last confirmed policy) of the unconfirmed policy in force. Null if there is none, or if
   * this datapath does not share the compiled policies of the earlier datapath and so cannot keep it.
   */
  base(): KeptBase | null {
    const { inForce } = this.#inheritance;
    if (!this.awaitsFlip) return this.loaded.slots.keptBase();
    if (inForce === undefined || !this.#hasPolicyOf(inForce)) return null;
    return inForce.inspect((slots) => slots.keptBase(inForce.deadline()));
  }

  /**
   * Must be called when the hooks have the BPF programs of `programs`. Completes the upgrade, except while
   * the earlier datapath still enforces another compiled policy; then the next activation of a policy
   * completes it.
   */
  advance(switchHooks: SwitchHooks): void {
    const { inForce } = this.#inheritance;
    if (this.awaitsFlip) {
      if (inForce === undefined || !this.#hasPolicyOf(inForce)) return;
      inForce.inspect((slots) => this.loaded.slots.adoptInForce(slots, inForce.deadline()));
    }
    this.complete(switchHooks);
  }

  /**
   * Migrates the state of the earlier datapath and removes that datapath. Must be called when the new policy
   * is in force on all hooks.
   */
  complete(switchHooks: SwitchHooks): void {
    const { handover } = this.#current;
    if (handover !== undefined) this.#migrateState();
    this.#sweep();
    this.#current = { ...this.#current, handover: undefined };
    try {
      if (handover !== undefined) {
        switchHooks();
        this.restorePins();
      }
    } finally {
      this.#removePredecessors();
      handover?.close();
      this.#releaseEarlierIpv6();
    }
  }

  /**
   * Whether this datapath lacks the flows of established IPv6 connections, although an earlier datapath was
   * in force: IPv6 flows are not migrated.
   */
  get lacksIpv6Flows(): boolean {
    return this.adopted && this.loaded.ipv6?.hasNewFlows === true;
  }

  /**
   * Frees the IPv6 programs of an earlier process, and their maps if this process enforces no IPv6. Must be
   * called when no hook calls these programs: the kernel drops IPv6 at a hook whose map `ipv6_programs` is
   * neither open nor pinned.
   */
  #releaseEarlierIpv6(): void {
    const { set } = this;
    set.release('ipv6_programs');
    if (this.loaded.ipv6 === null) set.ipv6.remove();
  }

  #migrateState(): void {
    awaitGracePeriod();
    this.#sweep();
    // From here on, only packets change the flows of the old maps. Removing the pin of the old map `sweep`
    // ends its BPF timer, and with it the old sweep.
    for (const set of this.#inheritance.predecessors) {
      if (set.id('sweep') !== mapId(this.loaded.object.mapFd('sweep'))) set.drop('sweep');
    }
    this.#migrationStartNs = process.hrtime.bigint();
    for (const migration of this.#stateMigrations()) migration.migrateEntries();
  }

  #sweep(): void {
    if (!this.#sweeps) objectsOf(this.loaded).forEach(startSweep);
    this.#sweeps = true;
  }

  /**
   * Stops the handover (takeover by a new process) programs from handing packets to the earlier datapath.
   * Migrates the counters of that datapath and the flows that it opened last, and removes its pins.
   */
  #removePredecessors(): void {
    const { object, slots } = this.loaded;
    const { predecessors, superfluous } = this.#inheritance;
    if (predecessors.length > 0) {
      clearPredecessors(object);
      awaitGracePeriod();
      for (const migration of this.#stateMigrations()) {
        // Until the hooks were switched, the forward judge (netfilter program) of the predecessor opened
        // flows in the old maps.
        if (slots.translates('ipv4')) migration.migrateLateFlows(this.#migrationStartNs);
        migration.migrateCounters();
      }
      const pickup = predecessors.map((set) => set.inspect(({ pickupUntil }) => pickupUntil));
      slots.setPickupUntil(pickup.reduce((a, b) => (a > b ? a : b), slots.pickupUntil));
    }
    this.#hitsMigration?.finish();
    this.#hitsMigration = undefined;
    for (const set of [...predecessors, ...superfluous]) set.remove();
    this.#inheritance = { inForce: undefined, predecessors: [], superfluous: [] };
  }

  #stateMigrations(): StateMigration[] {
    return this.#inheritance.predecessors.map(
      (set) => new StateMigration(set, this.loaded.object, this.#hasPolicyOf(set)),
    );
  }

  /**
   * Replaces the maps by larger maps if a policy does not fit. Returns true if maps were replaced. If this
   * method throws, the former maps stay in use.
   */
  grow(need: Need, switchHooks: SwitchHooks): boolean {
    const before = this.#current;
    const { options, slots } = before.loaded;
    const capacity = capacityFor(need, { ...options, slotCount: slots.count }, this.#programCapacity);
    const grown = grownMaps(options, capacity, slots.count);
    if (grown.length === 0) return false;
    const kept = SHARED_BY_LOADS.filter((name) => !grown.includes(name));
    const { ipv6 } = before.loaded;
    const loaded = loadObject(
      { ...before.loaded.options, ...capacity },
      {
        maps: mapsOf(before.loaded.object, kept),
        word: this.awaitsFlip ? (this.#inheritance.inForce?.word() ?? 0) : 0,
        deadline: this.awaitsFlip ? (this.#inheritance.inForce?.deadline() ?? null) : null,
        grants: before.loaded.grants,
        members: before.loaded.mappedMembers,
        ipv6Maps: ipv6 === null ? undefined : mapsOf(ipv6.object, IPV6_MAPS),
      },
    );
    let set: PinnedMaps | undefined;
    let handover: BpfObject | undefined;
    let hits: HitsMigration | undefined;
    try {
      if (grown.includes('program')) loaded.slots.copyUsed(before.loaded.slots);
      if (grown.includes('rank_hits')) copyRanks(before.loaded, loaded);
      if (grown.includes('hits')) hits = this.#migrateHits(before.loaded, loaded);
      if (before.handover !== undefined) handover = loadHandover(loaded);
      set = pinMaps(pinnedOf(loaded, handover ?? loaded.object), this.#pinPath);
      this.#current = { loaded, set, handover };
      switchHooks();
    } catch (error) {
      this.#current = before;
      hits?.close();
      handover?.close();
      before.loaded.grants.passTo(familyObjectsOf(before.loaded), before.loaded.slots.count);
      before.loaded.mappedMembers.passTo(familyObjectsOf(before.loaded), before.loaded.slots.count);
      loaded.close('grants_and_members');
      set?.remove();
      switchHooks();
      throw error;
    }
    awaitGracePeriod();
    hits?.finish();
    // Start the sweep (walk over the flow table) again with the new BPF object, because the running sweep may
    // use the former, smaller maps.
    if (!this.awaitsFlip) objectsOf(loaded).forEach(startSweep);
    this.#sweeps ||= !this.awaitsFlip;
    before.set.remove();
    before.handover?.close();
    before.loaded.close('grants_and_members');
    return true;
  }

  /**
   * Returns the names of those pins of the present datapath that are missing or refer to another map or
   * program. The next process finds the programs in force by their pins. So the handover programs stay pinned
   * until the hooks have other programs.
   */
  lostPins(): string[] {
    return this.set.lost(this.#pinned());
  }

  restorePins(): void {
    const lost = this.lostPins();
    if (lost.length === 0) return;
    try {
      this.set.put(new Map([...this.#pinned()].filter(([name]) => lost.includes(name))));
    } catch (failure) {
      throw new Error(`pin the maps ${lost.join(', ')} again: ${String(failure)}`, { cause: failure });
    }
  }

  #pinned(): Pinned {
    return pinnedOf(this.loaded, this.programs);
  }

  /**
   * Removes the folder of pins that this process made. May be called only if none of its programs was put on
   * a hook: the folder of the earlier datapath then stays in use.
   */
  unpin(): void {
    if (this.#isNew) this.#current.set.remove();
  }

  close(): void {
    this.#hitsMigration?.close();
    this.#current.handover?.close();
    this.#current.loaded.close();
    const { predecessors, superfluous, inForce } = this.#inheritance;
    for (const set of [this.#current.set, ...predecessors, ...superfluous]) set.close();
    inForce?.close();
  }

  #hasPolicyOf(set: PinnedMaps): boolean {
    return set.id('program') === mapId(this.loaded.object.mapFd('program'));
  }

  /**
   * Begins to migrate the hits into the larger map of the object `to`. While the earlier datapath still
   * classifies packets, migrates the hits of its map, and not those of the smaller map of this process.
   */
  #migrateHits(from: LoadedObject, to: LoadedObject): HitsMigration | undefined {
    if (!this.awaitsFlip) return new HitsMigration(hitsOf(from), hitsOf(to));
    this.#hitsMigration?.close();
    this.#hitsMigration = this.#migrateInheritedHits(to);
    return undefined;
  }

  /**
   * Copies the addresses learned from DNS (grants) of the earlier datapath if both datapaths share the map
   * `patterns` but not the map `grants` of a family, for example because its size differs. Without a shared
   * map `patterns`, the numbers of patterns differ, so nothing is copied.
   */
  #copyInheritedGrants(): void {
    const { inForce } = this.#inheritance;
    const { object, ipv6, grants } = this.loaded;
    if (inForce === undefined || inForce.id('patterns') !== mapId(object.mapFd('patterns'))) return;
    const copy = (earlier: PinnedMaps, to: BpfObject, family: Family): void => {
      if (earlier.has('grants') && earlier.id('grants') !== mapId(to.mapFd('grants')))
        grants.learnFrom(earlier.fd('grants'), family);
    };
    copy(inForce, object, 'ipv4');
    if (ipv6 !== null) copy(inForce.ipv6, ipv6.object, 'ipv6');
  }

  #migrateInheritedHits(to = this.loaded): HitsMigration | undefined {
    const { inForce } = this.#inheritance;
    const own = hitsOf(to);
    if (inForce === undefined || !inForce.has('hits') || inForce.id('hits') === mapId(own.fd)) return undefined;
    return new HitsMigration({ fd: inForce.fd('hits'), description: inForce.describe('hits') }, own);
  }
}

function hitsOf({ object }: LoadedObject): HitsMap {
  return { fd: object.mapFd('hits'), description: object.describe('hits') };
}

function grownMaps(before: Omit<Capacity, 'slotCount'>, after: Capacity, slotCount: number): MapName[] {
  const grown: MapName[] = [];
  const hasMoreSlots = slotCount !== after.slotCount;
  if (hasMoreSlots || before.slotLines !== after.slotLines) grown.push('program');
  if (hasMoreSlots || before.rankCapacity !== after.rankCapacity) grown.push('rank_hits');
  if (hasMoreSlots) grown.push('third_names', 'third_indexes');
  if (before.hitCapacity !== after.hitCapacity) grown.push('hits');
  return grown;
}

/**
 * Copies the map `rank_hits` (the entries of `hits` for each rule) for all program slots, because a staged
 * policy may already use the idle slot.
 */
function copyRanks(from: LoadedObject, to: LoadedObject): void {
  const [old, fresh] = [ranksOf(from), ranksOf(to)];
  const part = old.words.length / from.slots.count;
  const target = fresh.words.length / to.slots.count;
  for (let slot = 0; slot < from.slots.count; slot++)
    fresh.words.set(old.words.subarray(slot * part, (slot + 1) * part), slot * target);
  old.unmap();
  fresh.unmap();
}

function ranksOf({ object }: LoadedObject): MappedMemory {
  const fd = object.mapFd('rank_hits');
  const { maxEntries, valueSize } = mapShape(fd);
  return new MappedMemory('rank_hits', fd, maxEntries * valueSize);
}
