import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Ends, reversed } from '#contracts/policy/policy-model.js';
import { mapShape } from '#dataplane/loader/bpf-fd.js';
import { libbpf } from '#libc/bpf/libbpf.js';
import { passedObject } from '#libc/bpf/object-handle.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { compile } from '#policy/compile/compile.js';
import {
  MAX_OFFLOADERS,
  SPLICE_ENTRY,
  SPLICE_ENTRY_BYTES,
  SPLICE_KEY,
  SPLICE_KEY_BYTES,
  SPLICE_STATE,
} from '#splicing/layout.js';
import { SpliceTable } from '#splicing/table.js';
import { address, group, policy, rule } from '#test/policy/sample.js';
import { Random } from '#test/seed.js';
import { DROPPED, type Loaded, loadForTest, PASSED } from './loaded.js';

const ENDS: Ends<number> = {
  source: address('10.1.0.1'),
  destination: address('10.2.0.2'),
  sourcePort: 40_000,
  destinationPort: 443,
};
const OFFLOADER = 5;
const IPV4 = 14;
const TCP = 34;

type Deltas = { sequence: number; acknowledgment: number; time: number; echo: number; window_shift: number };
const DELTAS: Deltas = { sequence: 1_000, acknowledgment: 0xffff_f000, time: 77, echo: 0xffff_ffb0, window_shift: 2 };
/**
 * The inverse of `DELTAS` for the reverse direction. Sequence and acknowledgment change places, and so do
 * time and echo; each value is negated.
 */
const BACK: Deltas = { sequence: 0x1000, acknowledgment: 0xffff_fc18, time: 80, echo: 0xffff_ffb3, window_shift: -2 };

let kernel: Loaded;
let table: SpliceTable;
beforeAll(() => {
  kernel = loadForTest({ servicePlane: { address: address('127.0.0.1'), port: 15_001 } });
  kernel.activate(compile(policy([group(['0.0.0.0/0'], [rule({ protocol: 6, tls: { mode: 'metadata' } })])])));
  table = new SpliceTable({
    program: passedObject(kernel.object.programFd('weir_join')),
    spliceMap: passedObject(kernel.object.mapFd('joins')),
    offloaderMap: passedObject(kernel.object.mapFd('joiners')),
  });
});
beforeEach(() => {
  kernel.forget();
  forgetSplices();
  table.renew(OFFLOADER, process.hrtime.bigint() + 3_600_000_000_000n);
});
afterAll(() => {
  table.close();
  kernel.close();
});

/** Removes every entry of the splice map. */
function forgetSplices(): void {
  const map = kernel.object.mapFd('joins');
  const key = new Uint8Array(SPLICE_KEY_BYTES);
  while (libbpf().bpf_map_get_next_key(map, null, key) >= 0) libbpf().bpf_map_delete_elem(map, key);
}

function put(ends: Ends<number>, deltas: Deltas, more: Partial<Record<keyof typeof SPLICE_ENTRY, number>> = {}): void {
  const key = new Uint8Array(SPLICE_KEY_BYTES);
  const keyView = new DataView(key.buffer);
  keyView.setUint32(SPLICE_KEY.source, ends.source, true);
  keyView.setUint32(SPLICE_KEY.destination, ends.destination, true);
  keyView.setUint16(SPLICE_KEY.source_port, ends.sourcePort, true);
  keyView.setUint16(SPLICE_KEY.destination_port, ends.destinationPort, true);
  const value = new Uint8Array(SPLICE_ENTRY_BYTES);
  const view = new DataView(value.buffer);
  const entry = { state: SPLICE_STATE.joined, joiner: OFFLOADER, id: 1, ...deltas, ...more };
  for (const [name, number] of Object.entries(entry))
    view.setInt32(SPLICE_ENTRY[name as keyof typeof SPLICE_ENTRY], number, true);
  expect(libbpf().bpf_map_update_elem(kernel.object.mapFd('joins'), key, value, 0)).toBe(0);
}

