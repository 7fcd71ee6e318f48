import { afterEach, describe, expect, test } from 'vitest';
import { parseAddress } from '#addresses/ip-address.js';
import { NO_EVENTS } from '#contracts/datapath/datapath.js';
import { type Address, IPPROTO, type Packet } from '#contracts/policy/policy-model.js';
import { EventBatch, type PackedEvents, RECORD_BYTES } from '#dataplane/events/batch.js';
import type { Observation } from '#dataplane/events/observation.js';
import { anyFlow } from '#dataplane/flows/listing/flow-filter.js';
import { EventReader } from '#dataplane/watch/event-reader.js';
import { EventRing } from '#dataplane/watch/event-ring.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { ALL_EVENTS } from '#test/dataplane/all-events.js';
import { allowAll, auditAll, denyAll } from '#test/kernel/policies.js';
import { back, CLIENT, onlyClient, SERVER, udp } from './conversation.js';
import { MAX_FRAME, TCP, writeFrame, writeIpv6Frame } from './frame.js';
import { DROPPED, type Loaded, loadForTest, PASSED, type TestOptions } from './loaded.js';

/** The offset in a frame of the last 32 bits of an IPv6 source. */
const LAST_OF_SOURCE = 14 + 20;
const UNBOUNDED = 0xffff_ffff;
/**
 * The longest kernel tick in nanoseconds. The time of an event may be up to one tick before the time of an
 * earlier event from another CPU.
 */
const TICK_NS = 10_000_000;

let kernel: Loaded;
afterEach(() => kernel.close());

function load(options: TestOptions = {}): void {
  kernel = loadForTest({ denyEvents: UNBOUNDED, flowEvents: UNBOUNDED, ...options });
  kernel.slots.setEventsWanted(ALL_EVENTS);
}
const eventReaderMaps = () => ({
  events: kernel.object.mapFd('events'),
  ringBytes: kernel.object.describe('events').maxEntries,
  counters: kernel.object.mapFd('counters'),
  active: kernel.object.mapFd('active'),
});
/** Prepares a test run that sends the same packet to the ingress hook many times in one system call. */
function repeated(packet: Packet<number>): { readonly run: TestRun; readonly length: number } {
  const frame = new Uint8Array(MAX_FRAME);
  const length = writeFrame(frame, packet);
  return { run: new TestRun(kernel.object.programFd('weir_ingress'), frame, undefined, undefined), length };
}
function packed(records: Uint8Array<ArrayBuffer>): PackedEvents {
  const count = records.length / RECORD_BYTES;
  return { records: records.buffer, count, lost: 0, monotonicNs: 0, unixMs: 0 };
}
const number = expect.any(Number) as number;

/** Returns the events of the ring buffer. `timeNs` is 0 in each event, since times differ between runs. */
function observed(): Observation[] {
  const ring = new EventRing(eventReaderMaps().events, eventReaderMaps().ringBytes);
  try {
    return [...new EventBatch(packed(ring.take(1_000)))].map((observation) => {
      expect(observation.timeNs).toBeGreaterThan(0);
      return { ...observation, timeNs: 0 };
    });
  } finally {
    ring.unmap();
  }
}

