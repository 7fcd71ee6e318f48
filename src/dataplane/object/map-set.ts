import { existsSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Adoption } from '#contracts/datapath/datapath.js';
import { LINE_BYTES } from '#contracts/datapath/datapath-numbers.js';
import { type Deadline, readDeadline } from '#dataplane/activate/revert-timer.js';
import { Slots } from '#dataplane/activate/slots.js';
import { closeFd, describeMap, mapId, mapShape, openPinned, pin } from '#dataplane/loader/bpf-fd.js';
import { type BpfObject, MAPS, type MapDescription, type MapName } from '#dataplane/loader/bpf-object.js';
import { DIRECTIONS, type Direction } from '#dataplane/loader/direction.js';
import { type Layouts, readLayouts } from '#dataplane/loader/map-layouts.js';
import { makeFolders } from '#files/make-folders.js';
import { libbpf } from '#libc/bpf/libbpf.js';
import { objectId } from '#libc/bpf/object-handle.js';
import { isOutOfDescriptors } from '#libc/kernel-failure.js';
import { check } from '#libc/libc.js';
import { type Capacity, MAX_SLOT_LINES } from './capacity.js';
import { IPV6_MAPS, type LoadedObject } from './loaded-object.js';

const SET = /^maps-(\d{1,9})$/;
const FILLING = 'filling-';

/**
 * File descriptors of the BPF maps and programs in one folder of pins, by the name of the pin. The folder
 * contains all maps, and the BPF programs of the two hooks.
 */
export type Pinned = ReadonlyMap<string, number>;

/** The folder in a folder of pins with the maps that only the BPF object of IPv6 uses. */
const IPV6_FOLDER = 'ipv6';

/**
 * Returns the file descriptors to pin: those of the maps of one BPF object, and of the object of IPv6 beside
 * it, and those of the hook programs of a BPF object that uses the same maps. The two objects differ only
 * while this datapath takes over from an earlier one.
 */
export function pinnedOf({ object: maps, ipv6 }: Pick<LoadedObject, 'object' | 'ipv6'>, programs: BpfObject): Pinned {
  const onHooks = DIRECTIONS.map((direction) => `weir_${direction}` as const);
  return new Map<string, number>([
    ...MAPS.map((name) => [name, maps.mapFd(name)] as const),
    ...(ipv6 === null ? [] : IPV6_MAPS.map((name) => [join(IPV6_FOLDER, name), ipv6.object.mapFd(name)] as const)),
    ...onHooks.map((name) => [name, programs.programFd(name)] as const),
  ]);
}

/**
 * The folder with the pinned maps and BPF programs of one datapath. A new folder appears with all its pins
 * at once. The folder with the highest number belongs to the latest datapath.
 */
export class PinnedMaps {
  readonly #fds = new Map<MapName, number>();
  #layouts: Layouts | undefined;
  #ipv6: PinnedMaps | undefined;

  constructor(
    readonly folder: string,
    readonly number: number,
  ) {}

  /** The maps of the BPF object of IPv6, in a folder of this folder. It has none if IPv6 was not enforced. */
  get ipv6(): PinnedMaps {
    this.#ipv6 ??= new PinnedMaps(join(this.folder, IPV6_FOLDER), this.number);
    return this.#ipv6;
  }

  has(name: MapName): boolean {
    return existsSync(join(this.folder, name));
  }

  fd(name: MapName): number {
    const fd = this.#fds.get(name) ?? openPinned(join(this.folder, name));
    this.#fds.set(name, fd);
    return fd;
  }

  /**
   * Returns a new file descriptor of the pinned BPF program for a hook, which the caller must close;
   * undefined if no program is pinned.
   */
  openProgram(direction: Direction): number | undefined {
    const path = join(this.folder, `weir_${direction}`);
    return existsSync(path) ? openPinned(path) : undefined;
  }

  /**
   * Returns the shape and layouts of a pinned map. Reads the layouts from the pinned map `layouts`, or from
   * the BTF of the map if that cannot be read. The BTF needs CAP_SYS_ADMIN.
   */
  describe(name: MapName): MapDescription {
    const fd = this.fd(name);
    this.#layouts ??= readLayouts(this.fd('layouts'));
    const layouts = this.#layouts[name];
    return layouts === undefined ? describeMap(fd) : { ...mapShape(fd), ...layouts };
  }

  /**
   * Throws if a build before map layout 6 pinned this folder: it did not pin its programs and the layouts of
   * its maps.
   */
  requireKnownBuild(): void {
    if (this.has('layouts') && DIRECTIONS.every((direction) => existsSync(join(this.folder, `weir_${direction}`))))
      return;
    throw new Error(
      `${this.folder} belongs to a build of Weir that this build cannot take over; the kernel continues to enforce its policy: run weir dataplane detach, which ends the enforcement, and start again`,
    );
  }

  /**
   * Returns the active word of this datapath (activation number and slot in force); 0 if no policy was put in
   * force in it.
   */
  word(): number {
    if (!this.has('active')) return 0;
    const value = new Uint8Array(mapShape(this.fd('active')).valueSize);
    check('read active', libbpf().bpf_map_lookup_elem(this.fd('active'), new Uint8Array(4), value));
    return new DataView(value.buffer).getUint32(0, true);
  }

  /** Returns the deadline of the unconfirmed policy; null if there is none. */
  deadline(): Deadline | null {
    return this.has('revert') ? readDeadline(this.fd('revert')) : null;
  }

