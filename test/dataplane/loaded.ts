import type { Counter } from '#dataplane/datapath.js';
import { builtObject } from '#dataplane/kernel/built.js';
import { readCounters } from '#dataplane/kernel/counters.js';
import { check, libbpf } from '#dataplane/kernel/libc.js';
import { loadObject, type ObjectOptions } from '#dataplane/kernel/loaded-object.js';
import { flipProgram, stageProgram } from '#dataplane/kernel/staging.js';
import { TestRun } from '#dataplane/kernel/test-run.js';
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
export function loadForTest(options: Partial<ObjectOptions> = {}) {
  const loaded = loadObject(
    {
      objectPath: builtObject,
      slotLines: 32_768,
      flowCapacity: 4_096,
      grantCapacity: 4_096,
      markMask: MARK_MASK,
      reversePath: 'off',
      passNonIpv4: false,
      judgeAll: true,
      traceWord: true,
      ...options,
    },
    undefined,
  );
  const frame = new Uint8Array(MAX_FRAME);
  const context = new Uint8Array(SKB.size);
  const contextView = new DataView(context.buffer);
  const out = new Uint8Array(SKB.size);
  const outView = new DataView(out.buffer);
  const ingress = new TestRun(loaded.object.programFd('weir_ingress'), frame, context, out);
  const flows = loaded.object.mapFd('flows');
  const key = new Uint8Array(16);
  const value = new Uint8Array(88);

  const runFrame = (length: number, mark = 0): Judged => {
    contextView.setUint32(SKB.mark, mark, true);
    const returned = ingress.run(length);
    return { returned, word: outView.getUint32(SKB.cb, true), mark: outView.getUint32(SKB.mark, true) };
  };
  return {
    ...loaded,
    frame,
    context: contextView,
    runFrame,
    judge(packet: Packet, frameOptions: FrameOptions = {}, mark = 0): Judged {
      return runFrame(writeFrame(frame, packet, frameOptions), mark);
    },
    stage: (program: Program) => stageProgram(loaded, program, 1),
    flip: () => flipProgram(loaded),
    activate(program: Program, generation = 1): number {
      stageProgram(loaded, program, generation);
      return flipProgram(loaded);
    },
    /** Removes every flow and answers how many there were. */
    flushFlows(): number {
      for (let count = 0; ; count++) {
        if (libbpf().bpf_map_get_next_key(flows, null, key) < 0) return count;
        check('delete flow', libbpf().bpf_map_delete_elem(flows, key));
      }
    },
    /** The one flow that there is. */
    onlyFlow() {
      check('first flow', libbpf().bpf_map_get_next_key(flows, null, key));
      check('read flow', libbpf().bpf_map_lookup_elem(flows, key, value));
      const view = new DataView(value.buffer);
      return {
        epoch: view.getUint32(20, true),
        word: view.getUint32(16, true),
        packets: [view.getBigUint64(40, true), view.getBigUint64(48, true)],
        state: view.getUint8(80),
      };
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