describe('the datapath', () => {
  const common = {
    timeNs: 0,
    audited: false,
    ifindex: 1,
    source: CLIENT,
    destination: SERVER,
    sourcePort: 40_000,
    destinationPort: 53,
    protocol: IPPROTO.udp,
    epoch: 1,
    word: number,
    hit: number,
    hitCheck: number,
    suppressed: 0,
    wireDestination: null,
  };
  const alone = { outgoing: false, icmp: null, tcpFlags: 0, packets: 1, length: number };

  test('the datapath reports a denied packet as an event with the drop reason policy_deny', () => {
    load();
    kernel.activate(denyAll);
    expect(kernel.runPacket(udp).returned).toBe(DROPPED);
    expect(observed()).toEqual([{ ...common, ...alone, type: 'denied', verdict: 'deny', dropReason: 'policy_deny' }]);
  });

  test('the datapath reports a packet that is dropped without a verdict as an event with its drop reason', () => {
    load();
    kernel.activate(allowAll);
    const packet = { ...udp, protocol: IPPROTO.tcp };
    kernel.runPacket(packet, { tcpFlags: TCP.syn | TCP.fin });
    const dropped = { ...alone, type: 'dropped', verdict: null, dropReason: 'tcp_flags', tcpFlags: 3 };
    expect(observed()).toEqual([{ ...common, ...dropped, protocol: IPPROTO.tcp, epoch: 0, word: 0 }]);
  });

  test('the datapath reports a dropped IPv6 packet as an event with the addresses and ports of the packet', () => {
    load();
    kernel.activate(allowAll);
    const content = Uint8Array.from([0x9c, 0x40, 0, 53, 0, 8, 0, 0]);
    kernel.runFrame(writeIpv6Frame(kernel.frame, { nextHeader: IPPROTO.udp, content }));
    kernel.runFrame(writeIpv6Frame(kernel.frame, { nextHeader: 58, content: Uint8Array.of(128, 0, 0, 0) }));
    const dropped = { ...alone, type: 'dropped', verdict: null, dropReason: 'ipv6', epoch: 0, word: 0 };
    const [source, destination] = ['2001:db8::1', '2001:db8::2'].map(parseAddress);
    const udp = { ...common, ...dropped, source, destination };
    const icmp = { type: 128, code: 0 };
    expect(observed()).toEqual([udp, { ...udp, protocol: 58, sourcePort: 0, destinationPort: 0, icmp }]);
  });

  test('the datapath reports an event for an ICMP packet that passes in audit mode and belongs to no flow', () => {
    load();
    kernel.activate(auditAll);
    const packet = { ...udp, protocol: IPPROTO.icmp, sourcePort: 0, destinationPort: 0, icmpType: 9 };
    expect(kernel.runPacket(packet).returned).toBe(PASSED);
    const passed = { ...alone, type: 'passed', verdict: 'audit', audited: true, dropReason: null };
    const icmp = { type: 9, code: 0 };
    const ports = { sourcePort: 0, destinationPort: 0 };
    expect(observed()).toEqual([{ ...common, ...passed, ...ports, protocol: IPPROTO.icmp, icmp }]);
  });

  test('the datapath reports the first packet of a flow as an event flow_opened', () => {
    load();
    kernel.activate(allowAll);
    kernel.runPacket(udp);
    const flow = { endReason: null, foreign: false, openedNs: number, packets: [1, 0], bytes: [number, 0] };
    expect(observed()).toEqual([{ ...common, ...flow, type: 'flow_opened', verdict: 'allow', state: 'udp_opened' }]);
  });

  const ended = { foreign: false, openedNs: number, packets: [1, 0], bytes: [number, 0], type: 'flow_ended' };

  test('the datapath reports a flow that a new policy denies as an event flow_ended, with the rule that denies the flow', () => {
    load();
    kernel.activate(allowAll);
    kernel.runPacket(udp);
    kernel.activate(denyAll);
    observed();
    expect(kernel.runPacket(udp).returned).toBe(DROPPED);
    const [end, packet] = observed();
    const refused = { ...common, epoch: 2, verdict: 'deny' };
    expect(end).toEqual({ ...refused, ...ended, state: 'udp_opened', endReason: 'policy_deny' });
    expect(packet).toEqual({ ...refused, ...alone, type: 'denied', dropReason: 'policy_deny' });
    expect([end?.word, end?.hit, end?.hitCheck]).toEqual([packet?.word, packet?.hit, packet?.hitCheck]);
  });

  test('the datapath reports a flow that the API cuts as an event flow_ended, with the rule that allowed the flow', async () => {
    load();
    kernel.activate(allowAll);
    kernel.runPacket(udp);
    const [opened] = observed();
    await kernel.trafficStatistics.cutFlows({ filter: anyFlow(), after: null, limit: 10 });
    const [end] = observed();
    expect(end).toEqual({
      ...{ ...common, ...ended, ifindex: number, verdict: 'allow', state: 'udp_opened', endReason: 'cut' },
      ...{ word: opened?.word, hit: opened?.hit, hitCheck: opened?.hitCheck },
    });
  });

  test.each([
    ['from the opener of the flow', udp],
    ['from the other side of the flow', back(udp)],
  ])(
    'after a flow was cut, the datapath reports its next TCP packet (%s) as dropped, with the rule of the flow',
    async (_, sent) => {
      load();
      const web = { ...sent, protocol: IPPROTO.tcp };
      kernel.activate(onlyClient);
      kernel.runPacket({ ...udp, protocol: IPPROTO.tcp }, { tcpFlags: TCP.syn });
      const [opened] = observed();
      await kernel.trafficStatistics.cutFlows({ filter: anyFlow(), after: null, limit: 10 });
      observed();
      expect(kernel.runPacket(web, { tcpFlags: TCP.ack }).returned).toBe(DROPPED);
      const { source, destination, sourcePort, destinationPort } = web;
      expect(observed()).toEqual([
        {
          ...common,
          ...alone,
          ...{ source, destination, sourcePort, destinationPort, protocol: IPPROTO.tcp, tcpFlags: TCP.ack },
          ...{ type: 'dropped', verdict: 'allow', dropReason: 'out_of_state' },
          ...{ word: opened?.word, hit: opened?.hit, hitCheck: opened?.hitCheck },
        },
      ]);
    },
  );

  test('the datapath sends no event while no reader wants events, and still drops a denied packet', () => {
    load();
    kernel.activate(denyAll);
    kernel.slots.setEventsWanted(NO_EVENTS);
    expect(kernel.runPacket(udp).returned).toBe(DROPPED);
    expect(observed()).toEqual([]);
    expect(kernel.counted()).toEqual({ drop_policy_deny: 1 });
  });

  test('the datapath limits the rate of events of one source, and gives the number of suppressed events in the next event', async () => {
    load({ denyEvents: 100 });
    kernel.activate(denyAll);
    const { run, length } = repeated(udp);
    const found: Observation[] = [];
    let judged = 0;
    // The event budget of a source is renewed about once per second. The test sends packets until an event
    // has a count of suppressed events.
    await expect
      .poll(
        () => {
          run.run(length, 1_000);
          judged += 1_000;
          found.push(...observed());
          return found.some(({ suppressed }) => suppressed > 0);
        },
        { timeout: 10_000 },
      )
      .toBe(true);
    expect(found.length + (kernel.counted().events_suppressed ?? 0)).toBe(judged);
  });
});

