import { randomInt } from 'node:crypto';
import { LINE_BYTES } from '#contracts/datapath/datapath-numbers.js';
import type { Family } from '#contracts/policy/policy-model.js';
import { SLOT_COUNT } from '#dataplane/abi/active-word.js';
import { flowSets, flowSlots } from '#dataplane/abi/flow.js';
import { VITALS_BYTES, VITALS_OFFSETS } from '#dataplane/abi/hit.js';
import type { Settings } from '#dataplane/abi/settings.js';
import { Prover } from '#dataplane/activate/prover.js';
import { type Deadline, RevertTimer } from '#dataplane/activate/revert-timer.js';
import { Slots } from '#dataplane/activate/slots.js';
import { linesFor, PATTERNS } from '#dataplane/grants/grant-layout.js';
import { type GrantObjects, MappedGrants } from '#dataplane/grants/mapped-grants.js';
import {
  BpfObject,
  builtIpv6Object,
  IPV6_PROGRAMS,
  MAPS,
  type MapDescription,
  type MapName,
  type ProgramName,
} from '#dataplane/loader/bpf-object.js';
import { writeLayouts } from '#dataplane/loader/map-layouts.js';
import type { KernelMembers } from '#dataplane/members/kernel-members.js';
import { type MappedMembers, mapMembers } from '#dataplane/members/mapped-members.js';
import { MEMBER_SETS, memberLines } from '#dataplane/members/member-layout.js';
import { RouteCopy } from '#dataplane/routes/route-copy.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { KernelFailure } from '#libc/kernel-failure.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { smallestCapacity } from './capacity.js';

const FLOW_SEED = VITALS_OFFSETS.flow_seed / 4;

const PROGRAMS_OF_EACH: readonly ProgramName[] = [
  'weir_ingress',
  'weir_egress',
  'weir_start_sweep',
  'weir_sweep',
  'weir_cut',
  'weir_prove',
  'weir_set_revert',
  'weir_join',
  'weir_see_routes',
];
/**
 * The maps that the BPF object of IPv6 shares with the object of IPv4: the policies with the numbers of
 * hostname patterns and selectors, the active word (one activation is for both IP families), and the counters
 * and reports of rules and of the node.
 */
const SHARED_BY_FAMILIES: readonly MapName[] = [
  'program',
  'active',
  'patterns',
  'third_names',
  'member_sets',
  'third_indexes',
  'hits',
  'rank_hits',
  'events',
  'counters',
  'predecessors',
  'ipv6_programs',
  'ports',
];
/** The maps that only the BPF object of IPv6 uses. It has no `revert`: one timer reverts both families. */
export const IPV6_MAPS: readonly MapName[] = MAPS.filter(
  (name) => name !== 'revert' && !SHARED_BY_FAMILIES.includes(name),
);
/**
 * The maps that a new load of the BPF objects may share with an earlier load. The map `ipv6_programs` is not
 * among them: its programs pass the state of a packet through a map, so they must all belong to one load.
 */
export const SHARED_BY_LOADS: readonly MapName[] = MAPS.filter((name) => name !== 'ipv6_programs');
/** The index of each program in the map `ipv6_programs`, as in `enum ipv6_program` of the BPF code. */
const CALLED: readonly ProgramName[] = ['weir_ingress', 'weir_egress', 'weir_full_path'];
const MIGRATING: readonly ProgramName[] = ['weir_migrate_count', 'weir_migrate_flow'];

export type ObjectOptions = Omit<Settings, 'flowSeed'> & {
  readonly objectPath: string;
  /** The IP family of the BPF object; IPv4 if undefined. */
  readonly family?: Family;
  readonly grantCapacity: number;
  /** Number of program slots (`SLOT_COUNT`); the usual number if undefined. */
  readonly slotCount?: number;
  /** Whether the kernel can load the forward judge (a netfilter program), which needs Linux 6.4. */
  readonly judges?: boolean;
  /** Whether to load the program that measures lookups (bpf/classify/bench.h). */
  readonly measures?: boolean;
  /** Whether to load the programs that copy the flows and counters of an earlier datapath (bpf/upgrade). */
  readonly migrates?: boolean;
};