  /** Returns the kernel's id of a pinned map; 0 if no map of this name is pinned. */
  id(name: MapName): number {
    return this.has(name) ? mapId(this.fd(name)) : 0;
  }

  capacity(): Capacity | undefined {
    if (!this.has('rank_hits') || !this.has('hits')) return undefined;
    const slotCount = this.#entries('program');
    return {
      slotCount,
      slotLines: Math.min(this.slotLines(), MAX_SLOT_LINES),
      rankCapacity: this.#entries('rank_hits') / slotCount,
      hitCapacity: this.#entries('hits'),
    };
  }

  /** Returns the number of cache lines in each program slot. Each slot is one entry. */
  slotLines(): number {
    return mapShape(this.fd('program')).valueSize / LINE_BYTES;
  }

  /**
   * Maps the program slots of this folder into memory, and returns the result of `look`. The memory is
   * unmapped on return, so the result must not refer to it.
   */
  inspect<T>(look: (slots: Slots) => T): T {
    const fds = { program: this.fd('program'), active: this.fd('active') };
    const slots = new Slots(fds, this.slotLines());
    try {
      return look(slots);
    } finally {
      slots.unmap();
    }
  }

  /**
   * Returns the names of the pins that are missing, or that refer to another BPF map or program than the
   * given one.
   */
  lost(pinned: Pinned): string[] {
    return [...pinned].flatMap(([name, fd]) => (this.#holds(name, objectId(fd)) ? [] : [name]));
  }

  /**
   * Pins the given BPF maps and programs in the folder. If the folder does not exist, it appears with all
   * pins in one rename. Otherwise each pin appears, or replaces another pin, in one atomic rename.
   */
  put(pinned: Pinned): void {
    const filling = join(dirname(this.folder), `${FILLING}${this.number}`);
    rmSync(filling, { recursive: true, force: true });
    const folders = new Set([...pinned.keys()].map(dirname));
    const makeIn = (parent: string): void => {
      for (const folder of folders) makeFolders(join(parent, folder), 0o700);
    };
    makeIn(filling);
    try {
      for (const [name, fd] of pinned) pin(fd, join(filling, name));
      if (!existsSync(this.folder)) renameSync(filling, this.folder);
      else {
        makeIn(this.folder);
        for (const name of pinned.keys()) renameSync(join(filling, name), join(this.folder, name));
      }
    } finally {
      rmSync(filling, { recursive: true, force: true });
    }
  }

  close(): void {
    for (const fd of this.#fds.values()) closeFd(fd);
    this.#fds.clear();
    this.#ipv6?.close();
  }

  /** Closes the file descriptor of a map, which may be an earlier map than the one that is pinned now. */
  release(name: MapName): void {
    const fd = this.#fds.get(name);
    if (fd !== undefined) closeFd(fd);
    this.#fds.delete(name);
  }

  drop(name: MapName): void {
    this.release(name);
    rmSync(join(this.folder, name), { force: true });
  }

  remove(): void {
    this.close();
    rmSync(this.folder, { recursive: true, force: true });
  }

  #holds(name: string, id: number): boolean {
    const path = join(this.folder, name);
    if (!existsSync(path)) return false;
    try {
      const fd = openPinned(path);
      try {
        return objectId(fd) === id;
      } finally {
        closeFd(fd);
      }
    } catch (failure) {
      if (isOutOfDescriptors(failure)) throw failure;
      return false;
    }
  }

  #entries(name: MapName): number {
    return mapShape(this.fd(name)).maxEntries;
  }
}

/** Returns the folders of pinned maps, oldest first. Ignores a folder that is not complete. */
export function mapSetsIn(path: string): PinnedMaps[] {
  if (!existsSync(path)) return [];
  const sets: PinnedMaps[] = [];
  for (const name of readdirSync(path)) {
    const number = SET.exec(name)?.[1];
    if (number !== undefined) sets.push(new PinnedMaps(join(path, name), Number(number)));
  }
  return sets.sort((a, b) => a.number - b.number);
}

/** Returns the newest folder whose policy was put in force; undefined if there is none. */
export function setInForce(sets: readonly PinnedMaps[]): PinnedMaps | undefined {
  return sets.findLast((set) => set.word() !== 0);
}

/** Returns the policy that the datapath pinned under `path` enforces; null if none is in force. */
export function inForceAt(path: string): Adoption['inForce'] {
  const sets = mapSetsIn(path);
  try {
    const inForce = setInForce(sets)?.inspect((slots) => slots.inForce()) ?? null;
    if (inForce === null) return null;
    const { generation, imageSha256, sinceMs } = inForce;
    return { generation, imageSha256, sinceMs };
  } finally {
    for (const set of sets) set.close();
  }
}

/** Pins maps and BPF programs in a new folder, whose number is higher than that of each other folder. */
export function pinMaps(pinned: Pinned, path: string): PinnedMaps {
  const number = (mapSetsIn(path).at(-1)?.number ?? 0) + 1;
  const set = new PinnedMaps(join(path, `maps-${number}`), number);
  set.put(pinned);
  return set;
}

/**
 * Removes the folders that a process left incomplete because it was killed while it was pinning. No packet
 * was ever classified by the maps in such a folder.
 */
export function removeHalfFilled(path: string): void {
  for (const name of readdirSync(path)) {
    if (name.startsWith(FILLING)) rmSync(join(path, name), { recursive: true, force: true });
  }
}