test('with ipv6: drop, the IPv6 addresses of one /64 prefix share the event budget of one source', () => {
  load({ denyEvents: 3 });
  const packets = 200;
  for (let host = 1; host <= packets; host++) {
    const length = writeIpv6Frame(kernel.frame, { nextHeader: IPPROTO.udp, content: new Uint8Array(8) });
    new DataView(kernel.frame.buffer).setUint32(LAST_OF_SOURCE, host * 0x9e37);
    kernel.runFrame(length);
  }
  const { events_suppressed = 0 } = kernel.counted();
  // A CPU has a budget of its own, and a new one in each window of about one second.
  expect(events_suppressed).toBeGreaterThan(packets / 2);
});

test('the datapath drops a million denied packets while no process reads events, and each event is later read or counted as lost or suppressed', () => {
  load({ denyEvents: 1_000_000 - 1 });
  kernel.activate(denyAll);
  const { run, length } = repeated(udp);
  expect(run.run(length, 1_000_000)).toBe(DROPPED);
  const ring = new EventRing(eventReaderMaps().events, eventReaderMaps().ringBytes);
  const read = ring.take(UNBOUNDED).length / RECORD_BYTES;
  ring.unmap();
  const { drop_policy_deny, events_lost = 0, events_suppressed = 0, ...others } = kernel.counted();
  expect(others).toEqual({ events: read });
  expect(drop_policy_deny).toBe(1_000_000);
  // The buffer is full: it keeps a little room for the next record.
  expect(read).toBeGreaterThan(0.95 * (eventReaderMaps().ringBytes / RECORD_BYTES));
  expect(events_lost).toBeGreaterThan(900_000);
  expect(read + events_lost + events_suppressed).toBe(1_000_000);
});

test('each event in the ring buffer is intact while two threads write and one thread reads more than three times the size of the buffer', async () => {
  load();
  kernel.activate(denyAll);
  const sources = [CLIENT, CLIENT + 1];
  const ring = new EventRing(eventReaderMaps().events, eventReaderMaps().ringBytes);
  const found = new Map<Address, number>();
  const latest = new Map<Address, number>();
  const take = (): number => {
    const batch = new EventBatch(packed(ring.take(8_192)));
    let [torn, early] = [0, 0];
    for (let index = 0; index < batch.count; index++) {
      const source = batch.source(index);
      if (batch.destination(index) !== SERVER || batch.type(index) !== 'denied') torn++;
      found.set(source, (found.get(source) ?? 0) + 1);
      const { timeNs } = batch.observation(index);
      if (timeNs < (latest.get(source) ?? 0) - TICK_NS) early++;
      latest.set(source, timeNs);
    }
    expect({ torn, early }).toEqual({ torn: 0, early: 0 });
    return batch.count;
  };
  let running = sources.length;
  const writers = sources.map(async (source) => {
    const { run, length } = repeated({ ...udp, source });
    for (let round = 0; round < 40; round++) await run.runBeside(length, 5_000);
    running--;
  });
  while (running > 0) {
    take();
    await new Promise((resolve) => setImmediate(resolve));
  }
  await Promise.all(writers);
  while (take() > 0);
  ring.unmap();
  const { events_lost = 0 } = kernel.counted();
  const read = [...found.values()].reduce((sum, count) => sum + count, 0);
  expect([...found.keys()].sort()).toEqual(sources);
  expect(read + events_lost).toBe(400_000);
  expect(read * RECORD_BYTES).toBeGreaterThan(3 * eventReaderMaps().ringBytes);
});

test('`EventReader` sends at most eight batches to a slow consumer, and the next batch has the number of lost events', () => {
  load();
  kernel.activate(denyAll);
  const sent: PackedEvents[] = [];
  let taken = 0;
  const reader = new EventReader(
    eventReaderMaps(),
    { postMessage: (batch) => void sent.push(batch as PackedEvents) },
    () => taken,
  );
  const { run, length } = repeated(udp);
  for (let round = 0; round < 10; round++) {
    run.run(length, 30_000);
    reader.read();
  }
  expect(sent).toHaveLength(8);
  const { events_lost = 0 } = kernel.counted();
  expect(events_lost).toBeGreaterThan(0);
  const before = sent.reduce((sum, { lost }) => sum + lost, 0);
  taken = sent.length;
  for (let rounds = 0; rounds < 3; rounds++) {
    reader.read();
    taken = sent.length;
  }
  expect(sent.reduce((sum, { lost }) => sum + lost, 0)).toBe(events_lost);
  expect(before).toBeLessThan(events_lost);
  expect(sent.reduce((sum, { count }) => sum + count, 0) + events_lost).toBe(300_000);
  reader.close();
});
