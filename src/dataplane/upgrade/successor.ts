import { isDeepStrictEqual } from 'node:util';
import { LAYOUT_VERSION } from '#contracts/datapath/datapath-numbers.js';
import { SLOT_COUNT } from '#dataplane/abi/active-word.js';
import { type BpfObject, MAPS, type MapDescription, type MapName } from '#dataplane/loader/bpf-object.js';
import { smallestCapacity } from '#dataplane/object/capacity.js';
import {
  describeIpv6Maps,
  describeMaps,
  IPV6_MAPS,
  type LoadedObject,
  loadObject,
  loadPrograms,
  mapsOf,
  type ObjectOptions,
  SHARED_BY_LOADS,
} from '#dataplane/object/loaded-object.js';
import {
  mapSetsIn,
  type PinnedMaps,
  pinMaps,
  pinnedOf,
  removeHalfFilled,
  setInForce,
} from '#dataplane/object/map-set.js';
import { fillPredecessors } from './predecessors.js';

/** The options of a BPF object that do not depend on the size of the policy. */
export type FixedOptions = Omit<ObjectOptions, 'slotCount' | 'slotLines' | 'rankCapacity' | 'hitCapacity' | 'migrates'>;

/** A loaded datapath that is ready to take over from the datapath in force. */
export type Successor = {
  readonly loaded: LoadedObject;
  readonly set: PinnedMaps;
  /**
   * The BPF object whose programs are on the hooks until the state of the earlier datapath is migrated.
   * Undefined if no datapath is in force, or if the loaded object uses its maps.
   */
  readonly handover: BpfObject | undefined;
};

export type Inheritance = {
  /** The pinned map folder of the datapath in force; undefined if no datapath is in force. */
  readonly inForce: PinnedMaps | undefined;
  /** The pinned map folders of earlier datapaths whose flows must be migrated, newest first. */
  readonly predecessors: readonly PinnedMaps[];
  /** The pinned map folders that contain nothing to migrate; they are removed at the end of the takeover. */
  readonly superfluous: readonly PinnedMaps[];
};

const NEVER_SHARED_MAPS: ReadonlySet<MapName> = new Set([
  'active',
  'revert',
  'predecessors',
  'ipv6_programs',
  'layouts',
]);
const POLICY_MAPS: readonly MapName[] = ['program', 'rank_hits', 'hits', 'patterns'];
/**
 * The maps with the data of program slot 2 that `patterns` and `member_sets` contain for the other two slots.
 */
const THIRD_MAPS: readonly MapName[] = ['third_names', 'third_indexes'];
const FLOW_MAPS: readonly MapName[] = ['flows', 'tallies', 'flow_tags', 'ways', 'vitals', 'flow_shares'];
const MEMBER_MAPS: readonly MapName[] = ['members', 'member_sets'];
/**
 * If both datapaths share these two maps during an upgrade, an address that is learned from DNS is allowed in
 * both at once.
 */
const GRANT_MAPS: readonly MapName[] = ['grants', 'patterns'];

/**
 * Loads the BPF object for this process. If the maps in force have the layouts and sizes that this process
 * needs, the object uses these maps. Otherwise the object gets new maps. If another datapath is in force, the
 * handover programs are loaded as well. Changes neither the hooks nor the policy in force. Throws if a build
 * pinned the maps in force that this build cannot take over.
 */
export function prepareSuccessor(
  fixed: FixedOptions,
  programCapacity: number,
  pinPath: string,
): Successor & Inheritance & { readonly isNew: boolean } {
  removeHalfFilled(pinPath);
  const sets = mapSetsIn(pinPath);
  const inForce = setInForce(sets);
  inForce?.requireKnownBuild();
  const options = { ...fixed, ...(inForce?.capacity() ?? smallestCapacity(programCapacity)) };
  const wanted = describeMaps(options, MAPS);
  const adopted = adoptable(sets, inForce, wanted);
  const reused = adopted === undefined ? shared(inForce, wanted) : fdsOf(adopted, SHARED_BY_LOADS);
  const earlier = adopted === inForce ? undefined : inForce;
  const predecessors = sets
    .filter((set) => set !== adopted && set.word() !== 0 && set.id('active') !== adopted?.id('active'))
    .reverse();
  const loaded = loadObject(
    { ...options, migrates: predecessors.length > 0 },
    {
      maps: reused,
      word: earlier?.word() ?? 0,
      deadline: earlier?.deadline() ?? null,
      ipv6Maps: options.enforcesIpv6 === true ? reusedIpv6Maps(options, { adopted, inForce, reused }) : new Map(),
    },
  );
  let handover: BpfObject | undefined;
  try {
    if (inForce !== undefined && adopted !== inForce) {
      handover = loadHandover(loaded);
      fillPredecessors(loaded.object, inForce);
    }
    const set = adopted ?? pinMaps(pinnedOf(loaded, handover ?? loaded.object), pinPath);
    const superfluous = sets.filter((other) => other !== adopted && !predecessors.includes(other));
    return { loaded, set, handover, isNew: adopted === undefined, inForce, predecessors, superfluous };
  } catch (error) {
    handover?.close();
    loaded.close();
    throw error;
  }
}

