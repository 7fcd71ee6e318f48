import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { Grants } from '#dataplane/grants/grants.js';
import { LINE, linesFor, PATTERN, PATTERNS } from '#dataplane/grants/layout.js';
import { LAYOUT_VERSION } from '#dataplane/program/numbers.js';
import type { Settings } from '#dataplane/program/settings.js';
import { closeFd, mapShape, openPinned, pin } from './bpf-fd.js';
import { BpfObject, MAPS, type MapName, type MapShape } from './bpf-object.js';
import { awaitGracePeriod } from './grace-period.js';
import { MappedMemory } from './mapped-memory.js';
import type { Pins } from './pins.js';
import { Prover } from './prover.js';
import { Slots } from './slots.js';
import { TestRun } from './test-run.js';

export type ObjectOptions = Settings & {
  readonly objectPath: string;
  readonly flowCapacity: number;
  readonly halfOpenCapacity: number;
  readonly grantCapacity: number;
};

/** The datapath in the kernel: programs and maps, attached to nothing yet. */
export type LoadedObject = {
  readonly object: BpfObject;
  readonly slots: Slots;
  readonly grants: Grants;
  readonly prover: Prover;
  /** True where the maps are those that an earlier process pinned. */
  readonly adopted: boolean;
  /** The folder of its pinned maps. */
  readonly folder: string | undefined;
  close(): void;
};

/** Loads the object. With `pins`, its maps are those that are pinned in the same layout, or are pinned now. */
export function loadObject(options: ObjectOptions, pins: Pins | undefined): LoadedObject {
  const object = new BpfObject(options.objectPath);
  try {
    object.resize('program', 2 * options.slotLines);
    object.resize('flows', options.flowCapacity);
    object.resize('half_open', options.halfOpenCapacity);
    object.resize('cache', options.cacheLines);
    object.resize('hits', options.hitCapacity);
    object.resize('rank_hits', 2 * options.rankCapacity);
    object.resize('grants', linesFor(options.grantCapacity));
    object.resize('patterns', PATTERNS);
    object.configure(options);
    const shapes = Object.fromEntries(MAPS.map((name) => [name, object.shape(name)])) as Record<MapName, MapShape>;
    const folder = pins?.folder(shapes);
    const adopted = folder !== undefined && adoptMaps(object, shapes, folder);
    object.load();
    if (folder !== undefined && !adopted) {
      pins?.remove(folder);
      mkdirSync(folder);
      for (const name of MAPS) pin(object.mapFd(name), join(folder, name));
    }
    const slots = new Slots({ program: object.mapFd('program'), active: object.mapFd('active') }, options.slotLines);
    if (slots.layoutVersion !== LAYOUT_VERSION) throw new Error(`the pinned maps in ${folder} are of another layout`);
    const prover = new Prover(object);
    startSweep(object);
    // What the process before this one removed may be read until then.
    if (adopted) awaitGracePeriod();
    const { grants, unmapGrants } = mapGrants(object, options.grantCapacity, slots.slotInForce);
    return {
      object,
      slots,
      grants,
      prover,
      adopted,
      folder,
      close: () => {
        slots.unmap();
        unmapGrants();
        prover.unmap();
        object.close();
      },
    };
  } catch (error) {
    object.close();
    throw error;
  }
}

/** A folder that a killed process left half filled is not adopted: it was never in force. */
function adoptMaps(object: BpfObject, shapes: Record<MapName, MapShape>, folder: string): boolean {
  if (!MAPS.every((name) => existsSync(join(folder, name)))) return false;
  for (const name of MAPS) {
    const fd = openPinned(join(folder, name));
    try {
      if (JSON.stringify(mapShape(fd)) !== JSON.stringify(shapes[name])) {
        throw new Error(`the map pinned as ${join(folder, name)} is not the datapath's`);
      }
      object.reuse(name, fd);
    } finally {
      closeFd(fd);
    }
  }
  return true;
}

function mapGrants(
  object: BpfObject,
  capacity: number,
  inForce: 0 | 1 | undefined,
): { readonly grants: Grants; readonly unmapGrants: () => void } {
  const table = new MappedMemory('grants', object.mapFd('grants'), linesFor(capacity) * LINE.words * 4);
  const patterns = new MappedMemory('patterns', object.mapFd('patterns'), PATTERNS * PATTERN.words * 4);
  const random = new Uint32Array(4);
  randomBytes(random.byteLength).copy(new Uint8Array(random.buffer));
  return {
    grants: new Grants({ grants: table.words, patterns: patterns.words }, { capacity, inForce, random }),
    unmapGrants: () => {
      table.unmap();
      patterns.unmap();
    },
  };
}

function startSweep(object: BpfObject): void {
  const failed = new TestRun(object.programFd('weir_start_sweep'), undefined, undefined, undefined).run();
  if (failed !== 0) throw new Error(`the sweep of expired flows did not start: step ${failed}`);
}
