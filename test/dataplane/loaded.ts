import { type Counter, NO_EVENTS } from '#contracts/datapath/datapath.js';
import { COUNTER_INDEX, DROP_REASON } from '#contracts/datapath/datapath-numbers.js';
import { DEFAULT_TIMEOUTS_MS } from '#contracts/datapath/datapath-options.js';
import type { AddressOf, Family, Packet } from '#contracts/policy/policy-model.js';
import type { Program } from '#contracts/policy/program.js';
import { FLOW_LAYOUTS, type Flow, KEY_USED, readFlow } from '#dataplane/abi/flow.js';
import { ACTIVE } from '#dataplane/activate/slots.js';
import type { GroupCounters } from '#dataplane/flows/hits/group-counters.js';
import { TrafficStatistics } from '#dataplane/flows/traffic-statistics.js';
import { mapShape } from '#dataplane/loader/bpf-fd.js';
import { builtObject, type MapName } from '#dataplane/loader/bpf-object.js';
import { readCounters } from '#dataplane/loader/counters.js';
import { type Before, loadObject, type ObjectOptions } from '#dataplane/object/loaded-object.js';
import { flipProgram, stageProgram } from '#dataplane/thread/staging.js';
import { libbpf } from '#libc/bpf/libbpf.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { check } from '#libc/libc.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { ALL_EVENTS } from '#test/dataplane/all-events.js';
import { MAX_FRAME } from '#test/dataplane/frame.js';
import { FAMILY_FRAMES, type OptionsOf } from './family-frames.js';
import { EXEMPT_BIT, MARK_MASK } from './marks.js';

/** Options of the BPF object of IPv4. With the family `ipv6`, IPv6 packets run through the object of IPv6. */
export type TestOptions<F extends Family = 'ipv4'> = Partial<Omit<ObjectOptions, 'family'>> & { readonly family?: F };

const KEY_CLAIMED = 2;
/**
 * The bit SPILLED in the tag of way 0 (the first place for a flow) of a flow set. The datapath sets this bit
 * if the set is crowded and a new flow is therefore stored in its second flow set.
 */
const SPILLED = 0x40;

export const PASSED = -1;
export const DROPPED = 2;
export const SENT = 7;

// Size of struct __sk_buff and byte offsets of its fields.
export const SKB = {
  size: 192,
  mark: 8,
  priority: 32,
  ingressIfindex: 36,
  ifindex: 40,
  cb: 48,
  gsoSegments: 164,
  gsoSize: 176,
} as const;

export type PacketResult = { readonly returned: number; readonly word: number; readonly mark: number };

/**
 * The hook of a test run, and the sender of the packet. `in` is the ingress hook. The others are the egress
 * hook: with a packet of the node (`out_of_node`), of a socket of Weir whose packet mark exempts it from the
 * policy (`out_exempt`), or from an unpoliced interface (`out_foreign`).
 */
export type Entry = 'in' | 'out_of_node' | 'out_exempt' | 'out_foreign';

/** The options of a BPF object that treats every packet as forwarded. */
export function objectOptions(options: Partial<ObjectOptions> = {}): ObjectOptions {
  return {
    objectPath: builtObject,
    slotLines: 32_768,
    flowCapacity: 4_096,
    flowShare: 1,
    rankCapacity: 65_536,
    hitCapacity: 1_024,
    denyEvents: 100,
    flowEvents: 1_000,
    timeoutsMs: DEFAULT_TIMEOUTS_MS,
    policeLocal: false,
    direct: false,
    fibFlags: 0,
    grantCapacity: 4_096,
    markMask: MARK_MASK,
    reversePath: 'off',
    passIpv6: false,
    passNonIpv4: false,
    classifyAll: true,
    traceWord: true,
    enforcesIpv6: false,
    ...options,
  };
}

/**
 * Loads the BPF programs, and returns functions that run the programs on crafted frames. The programs are not
 * attached to an interface. By default (`classifyAll`) they treat every packet as forwarded. The functions
 * that write frames, or read flows and fragments, are for the IP family of the options.
 */
