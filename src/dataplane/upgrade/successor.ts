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

/** What is the same whatever the policy needs. */
export type FixedOptions = Omit<ObjectOptions, 'slotLines' | 'rankCapacity' | 'hitCapacity'>;

/** What stands ready to judge in the place of what is pinned. */
export type Successor = {
  readonly loaded: LoadedObject;
  readonly set: MapSet;
  /** What stands on the hooks until everything is brought over; undefined where the maps are those that are in force. */
  readonly bridge: BpfObject | undefined;
};

export type Inheritance = {
  /** The set in force, if there is one. */
  readonly inForce: MapSet | undefined;
  /** Sets whose flows are to be brought over, the newest first. */
  readonly predecessors: readonly MapSet[];
  /** The others, of no use to anybody. */
  readonly superfluous: readonly MapSet[];
};

const ITS_OWN: ReadonlySet<MapName> = new Set(['active', 'predecessors', 'layouts']);
const OF_THE_POLICY: readonly MapName[] = ['program', 'rank_hits', 'hits', 'patterns'];
const OF_FLOWS: readonly MapName[] = ['flows', 'tallies', 'flow_tags', 'ways', 'vitals', 'flow_shares'];
/** Names and learned addresses mean the same to both, so that what is learned meanwhile is granted at once. */
const LEARNED: readonly MapName[] = ['grants', 'patterns'];

/**
 * Loads the object with the maps in force where they are as it wants them; else beside them. Nothing is in force by this:
 * the hooks are as they were. `heldPrograms` are the ids of what is on them.
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

/** The same programs over the same maps, for the time of a succession. */
export function loadBridge({ object, options }: LoadedObject): BpfObject {
  return loadPrograms({ ...options, bridges: true }, mapsOf(object, MAPS));
}

export function mapsOf(object: BpfObject, names: readonly MapName[]): Map<MapName, number> {
  return new Map(names.map((name) => [name, object.mapFd(name)]));
}

/** The set in force, or the newest one that nothing was put in force in yet. */
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

/** Of what is in force, the maps that can be shared. */
function shared(inForce: MapSet | undefined, wanted: ReadonlyMap<MapName, MapDescription>): Map<MapName, number> {
  if (inForce === undefined) return new Map();
  const equal = new Set(MAPS.filter((name) => !ITS_OWN.has(name) && isAsWanted(inForce, name, wanted)));
  if (!isOfThisLayout(inForce)) return fdsOf(inForce, LEARNED.every((name) => equal.has(name)) ? LEARNED : []);
  // They are placed by one seed.
  if (!OF_FLOWS.every((name) => equal.has(name))) for (const name of OF_FLOWS) equal.delete(name);
  // The policy can be kept as it is only as a whole.
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
