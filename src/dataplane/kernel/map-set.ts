import { existsSync, mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { LINE_BYTES } from '#dataplane/program/numbers.js';
import { libbpf } from '#libc/libbpf.js';
import { check } from '#libc/libc.js';
import { closeFd, describeMap, mapId, mapShape, openPinned, pin } from './bpf-fd.js';
import type { BpfObject, MapDescription, MapName, OldMapName } from './bpf-object.js';
import { MAPS } from './bpf-object.js';
import { type Capacity, MAX_SLOT_LINES } from './capacity.js';
import { Slots } from './slots.js';

const SET = /^maps-(\d{1,9})$/;
/** Layout 1 named its folder after a digest of its shapes. */
const SET_OF_LAYOUT_1 = /^maps-[0-9a-f]{12}$/;
const FILLING = 'filling-';

/** The pinned maps of one datapath: a folder that has all of them or does not exist. A later one has a higher number. */
export class MapSet {
  readonly #fds = new Map<MapName | OldMapName, number>();

  constructor(
    readonly folder: string,
    readonly number: number,
  ) {}

  has(name: MapName | OldMapName): boolean {
    return existsSync(join(this.folder, name));
  }

  fd(name: MapName | OldMapName): number {
    const fd = this.#fds.get(name) ?? openPinned(join(this.folder, name));
    this.#fds.set(name, fd);
    return fd;
  }

  /** A descriptor of its own, which the caller closes. */
  reopen(name: MapName): number {
    return openPinned(join(this.folder, name));
  }

  describe(name: MapName): MapDescription | undefined {
    return this.has(name) ? describeMap(this.fd(name)) : undefined;
  }

  /** The word of `active`; 0: nothing is in force in it. */
  word(): number {
    if (!this.has('active')) return 0;
    const value = new Uint8Array(mapShape(this.fd('active')).valueSize);
    check('read active', libbpf().bpf_map_lookup_elem(this.fd('active'), new Uint8Array(4), value));
    return new DataView(value.buffer).getUint32(0, true);
  }

  /** 0 where there is no such map. */
  id(name: MapName): number {
    return this.has(name) ? mapId(this.fd(name)) : 0;
  }

  capacity(): Capacity | undefined {
    if (!this.has('rank_hits') || !this.has('hits')) return undefined;
    return {
      slotLines: Math.min(this.slotLines(), MAX_SLOT_LINES),
      rankCapacity: this.#entries('rank_hits') / 2,
      hitCapacity: this.#entries('hits'),
    };
  }

  /** Lines of each of the two slots. Before layout 5 each line was an entry. */
  slotLines(): number {
    const { maxEntries, valueSize } = mapShape(this.fd('program'));
    return (maxEntries * valueSize) / LINE_BYTES / 2;
  }

  /** Reads its slots; what it answers must not outlive the call. */
  inspect<T>(look: (slots: Slots) => T): T {
    const fds = { program: this.fd('program'), active: this.fd('active') };
    const slots = new Slots(fds, this.slotLines());
    try {
      return look(slots);
    } finally {
      slots.unmap();
    }
  }

  close(): void {
    for (const fd of this.#fds.values()) closeFd(fd);
    this.#fds.clear();
  }

  drop(name: MapName): void {
    const fd = this.#fds.get(name);
    if (fd !== undefined) closeFd(fd);
    this.#fds.delete(name);
    rmSync(join(this.folder, name), { force: true });
  }

  remove(): void {
    this.close();
    rmSync(this.folder, { recursive: true, force: true });
  }

  #entries(name: MapName): number {
    return mapShape(this.fd(name)).maxEntries;
  }
}

/** The sets under a pin path, the oldest first. What a killed process left half filled is removed. */
export function mapSetsIn(path: string): MapSet[] {
  if (!existsSync(path)) return [];
  const sets: MapSet[] = [];
  for (const name of readdirSync(path)) {
    const number = SET.exec(name)?.[1];
    if (number !== undefined) sets.push(new MapSet(join(path, name), Number(number)));
    else if (SET_OF_LAYOUT_1.test(name)) sets.push(new MapSet(join(path, name), 0));
  }
  return sets.sort((a, b) => a.number - b.number);
}

/** Pins the maps of a loaded object as the newest set. */
export function pinMaps(object: BpfObject, path: string): MapSet {
  const number = (mapSetsIn(path).at(-1)?.number ?? 0) + 1;
  const filling = join(path, `${FILLING}${number}`);
  rmSync(filling, { recursive: true, force: true });
  mkdirSync(filling);
  try {
    for (const name of MAPS) pin(object.mapFd(name), join(filling, name));
    const folder = join(dirname(filling), `maps-${number}`);
    renameSync(filling, folder);
    return new MapSet(folder, number);
  } catch (error) {
    rmSync(filling, { recursive: true, force: true });
    throw error;
  }
}

/** What a killed process left half filled was never in force. */
export function removeHalfFilled(path: string): void {
  for (const name of readdirSync(path)) {
    if (basename(name).startsWith(FILLING)) rmSync(join(path, name), { recursive: true, force: true });
  }
}
