import { existsSync, readFileSync } from 'node:fs';
import type { Attachment, Counter, ForwardingNow } from '#contracts/datapath/datapath.js';
import { COUNTER_INDEX, DROP_REASON } from '#contracts/datapath/datapath-numbers.js';
import type { RenamedInterface } from '#contracts/datapath/renamed-interface.js';
import type { Family } from '#contracts/policy/policy-model.js';
import { listInterfaces } from '#dataplane/attach/interfaces/interfaces.js';
import {
  type PolicedInterface,
  policedAmong,
  readPolicedNames,
  renamedAmong,
} from '#dataplane/attach/interfaces/policed-names.js';
import { lockHolder } from '#dataplane/attach/ownership.js';
import { Pins } from '#dataplane/attach/pins.js';
import { mapSetOf, weirHooks } from '#dataplane/attach/weir-hooks.js';
import { guardDropped } from '#dataplane/guard/nftables-guard.js';
import { mapShape, type ProgramInfo } from '#dataplane/loader/bpf-fd.js';
import { MAPS, type MapName } from '#dataplane/loader/bpf-object.js';
import { readCounters } from '#dataplane/loader/counters.js';
import type { Direction } from '#dataplane/loader/direction.js';
import { IPV6_MAPS } from '#dataplane/object/loaded-object.js';
import { mapSetsIn, type PinnedMaps } from '#dataplane/object/map-set.js';
import { guardOf } from '#dataplane/translation/translation.js';
import { libbpf } from '#libc/bpf/libbpf.js';
import { check } from '#libc/libc.js';
import type { Process } from '#libc/proc/proc-sockets.js';
import { type ConfiguredDataplane, forwardingOf } from './forwarding-status.js';

/**
 * The state of the datapath in the kernel. Reading the state changes nothing, and works while no Weir
 * process runs.
 */
export type DataplaneStatus = {
  readonly pinPath: string;
  /**
   * The Weir process that uses the pin path; null if no process runs. Without a process, the datapath still
   * enforces the last policy.
   */
  readonly owner: Process | null;
  readonly hooks: readonly HookStatus[];
  /**
   * Configured interface names without `*` that no interface has, and interfaces that match a configured name
   * but have no hook.
   */
  readonly unpoliced: readonly string[];
  /** Policed interfaces that no configured name matches any more. */
  readonly renamed: readonly RenamedInterface[];
  /**
   * Whether the rules of the guard (Weir's nftables rules) are in the kernel; null if the configuration is
   * not known.
   */
  readonly guardStands: boolean | null;
  /**
   * How the datapath forwards allowed packets (directly or through the network stack), and why; null if no
   * compiled policy is in force.
   */
  readonly forwarding: ForwardingNow | null;
  /** Like `forwarding`, for IPv6; null if the datapath enforces no IPv6 policies. */
  readonly ipv6Forwarding: ForwardingNow | null;
  /** The compiled policy in force; null if no policy was ever put in force with this pin path. */
  readonly inForce: InForce | null;
  /**
   * Paths of the folders with pinned maps. There is more than one folder while a new datapath takes over from
   * an earlier one.
   */
  readonly sets: readonly string[];
  readonly maps: readonly MapStatus[];
  readonly sweep: Sweep | null;
  readonly counters: Readonly<Record<'allow' | 'audit' | 'flows_opened' | 'flows_closed', Counter>> | null;
  /** Packets and bytes that were dropped, by the name of the drop reason. */
  readonly drops: Readonly<Record<string, Counter>>;
};
type HookStatus = {
  readonly interface: string;
  readonly direction: Direction;
  readonly by: Attachment['by'];
  readonly program: Pick<ProgramInfo, 'id' | 'name' | 'tag'>;
  /**
   * The pin path under which the maps or the link of the BPF program are pinned; null if they are not
   * pinned.
   */
  readonly pinPath: string | null;
  readonly layout: number | null;
};
type InForce = {
  readonly epoch: number;
  readonly generation: number;
  /**
   * The time since when the kernel enforces the policy: ISO 8601, UTC. Null if the build that activated the
   * policy did not record it.
   */
  readonly since: string | null;
  readonly imageSha256: string;
  readonly layout: number;
};
type MapStatus = {
  /** The name of the pin in its set: `ipv6/flows` is the map `flows` of the BPF object of IPv6. */
  readonly name: string;
  readonly id: number;
  /** Name of the map type as in `enum bpf_map_type` of the kernel, in lower case. */
  readonly type: string;
  /** Number of entries in use; null for a map whose entries Weir does not count. */
  readonly entries: number | null;
  readonly capacity: number;
  readonly bytes: number;
};
/**
 * Results of the last sweep (the periodic walk over the flow table, which ends expired flows). The sweep
 * runs in steps. `agoMs`: milliseconds since its last step began. `tookMs`: duration of all its steps,
 * without the pauses.
 */
