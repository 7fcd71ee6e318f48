import type { Counter } from '#dataplane/datapath.js';
import { Accounts } from '#dataplane/kernel/accounts.js';
import { builtObject } from '#dataplane/kernel/built.js';
import { readCounters } from '#dataplane/kernel/counters.js';
import { check, libbpf } from '#dataplane/kernel/libc.js';
import { loadObject, type ObjectOptions } from '#dataplane/kernel/loaded-object.js';
import { DEFAULT_TIMEOUTS_MS } from '#dataplane/kernel/options.js';
import type { Pins } from '#dataplane/kernel/pins.js';
import { flipProgram, stageProgram } from '#dataplane/kernel/staging.js';
import { TestRun } from '#dataplane/kernel/test-run.js';
import { FLOW_BYTES, FLOW_KEY_BYTES, type Flow, readFlow } from '#dataplane/program/flow.js';
import { COUNTER_INDEX, DROP_REASON } from '#dataplane/program/numbers.js';
import type { Packet } from '#policy/model.js';
import type { Program } from '#policy/program.js';
import { type FrameOptions, MAX_FRAME, writeFrame } from '#test/dataplane/frame.js';

const MARK_MASK = 0x00f0_0000;
export const GUARD_BIT = 0x0010_0000;
export const PASSED = -1;
export const DROPPED = 2;

// struct __sk_buff
const SKB = { size: 192, mark: 8, vlanPresent: 24, cb: 48 } as const;

export type Judged = { readonly returned: number; readonly word: number; readonly mark: number };

/** The datapath loaded on its own, attached to nothing, run over crafted frames. Every packet counts as forwarded. */
export function loadForTest(options: Partial<ObjectOptions> = {}, pins?: Pins) {
  const loaded = loadObject(
    {
      objectPath: builtObject,
      slotLines: 32_768,
      flowCapacity: 4_096,
      halfOpenCapacity: 4_096,
      cacheLines: 4_096,
      rankCapacity: 65_536,
      hitCapacity: 1_024,
      denyEvents: 100,
      flowEvents: 1_000,
      timeoutsMs: DEFAULT_TIMEOUTS_MS,
      policeLocal: false,
      markMask: MARK_MASK,
      reversePath: 'off',
      passNonIpv4: false,
      judgeAll: true,
      traceWord: true,
      ...options,
    },
    pins,
  );
  const accounts = new Accounts(loaded.object, loaded.slots);
  const frame = new Uint8Array(MAX_FRAME);
  const context = new Uint8Array(SKB.size);
  const contextView = new DataView(context.buffer);
  const out = new Uint8Array(SKB.size);
  const outView = new DataView(out.buffer);
  const sweep = new TestRun(loaded.object.programFd('weir_sweep'), undefined, undefined, undefined);
  const ingress = new TestRun(loaded.object.programFd('weir_ingress'), frame, context, out);
  const tables = { flows: loaded.object.mapFd('flows'), half_open: loaded.object.mapFd('half_open') };
  const key = new Uint8Array(FLOW_KEY_BYTES);
  const value = new Uint8Array(FLOW_BYTES);

  const runFrame = (length: number, mark = 0): Judged => {
    contextView.setUint32(SKB.mark, mark, true);
    const returned = ingress.run(length);
    return { returned, word: outView.getUint32(SKB.cb, true), mark: outView.getUint32(SKB.mark, true) };
  };
  return {
    ...loaded,
    accounts,
    close: () => {
      accounts.close();
      loaded.close();
    },
    frame,
    context: contextView,
    runFrame,
    judge(packet: Packet, frameOptions: FrameOptions = {}, mark = 0): Judged {
      return runFrame(writeFrame(frame, packet, frameOptions), mark);
    },
    activate(program: Program, generation = 1): number {
      stageProgram({ ...loaded, accounts }, program, generation);
      return flipProgram({ ...loaded, accounts });
    },
    /** Removes every flow and answers how many there were. */
    flushFlows(): number {
      let count = 0;
      for (const table of Object.values(tables)) {
        while (libbpf().bpf_map_get_next_key(table, null, key) >= 0) {
          check('delete flow', libbpf().bpf_map_delete_elem(table, key));
          count++;
        }
      }
      return count;
    },
    /** The first flow of a table, with what was counted until now; undefined where it has none. */
    flowIn(table: keyof typeof tables): Flow | undefined {
      sweep.run();
      if (libbpf().bpf_map_get_next_key(tables[table], null, key) < 0) return undefined;
      check('read flow', libbpf().bpf_map_lookup_elem(tables[table], key, value));
      return readFlow(new DataView(value.buffer));
    },
    judgedPackets(): number {
      const counters = readCounters(loaded.object.mapFd('counters'));
      return counters.reduce((sum, { packets }) => sum + Number(packets), 0);
    },
    /** Counters that are not 0, by name. */
    counted(): Record<string, number> {
      const counters: Counter[] = readCounters(loaded.object.mapFd('counters'));
      const named = [
        ...Object.entries(COUNTER_INDEX).filter(([name]) => name !== 'drops'),
        ...Object.entries(DROP_REASON).map(([name, number]) => [`drop_${name}`, COUNTER_INDEX.drops + number] as const),
      ];
      return Object.fromEntries(
        named.flatMap(([name, index]) => {
          const packets = Number(counters[index]?.packets ?? 0n);
          return packets === 0 ? [] : [[name, packets]];
        }),
      );
    },
  };
}
export type Loaded = ReturnType<typeof loadForTest>;