/**
 * A BPF object of the datapath that is loaded into the kernel, with its maps mapped into the memory of this
 * process. Loading does not attach its BPF programs to hooks.
 */
export type LoadedObject = {
  readonly options: ObjectOptions;
  readonly object: BpfObject;
  readonly slots: Slots;
  readonly grants: MappedGrants;
  readonly members: KernelMembers;
  readonly mappedMembers: MappedMembers;
  readonly prover: Prover;
  readonly routes: RouteCopy;
  /** The BPF object of IPv6; null if the datapath enforces no IPv6 policies. */
  readonly ipv6: LoadedIpv6Object | null;
  /**
   * Returns the file descriptor of the forward judge (a netfilter program). The first call loads the program,
   * because only nodes with NAT rules need it. Throws if the kernel refuses the program.
   */
  readonly judgeFd: () => number;
  /** `keeps`: the maps of grants and members stay in memory, because the next object uses them. */
  close(keeps?: 'grants_and_members'): void;
};

/** The state of an earlier datapath (in the kernel) that a new BPF object takes over. */
export type Before = {
  /**
   * File descriptors of existing maps by map name; the new object uses these maps and does not create them.
   */
  readonly maps: ReadonlyMap<MapName, number>;
  /**
   * The active word of the earlier datapath (activation number and slot in force). The earlier datapath
   * enforces its policy until the new object puts a policy in force. 0 if there is no earlier datapath, or if
   * the new object uses its map `active`.
   */
  readonly word: number;
  /** The deadline of the unconfirmed policy of the earlier datapath; null if there is none. */
  readonly deadline: Deadline | null;
  /** The grants, if this process has already opened the maps `grants` and `patterns`. */
  readonly grants?: MappedGrants;
  /**
   * The BPF maps `members` and `member_sets` if they are mapped into memory already; they are then not mapped
   * again.
   */
  readonly members?: MappedMembers;
  /**
   * File descriptors of those `IPV6_MAPS` that the new object of IPv6 uses. It makes new maps in place of the
   * others.
   */
  readonly ipv6Maps?: ReadonlyMap<MapName, number> | undefined;
};
const NOTHING_BEFORE: Before = { maps: new Map(), word: 0, deadline: null };

/**
 * Returns the shape and layouts that these maps have in a BPF object with these options. Loads no object
 * into the kernel.
 */
export function describeMaps(options: ObjectOptions, names: readonly MapName[]): Map<MapName, MapDescription> {
  const object = openObject(options, 0);
  try {
    return new Map(names.map((name) => [name, object.describe(name)]));
  } finally {
    object.close();
  }
}