type Sweep = { readonly agoMs: number; readonly tookMs: number; readonly flows: number; readonly halfOpen: number };

/** The names of the BPF map types that the datapath uses, by their number in `enum bpf_map_type`. */
const MAP_TYPES: Readonly<Record<number, string>> = {
  2: 'array',
  3: 'prog_array',
  6: 'percpu_array',
  9: 'lru_hash',
  27: 'ringbuf',
};

/**
 * Maps whose reported capacity is half of their entries. `rank_hits` has one half for each program slot.
 * `flows` has twice as many entries as flows for which it guarantees room.
 */
const HALF_CAPACITY_MAPS: ReadonlySet<MapName> = new Set(['rank_hits', 'flows']);

export type StatusOptions = {
  readonly pinPath: string;
  readonly configured?: ConfiguredDataplane;
};

export function dataplaneStatus({ pinPath, configured }: StatusOptions): DataplaneStatus {
  const sets = mapSetsIn(pinPath);
  try {
    const interfaces = listInterfaces();
    const hooks = weirHooks(interfaces, pinPath);
    const pins = new Pins(pinPath);
    const policed = policedAmong(interfaces, configured?.interfaces ?? [], readPolicedNames(pins.names));
    const renamed = renamedAmong(policed).map(({ renamedFrom, name }) => ({ from: renamedFrom, to: name }));
    const inForce = sets.findLast((set) => set.word() !== 0);
    const counters = inForce === undefined ? [] : readCounters(inForce.fd('counters'));
    const counter = (index: number): Counter => counters[index] ?? { packets: 0n, bytes: 0n };
    const owner = existsSync(pinPath) ? (lockHolder(pinPath) ?? null) : null;
    const names = hooks.map(({ interface: { name } }) => name);
    const expected = configured && { ...configured, guard: guardOf(configured, pins) };
    const forwardingNow = (family: Family): ForwardingNow | null =>
      inForce === undefined ? null : forwardingOf(family, inForce, hooks, owner !== null, expected);
    return {
      pinPath,
      owner,
      hooks: hooks.map(({ interface: { name }, direction, by, program, pinPath: pinnedIn }) => {
        const set = mapSetOf(program, sets);
        const { id, tag } = program;
        return {
          interface: name,
          direction,
          by,
          program: { id, name: program.name, tag },
          pinPath: set === undefined ? (pinnedIn ?? null) : pinPath,
          layout: set === undefined || set.word() === 0 ? null : layoutOf(set),
        };
      }),
      unpoliced: configured === undefined ? [] : unpolicedOf(configured.interfaces, policed, names),
      renamed,
      guardStands: expected?.guard.stands() ?? null,
      inForce: inForce === undefined ? null : policyIn(inForce),
      forwarding: forwardingNow('ipv4'),
      ipv6Forwarding: inForce?.ipv6.has('ways') === true ? forwardingNow('ipv6') : null,
      sets: sets.map(({ folder }) => folder),
      maps: inForce === undefined ? [] : [...mapsOf(inForce), ...ipv6MapsOf(inForce)],
      sweep: inForce === undefined ? null : sweepOf(inForce),
      counters:
        inForce === undefined
          ? null
          : {
              allow: counter(COUNTER_INDEX.allow),
              audit: counter(COUNTER_INDEX.audit),
              flows_opened: counter(COUNTER_INDEX.flows_opened),
              flows_closed: counter(COUNTER_INDEX.flows_closed),
            },
      drops: Object.fromEntries(
        Object.entries(DROP_REASON)
          .filter(([name]) => name !== 'none')
          .map(([name, number]) => [name, name === 'guard' ? guardDropped() : counter(COUNTER_INDEX.drops + number)]),
      ),
    };
  } finally {
    for (const set of sets) set.close();
  }
}

