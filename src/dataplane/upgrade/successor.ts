import { isDeepStrictEqual } from 'node:util';
import { LAYOUT_VERSION } from '#contracts/datapath-numbers.js';
import { type BpfObject, MAPS, type MapDescription, type MapName } from '#dataplane/loader/bpf-object.js';
import { smallestCapacity } from '#dataplane/object/capacity.js';
import {
  describeMaps,
  type LoadedObject,
  loadObject,
  loadPrograms,
  type ObjectOptions,
} from '#dataplane/object/loaded-object.js';
import { type MapSet, mapSetsIn, pinMaps, pinnedOf, removeHalfFilled } from '#dataplane/object/map-set.js';
import { fillPredecessors } from './predecessors.js';

/** The options that do not depend on the size of the policy. */
export type FixedOptions = Omit<ObjectOptions, 'slotLines' | 'rankCapacity' | 'hitCapacity'>;

/** A datapath that is ready to take over from the pinned one. */
export type Successor = {
  readonly loaded: LoadedObject;
  readonly set: MapSet;
  /** The programs on the hooks until the state is migrated; undefined if the maps in force are reused. */
  readonly bridge: BpfObject | undefined;
};

export type Inheritance = {
  /** The set in force, if there is one. */
  readonly inForce: MapSet | undefined;
  /** Sets whose flows are to be migrated, newest first. */
  readonly predecessors: readonly MapSet[];
  /** All other sets, which are not needed any more. */
  readonly superfluous: readonly MapSet[];
};

const ITS_OWN: ReadonlySet<MapName> = new Set(['active', 'predecessors', 'layouts']);
const OF_THE_POLICY: readonly MapName[] = ['program', 'rank_hits', 'hits', 'patterns'];
const OF_FLOWS: readonly MapName[] = ['flows', 'tallies', 'flow_tags', 'ways', 'vitals', 'flow_shares'];
/**
 * If both maps are shared, an address that is learned during the takeover is granted in both datapaths at
 * once.
 */
const LEARNED: readonly MapName[] = ['grants', 'patterns'];

/**
 * Loads the object with the maps in force if they have the wanted layouts and sizes; else with new maps
 * beside them. Changes neither the hooks nor the policy in force. `heldPrograms` are the ids of the programs
 * on the hooks.
 */
export function prepareSuccessor(
  fixed: FixedOptions,
  programCapacity: number,
  pinPath: string,
  heldPrograms: readonly number[],
): Successor & Inheritance {
  removeHalfFilled(pinPath);
  const sets = mapSetsIn(pinPath);
  const inForce = sets.findLast((set) => set.word() !== 0);
  const options = { ...fixed, ...(inForce?.capacity() ?? smallestCapacity(programCapacity)) };
  const wanted = describeMaps(options, MAPS);
  const adopted = adoptable(sets, inForce, wanted);
  const reused = adopted === undefined ? shared(inForce, wanted) : fdsOf(adopted, MAPS);
  const judging = adopted === inForce ? 0 : (inForce?.word() ?? 0);
  const loaded = loadObject(options, { maps: reused, word: judging });
  let bridge: BpfObject | undefined;
  try {
    const predecessors = sets
      .filter((set) => set !== adopted && set.word() !== 0 && set.id('active') !== adopted?.id('active'))
      .reverse();
    if (inForce !== undefined && adopted !== inForce) {
      bridge = loadBridge(loaded);
      fillPredecessors(loaded.object, inForce, sets, heldPrograms);
    }
    const set = adopted ?? pinMaps(pinnedOf(loaded.object, bridge ?? loaded.object), pinPath);
    const superfluous = sets.filter((other) => other !== adopted && !predecessors.includes(other));
    return { loaded, set, bridge, inForce, predecessors, superfluous };
  } catch (error) {
    bridge?.close();
    loaded.close();
    throw error;
  }
}

/**
 * Loads the bridge for a takeover: the same programs with the same maps, which hand packets to the earlier
 * programs.
 */
export function loadBridge({ object, options }: LoadedObject): BpfObject {
  return loadPrograms({ ...options, bridges: true }, mapsOf(object, MAPS));
}

export function mapsOf(object: BpfObject, names: readonly MapName[]): Map<MapName, number> {
  return new Map(names.map((name) => [name, object.mapFd(name)]));
}

/** The set in force, or the newest set if no policy was put in force in it yet. */
function adoptable(
  sets: readonly MapSet[],
  inForce: MapSet | undefined,
  wanted: ReadonlyMap<MapName, MapDescription>,
): MapSet | undefined {
  return [inForce, sets.at(-1)].find(
    (set) =>
      set !== undefined &&
      MAPS.every((name) => set.has(name)) &&
      (set.word() === 0 || isOfThisLayout(set)) &&
      MAPS.every((name) => isAsWanted(set, name, wanted)),
  );
}

/** The maps in force that the new datapath can share. */
function shared(inForce: MapSet | undefined, wanted: ReadonlyMap<MapName, MapDescription>): Map<MapName, number> {
  if (inForce === undefined) return new Map();
  const equal = new Set(MAPS.filter((name) => !ITS_OWN.has(name) && isAsWanted(inForce, name, wanted)));
  if (!isOfThisLayout(inForce)) return fdsOf(inForce, LEARNED.every((name) => equal.has(name)) ? LEARNED : []);
  // The flow maps are shared all or none, since one seed places the entries of all of them.
  if (!OF_FLOWS.every((name) => equal.has(name))) for (const name of OF_FLOWS) equal.delete(name);
  // The maps of the policy are shared all or none; only `patterns` can be shared alone.
  const keepsPolicy = OF_THE_POLICY.every((name) => equal.has(name));
  for (const name of OF_THE_POLICY) if (!keepsPolicy && name !== 'patterns') equal.delete(name);
  if (!equal.has('patterns')) equal.delete('grants');
  return fdsOf(inForce, [...equal]);
}

function isOfThisLayout(set: MapSet): boolean {
  return set.inspect(({ layoutVersion }) => layoutVersion) === LAYOUT_VERSION;
}

function isAsWanted(set: MapSet, name: MapName, wanted: ReadonlyMap<MapName, MapDescription>): boolean {
  return set.has(name) && isDeepStrictEqual(set.describe(name), wanted.get(name));
}

function fdsOf(set: MapSet, names: readonly MapName[]): Map<MapName, number> {
  return new Map(names.map((name) => [name, set.fd(name)]));
}