/**
 * Loads the handover (takeover by a new process) programs for a takeover: the same BPF programs of the hooks,
 * with the same maps, but with the setting `handsOver`. With this setting, they hand packets to the programs
 * of the earlier datapath.
 */
export function loadHandover({ object, options }: LoadedObject): BpfObject {
  return loadPrograms({ ...options, handsOver: true }, mapsOf(object, MAPS), ['weir_ingress', 'weir_egress']);
}

/**
 * Returns the pinned map folder whose maps this process can use unchanged, or undefined. The candidates are
 * the folder in force, and the newest folder. All maps must exist, with the wanted layouts and sizes.
 */
function adoptable(
  sets: readonly PinnedMaps[],
  inForce: PinnedMaps | undefined,
  wanted: ReadonlyMap<MapName, MapDescription>,
): PinnedMaps | undefined {
  return [inForce, sets.at(-1)].find(
    (set) =>
      set !== undefined &&
      MAPS.every((name) => set.has(name)) &&
      (set.word() === 0 || isOfThisLayout(set)) &&
      MAPS.every((name) => isAsWanted(set, name, wanted)),
  );
}

/**
 * Returns the maps that the object of IPv6 uses: those in the folder `adopted`, if their layouts and sizes
 * are those that it needs. If one of them is missing or has others, the flow table of IPv6 is new. The maps
 * `grants` and `members` are used apart from the rest, also of a datapath `inForce` whose numbers of patterns
 * and of sets of selectors `reused` has.
 */
function reusedIpv6Maps(
  options: ObjectOptions,
  {
    adopted,
    inForce,
    reused,
  }: {
    readonly adopted: PinnedMaps | undefined;
    readonly inForce: PinnedMaps | undefined;
    readonly reused: ReadonlyMap<MapName, number>;
  },
): Map<MapName, number> {
  const earlier = (adopted ?? inForce)?.ipv6;
  if (earlier === undefined) return new Map();
  const wanted = describeIpv6Maps(options);
  const isUsable = (name: MapName): boolean => isAsWanted(earlier, name, wanted);
  const others = IPV6_MAPS.filter((name) => name !== 'grants' && name !== 'members');
  const keepsOthers = adopted !== undefined && others.every((name) => earlier.has(name)) && others.every(isUsable);
  const kept: MapName[] = keepsOthers ? [...others] : [];
  if (reused.has('patterns') && isUsable('grants')) kept.push('grants');
  if (reused.has('member_sets') && isUsable('members')) kept.push('members');
  return fdsOf(earlier, kept);
}

/** Returns the file descriptors of those maps in force that the new datapath can share, by map name. */
function shared(inForce: PinnedMaps | undefined, wanted: ReadonlyMap<MapName, MapDescription>): Map<MapName, number> {
  if (inForce === undefined) return new Map();
  const equal = new Set(MAPS.filter((name) => !NEVER_SHARED_MAPS.has(name) && isAsWanted(inForce, name, wanted)));
  if (!isOfThisLayout(inForce)) return fdsOf(inForce, GRANT_MAPS.every((name) => equal.has(name)) ? GRANT_MAPS : []);
  // Share all flow maps or none of them, because the same hash seed places the entries in all of them.
  if (!FLOW_MAPS.every((name) => equal.has(name))) for (const name of FLOW_MAPS) equal.delete(name);
  // Share all maps of the policy or none of them, except that `patterns` can be shared alone.
  const hasThird = inForce.capacity()?.slotCount !== SLOT_COUNT.usual;
  const keepsPolicy = [...POLICY_MAPS, ...(hasThird ? THIRD_MAPS : [])].every((name) => equal.has(name));
  for (const name of POLICY_MAPS) if (!keepsPolicy && name !== 'patterns') equal.delete(name);
  if (!equal.has('patterns')) for (const name of ['grants', 'third_names'] as const) equal.delete(name);
  // Share both maps of the members or none, because `members` contains indexes of `member_sets`.
  if (!MEMBER_MAPS.every((name) => equal.has(name)))
    for (const name of [...MEMBER_MAPS, 'third_indexes'] as const) equal.delete(name);
  return fdsOf(inForce, [...equal]);
}

function isOfThisLayout(set: PinnedMaps): boolean {
  return set.inspect(({ layoutVersion }) => layoutVersion) === LAYOUT_VERSION;
}

function isAsWanted(set: PinnedMaps, name: MapName, wanted: ReadonlyMap<MapName, MapDescription>): boolean {
  return set.has(name) && isDeepStrictEqual(set.describe(name), wanted.get(name));
}

function fdsOf(set: PinnedMaps, names: readonly MapName[]): Map<MapName, number> {
  return new Map(names.map((name) => [name, set.fd(name)]));
}