function unpolicedOf(
  patterns: readonly string[],
  policed: readonly PolicedInterface[],
  hooked: readonly string[],
): string[] {
  const missing = patterns.filter(
    (pattern) => !pattern.endsWith('*') && !policed.some(({ name, renamedFrom = name }) => renamedFrom === pattern),
  );
  return [...missing, ...policed.map(({ name }) => name).filter((name) => !hooked.includes(name))];
}

function layoutOf(set: PinnedMaps): number {
  return set.inspect(({ layoutVersion }) => layoutVersion);
}

function policyIn(set: PinnedMaps): InForce | null {
  return set.inspect((slots) => {
    const found = slots.inForce();
    if (found === null) return null;
    const { generation, imageSha256, sinceMs } = found;
    const since = sinceMs === null ? null : new Date(sinceMs).toISOString();
    return { epoch: slots.epoch, generation, since, imageSha256, layout: slots.layoutVersion };
  });
}

function mapsOf(set: PinnedMaps): MapStatus[] {
  const lines = set.inspect((slots) => slots.sizeInForce().lines);
  return statusOf(set, MAPS, { program: lines, flows: sweepOf(set)?.flows ?? null });
}

function ipv6MapsOf({ ipv6 }: PinnedMaps): MapStatus[] {
  const maps = statusOf(ipv6, IPV6_MAPS, { flows: sweepOf(ipv6)?.flows ?? null });
  return maps.map((map) => ({ ...map, name: `ipv6/${map.name}` }));
}

/** Returns the status. `entries`: the number of used entries, for the maps whose entries Weir counts. */
function statusOf(
  set: PinnedMaps,
  names: readonly MapName[],
  entries: Partial<Record<MapName, number | null>>,
): MapStatus[] {
  return names
    .filter((name) => set.has(name))
    .map((name) => {
      const { maxEntries, type } = mapShape(set.fd(name));
      return {
        name,
        id: set.id(name),
        type: MAP_TYPES[type] ?? `${type}`,
        entries: entries[name] ?? null,
        capacity: name === 'program' ? set.slotLines() : HALF_CAPACITY_MAPS.has(name) ? maxEntries / 2 : maxEntries,
        bytes: Number(/^memlock:\s+(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${set.fd(name)}`, 'utf8'))?.[1] ?? 0),
      };
    });
}

function sweepOf(set: PinnedMaps): Sweep | null {
  if (!set.has('vitals')) return null;
  const layout = set.describe('vitals').value;
  const value = new Uint8Array(layout.size);
  check('read vitals', libbpf().bpf_map_lookup_elem(set.fd('vitals'), new Uint8Array(4), value));
  const view = new DataView(value.buffer);
  const at = (name: string): number => layout.fields[name]?.offset ?? 0;
  const swept = view.getBigUint64(at('swept_ns'), true);
  return {
    agoMs: Number((process.hrtime.bigint() - swept) / 1_000_000n),
    tookMs: Number(view.getBigUint64(at('sweep_took_ns'), true)) / 1e6,
    flows: view.getUint32(at('flows'), true),
    halfOpen: view.getUint32(at('half_open'), true),
  };
}
