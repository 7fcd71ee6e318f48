import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { LAYOUT_VERSION } from '#dataplane/program/numbers.js';
import type { Settings } from '#dataplane/program/settings.js';
import { closeFd, mapShape, openPinned, pin } from './bpf-fd.js';
import { BpfObject, MAPS, type MapName, type MapShape } from './bpf-object.js';
import type { Pins } from './pins.js';
import { Prover } from './prover.js';
import { Slots } from './slots.js';
import { TestRun } from './test-run.js';

export type ObjectOptions = Settings & { readonly objectPath: string; readonly flowCapacity: number };

/** The datapath in the kernel: programs and maps, attached to nothing yet. */
export type LoadedObject = {
  readonly object: BpfObject;
  readonly slots: Slots;
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
    return {
      object,
      slots,
      prover,
      adopted,
      folder,
      close: () => {
        slots.unmap();
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

function startSweep(object: BpfObject): void {
  const failed = new TestRun(object.programFd('weir_start_sweep'), undefined, undefined, undefined).run();
  if (failed !== 0) throw new Error(`the sweep of expired flows did not start: step ${failed}`);
}
