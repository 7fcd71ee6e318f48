import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { IPPROTO, type Packet } from '#contracts/policy/policy-model.js';
import { FLOW_KEY_BYTES } from '#dataplane/abi/flow.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { compile } from '#policy/compile/compile.js';
import { group, packet, policy, rule } from '#test/policy/sample.js';
import { writeFrame } from './frame.js';
import { type Loaded, loadForTest, PASSED, SKB } from './loaded.js';
import type { Opened, OpeningInput } from './opening-worker.js';
import type { SweepingInput } from './sweeping-worker.js';

const sweeping = new URL('../../dist/test/dataplane/sweeping-worker.js', import.meta.url);
const opening = new URL('../../dist/test/dataplane/opening-worker.js', import.meta.url);
const EVERYTHING = { groups: [], rules: [], unused: undefined, from: 0, limit: 10 } as const;
const FLOWS = 32;
/**
 * Number of GSO segments in each frame for the rule `merged`. The datapath counts each segment as a packet. A
 * frame for the rule `single` counts as one packet, so a frame counted for the wrong rule changes both sums.
 */
const MERGED = 1_000;
const TEST_MS = 3_000;

const rules = [
  rule({ id: 'merged', protocol: IPPROTO.udp, ports: ['53'] }),
  rule({ id: 'single', protocol: IPPROTO.udp, ports: ['54'] }),
];

/** Opens a flow with the packet `given`, removes all flows, and returns the key that the flow had. */
function keyOfFlow(kernel: Loaded, given: Packet<number>): Uint8Array {
  kernel.runPacket(given);
  const key = (kernel.records()[0] ?? new Uint8Array()).slice(0, FLOW_KEY_BYTES);
  kernel.flushFlows();
  return key;
}

function countedByRule(kernel: Loaded): Map<string, number> {
  const items = kernel.trafficStatistics.hits(EVERYTHING)?.items ?? [];
  return new Map(
    items.flatMap(({ decider, packets }) =>
      decider.kind === 'rule' ? [[decider.rule, Number(packets)] as const] : [],
    ),
  );
}

test('each packet is counted once for its rule while one thread ends flows and another thread adds the counters of the same flows to the statistics (flush)', async () => {
  const kernel = loadForTest({ flowCapacity: 4 });
  let worker: Worker | undefined;
  const stop = new SharedArrayBuffer(4);
  try {
    kernel.activate(compile(policy([group(['10.0.0.0/8'], rules)])));
    const request = new Uint8Array(FLOW_KEY_BYTES + 8);
    const cut = new TestRun(kernel.object.programFd('weir_cut'), undefined, request, undefined);
    const flows = Array.from({ length: FLOWS }, (_, index) => {
      const given = packet({ protocol: IPPROTO.udp, destinationPort: 53 + (index % 2), sourcePort: 1_000 + index });
      return { given, key: keyOfFlow(kernel, given), isMerged: index % 2 === 0 };
    });
    const workerData: SweepingInput = { sweepFd: kernel.object.programFd('weir_sweep'), stop };
    worker = new Worker(sweeping, { workerData, execArgv: [] });
    await once(worker, 'online');
    const sent = { merged: 0, single: 0 };
    let [stray, refused] = [0, 0];
    for (const until = performance.now() + TEST_MS; performance.now() < until; ) {
      for (const { given, key, isMerged } of flows) {
        kernel.context.setUint32(SKB.gsoSegments, isMerged ? MERGED : 0, true);
        kernel.context.setUint32(SKB.gsoSize, isMerged ? 1_000 : 0, true);
        if (kernel.runFrame(writeFrame(kernel.frame, given)).returned !== PASSED) refused++;
        else if (isMerged) sent.merged += MERGED;
        else sent.single++;
        request.set(key);
        cut.run();
      }
      stray = Math.max(stray, kernel.strayTallies());
    }
    Atomics.store(new Int32Array(stop), 0, 1);
    const [sweeps] = (await once(worker, 'message')) as [number];
    console.log(`folding: ${sent.single} flows of each rule, ${sweeps} sweeps`);
    expect(Object.fromEntries(countedByRule(kernel))).toEqual(sent);
    expect({ stray, refused }).toEqual({ stray: 0, refused: 0 });
    expect([sent.single > 10_000, sweeps > 10_000]).toEqual([true, true]);
  } finally {
    Atomics.store(new Int32Array(stop), 0, 1);
    await worker?.terminate();
    kernel.close();
  }
});

test('two threads that open flows in the same set of the flow table take different entries of the set, and lose no packet count', async () => {
  const kernel = loadForTest({ flowCapacity: 4 });
  const stop = new SharedArrayBuffer(4);
  const workers: Worker[] = [];
  try {
    kernel.activate(compile(policy([group(['10.0.0.0/8'], rules)])));
    for (const destinationPort of [53, 54]) {
      // Each of two threads opens three flows in the only flow set of the table, which has eight ways (places
      // for a flow). So both threads claim ways at the same time, in a nearly empty and in a nearly full set.
      const flows = Array.from({ length: 3 }, (_, index) => {
        const given = packet({ protocol: IPPROTO.udp, destinationPort, sourcePort: 1_000 + index });
        const key = keyOfFlow(kernel, given);
        return { frame: kernel.frame.slice(0, writeFrame(kernel.frame, given)), key };
      });
      const fd = (name: 'weir_ingress' | 'weir_cut'): number => kernel.object.programFd(name);
      const workerData: OpeningInput = { ingressFd: fd('weir_ingress'), cutFd: fd('weir_cut'), flows, stop };
      workers.push(new Worker(opening, { workerData, execArgv: [] }));
    }
    const done = Promise.all(workers.map(async (worker) => ((await once(worker, 'message')) as [Opened])[0]));
    await delay(TEST_MS);
    Atomics.store(new Int32Array(stop), 0, 1);
    const opened = await done;
    console.log(`opening: ${JSON.stringify(opened)}`);
    expect(opened.map(({ refused, lost }) => [refused, lost])).toEqual([
      [0, 0],
      [0, 0],
    ]);
    const counted = ['merged', 'single'].map((rule) => countedByRule(kernel).get(rule) ?? 0);
    expect(counted).toEqual(opened.map(({ sent }) => sent));
    expect([kernel.records().length, kernel.strayTallies(), kernel.takenWays()]).toEqual([0, 0, 0]);
    expect(opened.every(({ sent }) => sent > 10_000)).toBe(true);
  } finally {
    Atomics.store(new Int32Array(stop), 0, 1);
    for (const worker of workers) await worker.terminate();
    kernel.close();
  }
});