export function loadObject(options: ObjectOptions, before: Before = NOTHING_BEFORE): LoadedObject {
  const object = loadPrograms(options, before.maps, [
    ...PROGRAMS_OF_EACH,
    ...(options.migrates === true ? MIGRATING : []),
    ...(options.measures === true ? (['weir_bench'] as const) : []),
  ]);
  let judge: BpfObject | undefined;
  let ipv6: LoadedIpv6Object | null = null;
  try {
    if (!before.maps.has('layouts')) writeLayouts(object, MAPS);
    const { slotCount = SLOT_COUNT.usual, slotLines } = options;
    const timer = new RevertTimer({ map: object.mapFd('revert'), program: object.programFd('weir_set_revert') });
    const fds = { program: object.mapFd('program'), active: object.mapFd('active') };
    const slots = new Slots(fds, slotLines, slotCount, timer);
    slots.succeed(before.word, before.deadline);
    const prover = new Prover(object);
    if (options.enforcesIpv6 === true) ipv6 = loadIpv6Object({ options, object }, before.ipv6Maps);
    const routes = new RouteCopy(object, options.copiesRoutes ?? false);
    const objects = familyObjectsOf({ object, ipv6 });
    const grants = before.grants ?? new MappedGrants(objects, options.grantCapacity, slotCount);
    if (before.grants !== undefined) grants.passTo(objects, slotCount);
    else if (before.maps.has('patterns')) grants.recover(slots.usedSlots);
    const mappedMembers = before.members ?? mapMembers(objects, slotCount);
    before.members?.passTo(objects, slotCount);
    return {
      options,
      object,
      slots,
      grants,
      members: mappedMembers.members,
      mappedMembers,
      prover,
      routes,
      ipv6,
      judgeFd: () => {
        judge ??= loadPrograms(options, mapsOf(object, MAPS), ['weir_forward']);
        return judge.programFd('weir_forward');
      },
      close: (keeps) => {
        slots.unmap();
        prover.unmap();
        routes.unmap();
        if (keeps === undefined) {
          grants.unmap();
          mappedMembers.unmap();
        }
        judge?.close();
        ipv6?.close();
        object.close();
      },
    };
  } catch (error) {
    ipv6?.close();
    object.close();
    throw error;
  }
}

/** The BPF object of IPv6 that is loaded into the kernel. `hasNewFlows`: its flow table is new. */
export type LoadedIpv6Object = {
  readonly object: BpfObject;
  readonly prover: Prover;
  readonly hasNewFlows: boolean;
  close(): void;
};

/** Returns the options of the BPF object of IPv6 beside the object of IPv4 with `options`. */
function ipv6Options(options: ObjectOptions): ObjectOptions {
  return { ...options, keepMs: null, objectPath: builtIpv6Object, family: 'ipv6' };
}

/** Like `describeMaps`, for the maps of the BPF object of IPv6 beside the object of IPv4 with `options`. */
export function describeIpv6Maps(options: ObjectOptions): Map<MapName, MapDescription> {
  return describeMaps(ipv6Options(options), IPV6_MAPS);
}

/**
 * Loads the BPF object of IPv6, whose programs handle the IPv6 packets of the hooks of the object of IPv4 if
 * that has the setting `enforcesIpv6`. They apply the policies in the program slots of the object of IPv4.
 * `reused`: see `Before.ipv6Maps`.
 */
export function loadIpv6Object(
  { options, object: ipv4 }: Pick<LoadedObject, 'options' | 'object'>,
  reused: ReadonlyMap<MapName, number> = new Map(),
): LoadedIpv6Object {
  const maps = new Map([...mapsOf(ipv4, SHARED_BY_FAMILIES), ...reused]);
  const object = loadPrograms(ipv6Options(options), maps, IPV6_PROGRAMS);
  try {
    const hasNewFlows = !reused.has('flows');
    if (IPV6_MAPS.some((name) => !reused.has(name))) writeLayouts(object, IPV6_MAPS);
    for (const [index, name] of CALLED.entries()) object.setProgram('ipv6_programs', index, object.programFd(name));
    const prover = new Prover(object);
    return {
      object,
      prover,
      hasNewFlows,
      close: () => {
        prover.unmap();
        object.close();
      },
    };
  } catch (error) {
    object.close();
    throw error;
  }
}

/**
 * Loads these programs of the BPF object into the kernel. They use the maps in `reused`, and new maps in
 * place of all others. Does not map the maps into the memory of this process.
 */
export function loadPrograms(
  options: ObjectOptions,
  reused: ReadonlyMap<MapName, number>,
  programs: readonly ProgramName[],
): BpfObject {
  const vitalsFd = reused.get('vitals');
  const seed = vitalsFd === undefined ? randomInt(2 ** 32) : withVitals(vitalsFd, (words) => words[FLOW_SEED] ?? 0);
  const object = openObject(options, seed);
  try {
    for (const [name, fd] of reused) object.reuse(name, fd);
    object.select(programs);
    object.load();
    withVitals(object.mapFd('vitals'), (words) => {
      words[FLOW_SEED] = seed;
    });
    return object;
  } catch (error) {
    object.close();
    throw error;
  }
}