export function loadForTest<F extends Family = 'ipv4'>(
  { family = 'ipv4' as F, ...options }: TestOptions<F> = {},
  predecessor?: Before,
  groupCounters?: GroupCounters,
) {
  const layout = FLOW_LAYOUTS[family];
  const frames = FAMILY_FRAMES[family];
  const line = layout.structBytes / 4;
  const tallyWords = layout.bytes / 4 - line;
  const use = layout.keyOffsets.protocol / 4;
  const loaded = loadObject(objectOptions({ enforcesIpv6: family === 'ipv6', ...options }), predecessor);
  const ofFamily = family === 'ipv6' && loaded.ipv6 ? loaded.ipv6.object : loaded.object;
  const trafficStatistics = new TrafficStatistics(loaded, undefined, groupCounters);
  const frame = new Uint8Array(MAX_FRAME);
  const context = new Uint8Array(SKB.size);
  const contextView = new DataView(context.buffer);
  const out = new Uint8Array(SKB.size);
  const outView = new DataView(out.buffer);
  const sweep = new TestRun(ofFamily.programFd('weir_sweep'), undefined, undefined, undefined);
  const ingress = new TestRun(loaded.object.programFd('weir_ingress'), frame, context, out);
  const egress = new TestRun(loaded.object.programFd('weir_egress'), frame, context, out);
  const active = new MappedMemory('active', loaded.object.mapFd('active'), ACTIVE.bytes);
  const memory = (name: MapName): MappedMemory => {
    const fd = ofFamily.mapFd(name);
    const { maxEntries, valueSize } = mapShape(fd);
    return new MappedMemory(name, fd, maxEntries * valueSize);
  };
  const table = { flows: memory('flows'), tallies: memory('tallies'), tags: memory('flow_tags') };

  const runFrame = (length: number, mark = 0, entry: Entry = 'in'): PacketResult => {
    contextView.setUint32(SKB.mark, entry === 'out_exempt' ? mark | EXEMPT_BIT : mark, true);
    contextView.setUint32(SKB.ingressIfindex, entry === 'out_foreign' ? 1 : 0, true);
    const returned = (entry === 'in' ? ingress : egress).run(length);
    return { returned, word: outView.getUint32(SKB.cb, true), mark: outView.getUint32(SKB.mark, true) };
  };
  const flush = (table: number): void => {
    const key = new Uint8Array(mapShape(table).keySize);
    while (libbpf().bpf_map_get_next_key(table, null, key) >= 0) {
      check('delete entry', libbpf().bpf_map_delete_elem(table, key));
    }
  };
  /**
   * Returns the bytes of each flow in the kernel: the entry of the flow in the map `flows`, followed by its
   * entry in the map `tallies`.
   */
  const records = (): Uint8Array<ArrayBuffer>[] => {
    const { flows, tallies } = table;
    const found: Uint8Array<ArrayBuffer>[] = [];
    for (let at = 0, tally = 0; at < flows.words.length; at += line, tally += tallyWords) {
      if ((flows.words[at + use] as number) >>> 16 !== KEY_USED) continue;
      const words = new Uint32Array(layout.bytes / 4);
      words.set(flows.words.subarray(at, at + line));
      words.set(tallies.words.subarray(tally, tally + tallyWords), line);
      found.push(new Uint8Array(words.buffer));
    }
    return found;
  };
  const readFlows = (): Flow<AddressOf<F>>[] =>
    records().map((record) => readFlow(layout, new DataView(record.buffer)));
  let occupied = 0;
  /**
   * Marks `occupied` ways (places for a flow) of the only flow set as claimed, so that flows cannot use them.
   */
  const occupy = (): void => {
    const lines = new Uint8Array(table.flows.buffer);
    const tags = new Uint8Array(table.tags.buffer);
    for (let way = 8 - occupied; way < 8; way++) {
      lines[way * layout.structBytes + layout.keyOffsets.use] = KEY_CLAIMED;
      tags[way] = 0x3f;
    }
  };
  const countedSinceLoad = (): Record<string, number> => {
    const counters: Counter[] = readCounters(loaded.object.mapFd('counters'));
    const named = [
      ...Object.entries(COUNTER_INDEX).filter(([name]) => name !== 'drops'),
      ...Object.entries(DROP_REASON).map(([name, number]) => [`drop_${name}`, COUNTER_INDEX.drops + number] as const),
    ];
    return Object.fromEntries(named.map(([name, index]) => [name, Number(counters[index]?.packets ?? 0n)]));
  };
  let before = countedSinceLoad();
  return {
    ...loaded,
    trafficStatistics,
    frame,
    context: contextView,
    /** The `__sk_buff` context after the last test run. */
    contextOut: outView,
    runFrame,
    runPacket(packet: Packet<AddressOf<F>>, frameOptions?: OptionsOf<F>, mark = 0, entry: Entry = 'in'): PacketResult {
      return runFrame(frames.write(frame, packet, frameOptions), mark, entry);
    },
    stage: (program: Program) => stageProgram({ ...loaded, trafficStatistics }, program, 1),
    flip: () => flipProgram({ ...loaded, trafficStatistics }),
    activate(program: Program, generation = 1): number {
      stageProgram({ ...loaded, trafficStatistics }, program, generation);
      return flipProgram({ ...loaded, trafficStatistics }).epoch;
    },
    /** Puts the compiled policy that is already in the idle slot in force. Each call begins a new epoch. */
    switchSlot(): void {
      active.words[ACTIVE.word] = (active.words[ACTIVE.word] ?? 0) ^ 1;
      this.newEpoch();
    },
    newEpoch(): void {
      active.words[ACTIVE.word] = (active.words[ACTIVE.word] ?? 0) + 2;
    },
    wantEvents(wanted: boolean): void {
      loaded.slots.setEventsWanted(wanted ? ALL_EVENTS : NO_EVENTS);
    },
    /** Removes every flow and returns the number of removed flows. */
    flushFlows(): number {
      const there = readFlows().length;
      table.flows.words.fill(0);
      table.tallies.words.fill(0);
      table.tags.words.fill(0);
      occupy();
      return there;
    },
    /**
     * Reserves `by` of the 8 ways (places for a flow), so that flows cannot use them. The flow table must
     * have only one flow set, which requires a capacity of at most 4.
     */
    narrow(by: number): void {
      occupied = by;
      occupy();
    },
    epoch: () => loaded.slots.epoch,
    /**
     * Removes all flows and fragments, and ends the period in which a TCP packet without SYN may open a flow.
     */
    forgetFlows(): void {
      this.newEpoch();
      this.flushFlows();
      flush(ofFamily.mapFd('fragments'));
      loaded.slots.setPickupUntil(0n);
    },
    /** Removes all flows and fragments, and makes `counted` start at zero. */
    forget(): void {
      this.forgetFlows();
      context.fill(0);
      before = countedSinceLoad();
    },
    sweep: () => sweep.run(),
    records,
    /** Returns the number of entries of the map `tallies` that are not zero but belong to no flow. */
    strayTallies(): number {
      const { flows, tallies } = table;
      let stray = 0;
      for (let at = 0, tally = 0; at < flows.words.length; at += line, tally += tallyWords) {
        if ((flows.words[at + use] as number) >>> 16 !== 0) continue;
        if (tallies.words.subarray(tally, tally + tallyWords).some((word) => word !== 0)) stray++;
      }
      return stray;
    },
    /** Returns the number of used ways (places for a flow): those with a tag other than 0 and SPILLED. */
    takenWays(): number {
      const tags = new Uint8Array(table.tags.buffer);
      return tags.filter((tag, at) => (at % 8 === 0 ? tag & ~SPILLED : tag) !== 0).length;
    },
    /** Returns the established flows or the half-open flows, with counts that a sweep has just updated. */
    flowsIn(which: 'flows' | 'half_open'): Flow<AddressOf<F>>[] {
      sweep.run();
      return readFlows().filter(({ halfOpen }) => halfOpen === (which === 'half_open'));
    },
    /** Returns the first established or half-open flow, or undefined without such a flow. */
    flowIn(which: 'flows' | 'half_open'): Flow<AddressOf<F>> | undefined {
      return this.flowsIn(which)[0];
    },
    classifiedPackets(): number {
      const counters = readCounters(loaded.object.mapFd('counters'));
      return counters.reduce((sum, { packets }) => sum + Number(packets), 0);
    },
    /** Returns the counters that changed since the last `forget`, by name. */
    counted(): Record<string, number> {
      const differences = Object.entries(countedSinceLoad()).map(([name, count]) => [
        name,
        count - (before[name] ?? 0),
      ]);
      return Object.fromEntries(differences.filter(([, count]) => count !== 0)) as Record<string, number>;
    },
    close(): void {
      for (const memory of Object.values(table)) memory.unmap();
      active.unmap();
      trafficStatistics.close();
      loaded.close();
    },
  };
}
export type Loaded<F extends Family = 'ipv4'> = ReturnType<typeof loadForTest<F>>;
