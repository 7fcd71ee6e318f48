import { NO_EVENTS } from '#contracts/datapath/datapath.js';
import { EventBatch, type PackedEvents } from '#dataplane/events/batch.js';
import { EventReader } from '#dataplane/watch/event-reader.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { ALL_EVENTS } from '#test/dataplane/all-events.js';
import { udp } from '#test/dataplane/conversation.js';
import { MAX_FRAME, writeFrame } from '#test/dataplane/frame.js';
import { loadForTest } from '#test/dataplane/loaded.js';
import { denyAll } from '#test/kernel/policies.js';
import type { Bench, Row } from './bench.js';
import { median } from './median.js';

/**
 * The number of packets in one round. Each packet causes one record, and the ring buffer can hold slightly
 * more records, so that the kernel loses no record.
 */
const PACKETS = 32_000;
const ROUNDS = 40;

async function run(): Promise<readonly Row[]> {
  const kernel = loadForTest({ denyEvents: 0xffff_ffff, traceWord: false });
  try {
    kernel.activate(denyAll);
    const frame = new Uint8Array(MAX_FRAME);
    const length = writeFrame(frame, udp);
    const ingress = new TestRun(kernel.object.programFd('weir_ingress'), frame, undefined, undefined);
    const batches: PackedEvents[] = [];
    let taken = 0;
    const port = {
      postMessage: (batch: unknown) => {
        batches.push(batch as PackedEvents);
        taken++;
      },
    };
    const maps = {
      events: kernel.object.mapFd('events'),
      ringBytes: kernel.object.describe('events').maxEntries,
      counters: kernel.object.mapFd('counters'),
      active: kernel.object.mapFd('active'),
    };
    const reader = new EventReader(maps, port, () => taken);

    const timed = (work: () => void): number => {
      const started = performance.now();
      work();
      return performance.now() - started;
    };
    const ms = {
      withoutEvent: [] as number[],
      withEvent: [] as number[],
      reading: [] as number[],
      decoding: [] as number[],
    };
    let records = 0;
    for (let round = 0; round < ROUNDS; round++) {
      kernel.slots.setEventsWanted(NO_EVENTS);
      ms.withoutEvent.push(timed(() => ingress.run(length, PACKETS)));
      kernel.slots.setEventsWanted(ALL_EVENTS);
      ms.withEvent.push(timed(() => ingress.run(length, PACKETS)));
      batches.length = 0;
      ms.reading.push(timed(() => reader.read()));
      ms.decoding.push(
        timed(() => {
          for (const packed of batches) for (const { timeNs } of new EventBatch(packed)) if (timeNs > 0) records++;
        }),
      );
    }
    reader.close();
    if (records !== ROUNDS * PACKETS)
      throw new Error(`read ${records} of ${ROUNDS * PACKETS} records from the ring buffer`);
    const perSecond = (times: readonly number[]): number => PACKETS / (median(times) / 1_000) / 1e6;
    const perPacket = (times: readonly number[]): number => (median(times) * 1e6) / PACKETS;
    return [
      { what: 'records read from the ring', value: perSecond(ms.reading), unit: 'M/s', atLeast: 1 },
      { what: 'records decoded to observations', value: perSecond(ms.decoding), unit: 'M/s', atLeast: 1 },
      { what: 'a denied packet without its event', value: perPacket(ms.withoutEvent), unit: 'ns' },
      { what: 'added by its event', value: perPacket(ms.withEvent) - perPacket(ms.withoutEvent), unit: 'ns' },
    ];
  } finally {
    kernel.close();
  }
}

/**
 * Measures how many event records a second are read from the ring buffer and decoded, and how much time an
 * event adds to a denied packet.
 */
export const eventsBench: Bench = { name: 'events', run };
