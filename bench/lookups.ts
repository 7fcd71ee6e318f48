import { DEFAULT_TIMEOUTS_MS } from '#contracts/datapath/datapath-options.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import { portMapKey } from '#contracts/policy/program.js';
import { TrafficStatistics } from '#dataplane/flows/traffic-statistics.js';
import { builtObject } from '#dataplane/loader/bpf-object.js';
import { type LoadedObject, loadObject } from '#dataplane/object/loaded-object.js';
import { TestRun } from '#libc/bpf/test-run.js';

const LOOKUPS = 2_000_000;
const SLOT_LINES = 1 << 20;

// Size and field offset of `struct bench_request` in the BPF object, in bytes.
const REQUEST = { size: 56, elapsedNs: 48 } as const;

/** A range of random addresses: `base` plus random values in the bits that are set in `mask`. */
export type Space = { readonly base: number; readonly mask: number };

export function loadForBench(
  grantCapacity: number,
  flowCapacity = 1,
): LoadedObject & { readonly trafficStatistics: TrafficStatistics } {
  const loaded = loadObject(
    {
      objectPath: builtObject,
      slotLines: SLOT_LINES,
      flowCapacity,
      flowShare: 1,
      rankCapacity: 1 << 20,
      hitCapacity: 1 << 19,
      denyEvents: 0,
      flowEvents: 0,
      timeoutsMs: DEFAULT_TIMEOUTS_MS,
      policeLocal: false,
      direct: false,
      fibFlags: 0,
      grantCapacity,
      markMask: 0x00f0_0000,
      reversePath: 'off',
      passIpv6: false,
      passNonIpv4: false,
      classifyAll: true,
      traceWord: false,
      measures: true,
    },
    undefined,
  );
  const trafficStatistics = new TrafficStatistics(loaded);
  const close = (): void => {
    trafficStatistics.close();
    loaded.close();
  };
  return { ...loaded, trafficStatistics, close };
}

/**
 * Returns the time to classify one TCP packet with uniformly random addresses, in nanoseconds. The time to
 * generate the addresses is measured separately and subtracted. Each of the two times is the minimum of six
 * runs.
 */
export function timeLookups(
  { object, slots }: LoadedObject,
  { sources, destinations }: { readonly sources: Space; readonly destinations: Space },
): number {
  const request = new Uint8Array(REQUEST.size);
  const view = new DataView(request.buffer);
  const run = new TestRun(object.programFd('weir_bench'), undefined, request, undefined);
  const nanoseconds = (keysOnly: boolean): number => {
    const words = [
      slots.slotInForce ?? 0,
      LOOKUPS,
      1,
      keysOnly ? 1 : 0,
      sources.base,
      sources.mask,
      destinations.base,
      destinations.mask,
      portMapKey(IPPROTO.tcp, 0),
      0xffff,
    ];
    for (const [at, word] of words.entries()) view.setUint32(at * 4, word, true);
    run.run();
    return Number(view.getBigUint64(REQUEST.elapsedNs, true)) / LOOKUPS;
  };
  const best = (keysOnly: boolean): number => Math.min(...Array.from({ length: 6 }, () => nanoseconds(keysOnly)));
  return best(false) - best(true);
}