type Segment = {
  flags?: number;
  options?: readonly number[];
  payload?: number;
  window?: number;
  sequence?: number;
  acknowledgment?: number;
};
/** Returns an Ethernet frame with this TCP segment and correct checksums. */
function frameOf({ source, destination, sourcePort, destinationPort }: Ends<number>, segment: Segment): Uint8Array {
  const { flags = 0x10, options = [], payload = 8, window = 500, sequence = 5, acknowledgment = 9 } = segment;
  const padded = [...options, ...Array<number>((4 - (options.length % 4)) % 4).fill(0)];
  const tcpBytes = 20 + padded.length;
  const frame = new Uint8Array(TCP + tcpBytes + payload);
  frame.set([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45]);
  const view = new DataView(frame.buffer);
  view.setUint16(IPV4 + 2, frame.length - IPV4);
  view.setUint16(IPV4 + 6, 0x4000);
  view.setUint8(IPV4 + 8, 64);
  view.setUint8(IPV4 + 9, 6);
  view.setUint32(IPV4 + 12, source);
  view.setUint32(IPV4 + 16, destination);
  view.setUint16(IPV4 + 10, ~sumOf(frame, IPV4, TCP) & 0xffff);
  view.setUint16(TCP, sourcePort);
  view.setUint16(TCP + 2, destinationPort);
  view.setUint32(TCP + 4, sequence);
  view.setUint32(TCP + 8, acknowledgment);
  view.setUint8(TCP + 12, (tcpBytes / 4) << 4);
  view.setUint8(TCP + 13, flags);
  view.setUint16(TCP + 14, window);
  frame.set(padded, TCP + 20);
  for (let at = TCP + tcpBytes; at < frame.length; at++) frame[at] = at & 0xff;
  view.setUint16(TCP + 16, ~tcpSum(frame) & 0xffff);
  return frame;
}