export function mapsOf(object: BpfObject, names: readonly MapName[]): Map<MapName, number> {
  return new Map(names.map((name) => [name, object.mapFd(name)]));
}

/**
 * Returns the BPF objects: those of both IP families, or only that of IPv4 if the node does not enforce IPv6.
 */
export function objectsOf({ object, ipv6 }: Pick<LoadedObject, 'object' | 'ipv6'>): readonly BpfObject[] {
  return ipv6 === null ? [object] : [object, ipv6.object];
}

/** Returns the BPF objects with the maps of `MappedGrants` and `MappedMembers`. */
export function familyObjectsOf({ object, ipv6 }: Pick<LoadedObject, 'object' | 'ipv6'>): GrantObjects {
  return { ipv4: object, ipv6: ipv6 === null ? null : ipv6.object };
}

/**
 * Starts the BPF timer whose sweep ends expired flows. If an earlier object shares the map `sweep`, this
 * timer replaces the timer of that object.
 */
export function startSweep(object: BpfObject): void {
  const start = new TestRun(object.programFd('weir_start_sweep'), undefined, undefined, undefined);
  const failed = start.runWithMemory();
  if (failed < 0) throw new KernelFailure('start the sweep of expired flows', -failed);
  if (failed !== 0) throw new Error(`start the sweep of expired flows: the BPF program failed in step ${failed}`);
}

function withVitals<T>(fd: number, use: (words: Uint32Array) => T): T {
  const memory = new MappedMemory('vitals', fd, VITALS_BYTES);
  try {
    return use(memory.words);
  } finally {
    memory.unmap();
  }
}

function openObject(options: ObjectOptions, flowSeed: number): BpfObject {
  const object = new BpfObject(options.objectPath, options.family);
  try {
    object.resizeValues('program', options.slotLines * LINE_BYTES);
    object.resize('flows', flowSlots(options.flowCapacity));
    object.resize('tallies', flowSlots(options.flowCapacity));
    object.resize('flow_tags', flowSets(options.flowCapacity));
    if (!options.direct) object.resize('ways', 1);
    object.resize('hits', options.hitCapacity);
    const { slotCount = SLOT_COUNT.usual } = options;
    object.resize('program', slotCount);
    object.resize('rank_hits', slotCount * options.rankCapacity);
    object.resize('third_names', slotCount === SLOT_COUNT.usual ? 1 : PATTERNS);
    object.resize('third_indexes', slotCount === SLOT_COUNT.usual ? 1 : MEMBER_SETS);
    object.resize('grants', linesFor(options.grantCapacity, options.family));
    object.resize('patterns', PATTERNS);
    object.resize('members', memberLines(options.family ?? 'ipv4'));
    object.resize('member_sets', MEMBER_SETS);
    object.configure({ ...options, flowSeed });
    return object;
  } catch (error) {
    object.close();
    throw error;
  }
}

type Options = Omit<ObjectOptions, 'slotCount' | 'slotLines' | 'rankCapacity' | 'hitCapacity' | 'migrates'>;

const FLOWS = 1_024;
const GRANTS = 1_024;
const LINES = 8_192;

/**
 * Loads the BPF programs with small maps of their own, and frees them. Returns why the kernel refuses a
 * program; null if it loads all. `judges`: whether the node has NAT rules, which need the forward judge (a
 * netfilter program).
 */
export function refusalOf(options: Options, judges: boolean): string | null {
  try {
    const small = { ...options, flowCapacity: FLOWS, grantCapacity: GRANTS, ...smallestCapacity(LINES) };
    const loaded = loadObject(small);
    try {
      if (judges && options.judges === true) loaded.judgeFd();
    } finally {
      loaded.close();
    }
    return null;
  } catch (failure) {
    return (failure as Error).message.split('\n')[0] ?? '';
  }
}