function sumOf(frame: Uint8Array, from: number, to: number, initial = 0): number {
  let sum = initial;
  for (let at = from; at < to; at += 2) sum += ((frame[at] ?? 0) << 8) | (at + 1 < to ? (frame[at + 1] ?? 0) : 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return sum;
}
const tcpSum = (frame: Uint8Array): number =>
  sumOf(frame, TCP, frame.length, sumOf(frame, IPV4 + 12, TCP, 6 + frame.length - TCP));

function run(frame: Uint8Array): { readonly returned: number; readonly out: Uint8Array } {
  const out = new Uint8Array(frame.length);
  const returned = new TestRun(kernel.object.programFd('weir_ingress'), frame, undefined, undefined, out).run();
  return { returned, out };
}

/**
 * Returns the frame that the datapath must produce from `frame`: adds the deltas to the numbers of the TCP
 * header and of its time stamp and SACK options, and shifts the window (RFC 9293, 2018, 7323).
 */
function translated(frame: Uint8Array, deltas: Deltas): Uint8Array {
  const out = frame.slice();
  const view = new DataView(out.buffer);
  const add = (at: number, what: number): void => view.setUint32(at, (view.getUint32(at) + what) >>> 0);
  add(TCP + 4, deltas.sequence);
  if ((view.getUint8(TCP + 13) & 0x10) !== 0) add(TCP + 8, deltas.acknowledgment);
  const window = view.getUint16(TCP + 14);
  const shifted = deltas.window_shift < 0 ? window >> -deltas.window_shift : window << deltas.window_shift;
  view.setUint16(TCP + 14, window > 0 ? Math.min(Math.max(shifted, 1), 0xffff) : 0);
  const end = TCP + (view.getUint8(TCP + 12) >> 4) * 4;
  for (let at = TCP + 20; at < end; ) {
    const kind = view.getUint8(at);
    if (kind === 0) break;
    const length = kind === 1 ? 1 : view.getUint8(at + 1);
    // The datapath ignores an option that extends beyond the TCP header, and all bytes after this option.
    if ((kind !== 1 && length < 2) || at + length > end) break;
    if (kind === 8 && length === 10) {
      add(at + 2, deltas.time);
      add(at + 6, deltas.echo);
    }
    if (kind === 5) for (let edge = at + 2; edge + 4 <= at + length; edge += 4) add(edge, deltas.acknowledgment);
    at += length;
  }
  view.setUint16(TCP + 16, 0);
  view.setUint16(TCP + 16, ~tcpSum(out) & 0xffff);
  return out;
}

const number = (value: number): number[] => [24, 16, 8, 0].map((shift) => (value >>> shift) & 0xff);
const stamps = (value: number, echo: number): number[] => [8, 10, ...number(value), ...number(echo)];
const sack = (...edges: number[]): number[] => [5, 2 + edges.length * 4, ...edges.flatMap(number)];

describe('translation between two spliced TCP connections', () => {
  test.each([
    ['without options', {}],
    ['time stamps at the usual offset', { options: [1, 1, ...stamps(0xffff_fff0, 100)] }],
    ['time stamps at another offset', { options: [...stamps(1, 2), 1, 1] }],
    ['one SACK block', { options: [1, 1, ...stamps(1, 2), 1, 1, ...sack(100, 200)], payload: 0 }],
    [
      'three SACK blocks and time stamps',
      { options: [1, 1, ...stamps(1, 2), 1, 1, ...sack(1, 2, 3, 4, 5, 0xffff_ffff)], payload: 0 },
    ],
    ['four SACK blocks', { options: [1, 1, ...sack(1, 2, 3, 4, 5, 6, 7, 8)], payload: 0 }],
    ['an unknown option before time stamps', { options: [30, 6, 1, 2, 3, 4, 1, 1, ...stamps(9, 9)] }],
    ['a window that exceeds 65,535 when it is scaled', { window: 40_000 }],
    ['a window of 0', { window: 0 }],
    ['an odd payload', { payload: 333 }],
    ['sequence numbers that wrap', { sequence: 0xffff_ffff, acknowledgment: 3 }],
    ['a FIN', { flags: 0x11 }],
    ['a RST', { flags: 0x04, payload: 0 }],
  ] as const)(
    'the splicing offload translates the sequence numbers, time stamps and window of a segment to those of the other connection (segment: %s)',
    (_, segment: Segment) => {
      put(ENDS, DELTAS);
      put(reversed(ENDS), BACK);
      for (const [ends, deltas] of [
        [ENDS, DELTAS],
        [reversed(ENDS), BACK],
      ] as const) {
        const frame = frameOf(ends, segment);
        const { returned, out } = run(frame);
        expect(returned).toBe(PASSED);
        expect(Buffer.from(out).toString('hex')).toBe(Buffer.from(translated(frame, deltas)).toString('hex'));
      }
    },
  );

  test('the splicing offload translates 5,000 segments with random headers and sequence numbers to the other connection', () => {
    const random = new Random(2_026);
    for (let round = 0; round < 5_000; round++) {
      const deltas: Deltas = {
        sequence: random.below(2 ** 32),
        acknowledgment: random.below(2 ** 32),
        time: random.below(2 ** 32),
        echo: random.below(2 ** 32),
        window_shift: random.below(29) - 14,
      };
      put(ENDS, deltas);
      const frame = frameOf(ENDS, {
        options: someOptions(random),
        payload: random.below(100),
        window: random.below(2 ** 16),
        sequence: random.below(2 ** 32),
        acknowledgment: random.below(2 ** 32),
        flags: random.pick([0x10, 0x18, 0x11, 0x14]),
      });
      const { returned, out } = run(frame);
      expect(returned).toBe(PASSED);
      expect(Buffer.from(out).toString('hex')).toBe(Buffer.from(translated(frame, deltas)).toString('hex'));
    }
  });
});

function someOptions(random: Random): number[] {
  const options: number[] = [];
  for (let left = random.below(5); left > 0; left--) {
    const next = random.pick([
      () => [1],
      () => stamps(random.below(2 ** 32), random.below(2 ** 32)),
      () => sack(...Array.from({ length: 2 * random.below(5) }, () => random.below(2 ** 32))),
      () => [30, 2 + 3, 1, 2, 3],
      () => [random.below(256), random.below(16)],
      () => [0],
    ])();
    if (options.length + next.length <= 40) options.push(...next);
  }
  return options;
}

test.each([
  ['the server side about a packet of the client', ENDS, DELTAS],
  ['the client side about a packet of the server', reversed(ENDS), BACK],
])('an ICMP error from %s is rewritten to quote the sequence number that its receiver sent', (_, ends, deltas) => {
  put(ENDS, DELTAS);
  put(reversed(ENDS), BACK);
  const sequence = 0xffff_ff00;
  const quoted = frameOf(ends, { sequence: (sequence + deltas.sequence) % 2 ** 32, payload: 0 }).subarray(IPV4);
  const error = new Uint8Array(TCP + 8 + quoted.length);
  error.set(frameOf({ ...ends, source: address('10.9.9.9'), destination: ends.source }, {}).subarray(0, TCP));
  const view = new DataView(error.buffer);
  view.setUint16(IPV4 + 2, error.length - IPV4);
  view.setUint8(IPV4 + 9, 1);
  // ICMP type 3, code 4 (fragmentation needed), with an MTU of 1,200 bytes.
  error.set([3, 4, 0, 0, 0, 0, 4, 176], TCP);
  error.set(quoted, TCP + 8);
  view.setUint16(TCP + 2, ~sumOf(error, TCP, error.length) & 0xffff);
  const { returned, out } = run(error);
  expect([returned, new DataView(out.buffer).getUint32(TCP + 8 + 20 + 4)]).toEqual([PASSED, sequence]);
  expect(sumOf(out, TCP, out.length)).toBe(0xffff);
});

describe('offloaded connections of an ended thread', () => {
  const alone = { joiner: OFFLOADER + 1 };

  test.each([
    ['data', { payload: 333, flags: 0x18 }],
    ['an acknowledgment', { payload: 0, options: [1, 1, ...stamps(1, 2)] }],
    ['a FIN', { payload: 7, flags: 0x11 }],
  ] as const)(
    'after the splicing thread of a connection offloaded to the datapath has ended, the datapath turns a segment (%s) into a RST with the next sequence number',
    (_, segment: Segment) => {
      put(ENDS, DELTAS, { ...alone, next: 60_000, acknowledged: 50_000 });
      put(reversed(ENDS), BACK, alone);
      const frame = frameOf(ENDS, { ...segment, sequence: 61_000, acknowledgment: 51_000 });
      const { returned, out } = run(frame);
      const view = new DataView(out.buffer, out.byteOffset);
      expect(returned).toBe(PASSED);
      expect(Buffer.from(out.subarray(0, TCP + 4))).toEqual(Buffer.from(frame.subarray(0, TCP + 4)));
      expect([
        view.getUint32(TCP + 4),
        view.getUint32(TCP + 8),
        view.getUint8(TCP + 13),
        view.getUint16(TCP + 14),
      ]).toEqual([(60_000 + DELTAS.sequence) % 2 ** 32, (51_000 + DELTAS.acknowledgment) % 2 ** 32, 0x14, 0]);
      expect(tcpSum(out)).toBe(0xffff);
    },
  );

  test('after the splicing thread of a connection offloaded to the datapath has ended, the datapath translates a RST, and drops packets without RST and ACK flag', () => {
    put(ENDS, DELTAS, alone);
    put(reversed(ENDS), BACK, alone);
    const frame = frameOf(ENDS, { flags: 0x04, payload: 0 });
    expect(Buffer.from(run(frame).out)).toEqual(Buffer.from(translated(frame, DELTAS)));
    expect(run(frameOf(ENDS, { flags: 0x08 })).returned).toBe(DROPPED);
  });
});

test('the BPF map `joiners` has one entry for the deadline of each splicing thread', () => {
  expect(mapShape(kernel.object.mapFd('joiners')).maxEntries).toBe(MAX_OFFLOADERS);
});

describe('dropped packets of a connection offloaded to the datapath', () => {
  test.each([
    ['its entry in the map joins has the state held', { state: SPLICE_STATE.held }],
    ['its entry has the state quiet and the service plane has no socket for it', { state: SPLICE_STATE.quiet }],
  ] as const)(
    'a packet of a connection offloaded to the datapath is dropped if the state of the splicing offload does not permit forwarding: %s',
    (_, more) => {
      put(ENDS, DELTAS, more);
      put(reversed(ENDS), BACK, more);
      expect(run(frameOf(ENDS, {})).returned).toBe(DROPPED);
    },
  );

  test('a packet of a connection offloaded to the datapath is dropped if its direction has no entry in the BPF map `joins`', () => {
    put(ENDS, DELTAS);
    expect(run(frameOf(reversed(ENDS), {})).returned).toBe(DROPPED);
  });

  test('a SYN ACK of a connection offloaded to the datapath is dropped; the datapath turns a SYN into an ACK that probes the other side', () => {
    put(ENDS, DELTAS, { acknowledged: 50_000, next: 60_000 });
    put(reversed(ENDS), BACK, { acknowledged: 70_000, next: 80_000 });
    const { returned, out } = run(frameOf(ENDS, { flags: 0x02, payload: 0, options: [2, 4, 5, 180, 1, 3, 3, 7] }));
    const view = new DataView(out.buffer);
    expect(returned).toBe(PASSED);
    // The probe has a sequence number that the other side has already received, so the other side replies
    // with an ACK.
    expect([view.getUint32(TCP + 4), view.getUint8(TCP + 13)]).toEqual([69_999, 0x10]);
    expect(view.getUint32(TCP + 8)).toBe((50_000 + DELTAS.acknowledgment) % 2 ** 32);
    expect(tcpSum(out)).toBe(0xffff);
    expect(run(frameOf(reversed(ENDS), { flags: 0x12, payload: 0 })).returned).toBe(DROPPED);
  });
});
