import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { DROP_REASON } from '#contracts/datapath/datapath-numbers.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import { BpfObject } from '#dataplane/loader/bpf-object.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { Random, seedOf } from '#test/seed.js';
import {
  type ExtensionHeader,
  fragmentHeader,
  NEXT,
  optionHeader,
  routingHeader,
  writeIpv6Packet,
} from './ipv6-frame.js';
import type { DropReason, Headers } from './model/headers.js';
import { readIpv6Headers } from './model/ipv6-headers.js';

const seed = seedOf(8_200);
const FRAMES = Number(process.env.WEIR_FRAMES ?? 50_000);

const ETHERNET = 14;
const HEADER = 40;
const MAX_FRAME = 3_000;
const { hopByHop: HOP_BY_HOP, fragment: FRAGMENT, esp: ESP, ah: AH, none: NO_NEXT, destination: DESTINATION } = NEXT;
const ICMPV6 = IPPROTO.icmpv6;
const [MOBILITY, HIP, SHIM6] = [135, 139, 140];
/** `struct parsed` of parse_ipv6.bpf.c. */
const PARSED = {
  source: 0,
  destination: 16,
  id: 32,
  sourcePort: 36,
  destinationPort: 38,
  icmpId: 40,
  header: 42,
  payload: 44,
  fragmentField: 46,
  reason: 48,
  protocol: 49,
  fragment: 50,
  icmpType: 51,
  icmpCode: 52,
  tcpFlags: 53,
  tos: 54,
  bytes: 56,
} as const;
const PARTS = ['whole', 'first', 'later'] as const;

const folder = mkdtempSync(join(tmpdir(), 'weir-parse-ipv6-'));
const frame = new Uint8Array(MAX_FRAME);
const frameView = new DataView(frame.buffer);
let object: BpfObject;
let parsed: MappedMemory;
let run: TestRun;
beforeAll(() => {
  const path = join(folder, 'parse_ipv6.o');
  const include = `/usr/include/${execFileSync('uname', ['-m'], { encoding: 'utf8' }).trim()}-linux-gnu`;
  const flags = ['-O2', '-g', '-target', 'bpf', '-mcpu=v3', `-I${include}`];
  execFileSync('clang', [...flags, '-c', 'test/dataplane/parse_ipv6.bpf.c', '-o', path]);
  object = new BpfObject(path, 'ipv6');
  object.load();
  // The map of the results exists in this program alone, so the loader does not know its name.
  parsed = new MappedMemory('parsed', object.mapFd('parsed' as 'proof'), PARSED.bytes);
  run = new TestRun(object.programFd('weir_ingress'), frame, undefined, undefined);
});
afterAll(() => {
  parsed?.unmap();
  object?.close();
  rmSync(folder, { recursive: true });
});

/** The fields that the program stores in `struct parsed`. */
type Found = Omit<Headers<bigint>, 'sequence' | 'acknowledgment' | 'data' | 'fragmentBytes'> & { readonly tos: number };

/** Parses the first `length` bytes of `frame` in the kernel. Returns the headers or a drop reason. */
function parse(length: number): Found | DropReason {
  if (run.run(length) !== 0) throw new Error('the program has no memory');
  const view = new DataView(parsed.buffer);
  const reason = view.getUint8(PARSED.reason);
  if (reason !== 0) {
    const name = Object.entries(DROP_REASON).find(([, number]) => number === reason)?.[0];
    return name as DropReason;
  }
  const addressAt = (at: number): bigint => (view.getBigUint64(at + 8, true) << 64n) | view.getBigUint64(at, true);
  const field = view.getUint16(PARSED.fragmentField, true);
  const part = PARTS[view.getUint8(PARSED.fragment)];
  if (part === undefined) throw new Error('there is no such part of a datagram');
  return {
    source: addressAt(PARSED.source),
    destination: addressAt(PARSED.destination),
    protocol: view.getUint8(PARSED.protocol),
    sourcePort: view.getUint16(PARSED.sourcePort, true),
    destinationPort: view.getUint16(PARSED.destinationPort, true),
    icmpType: view.getUint8(PARSED.icmpType),
    icmpCode: view.getUint8(PARSED.icmpCode),
    icmpId: view.getUint16(PARSED.icmpId, true),
    tcpFlags: view.getUint8(PARSED.tcpFlags),
    id: view.getUint32(PARSED.id, true),
    part,
    more: (field & 0x2000) !== 0,
    unit: field & 0x1fff,
    content: ETHERNET + view.getUint16(PARSED.header, true),
    contentBytes: view.getUint16(PARSED.payload, true),
    tos: view.getUint8(PARSED.tos),
  };
}

function expectedOf(length: number): Found | DropReason {
  const expected = readIpv6Headers(frameView, length, false);
  if (typeof expected === 'string') return expected;
  const {
    sequence: _sequence,
    acknowledgment: _acknowledgment,
    data: _data,
    fragmentBytes: _bytes,
    ...rest
  } = expected;
  return { ...rest, tos: (frameView.getUint16(ETHERNET) >> 4) & 0xff };
}

/**
 * Writes an IPv6 packet with these headers, then the header `protocol` with its bytes. Returns the length.
 */
function write(headers: readonly ExtensionHeader[], protocol: number, content: readonly number[]): number {
  return writeIpv6Packet(
    frame,
    { ...ENDS, protocol, sourcePort: 0, destinationPort: 0, icmpType: 0, icmpCode: 0 },
    { extensions: headers, label: 0xab1_2345, content: Uint8Array.from(content) },
  );
}

const ENDS = {
  source: 0x2001_0db8_0001_0002_0003_0004_0005_0006n,
  destination: 0xfd00_0000_0000_0007_0008_0009_000a_000bn,
};

const ID = 0x0102_0304;
const SYN = [0x9c, 0x40, 0x01, 0xbb, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];
const hop = optionHeader(HOP_BY_HOP);
const destination = optionHeader(DESTINATION);
/** Options with a length of 80 bytes, of which the packet has eight and those of the next header. */
const cutOptions: ExtensionHeader = { kind: DESTINATION, bytes: [0, 9, 0, 0, 0, 0, 0, 0] };
const tcp = { protocol: IPPROTO.tcp, sourcePort: 40_000, destinationPort: 443, tcpFlags: 2 };

describe('the IPv6 parser of the datapath', () => {
  test.each<[string, readonly ExtensionHeader[], number, readonly number[], object | DropReason]>([
    ['no extension header', [], IPPROTO.tcp, SYN, { ...tcp, content: 54, part: 'whole', tos: 0xab }],
    ['hop-by-hop options', [hop], IPPROTO.tcp, SYN, { ...tcp, content: 62 }],
    [
      'long options',
      [optionHeader(HOP_BY_HOP, 20), optionHeader(DESTINATION, 255)],
      IPPROTO.tcp,
      SYN,
      { ...tcp, content: 54 + 168 + 2_048 },
    ],
    [
      'four extension headers',
      [hop, destination, destination, fragmentHeader(0, true, ID)],
      IPPROTO.tcp,
      SYN,
      { ...tcp, part: 'first' },
    ],
    [
      'five extension headers',
      [hop, destination, destination, destination, destination],
      IPPROTO.tcp,
      SYN,
      'malformed',
    ],
    ['hop-by-hop options that are not first', [destination, hop], IPPROTO.tcp, SYN, 'malformed'],
    ['a routing header of type 0', [routingHeader(0)], IPPROTO.tcp, SYN, 'source_route'],
    ['a routing header of type 4 after options', [hop, routingHeader(4)], IPPROTO.tcp, SYN, 'source_route'],
    [
      'a routing header after four headers',
      [hop, destination, destination, destination, routingHeader(2)],
      IPPROTO.tcp,
      SYN,
      'source_route',
    ],
    ['ESP', [destination], ESP, SYN, { protocol: ESP, sourcePort: 0, destinationPort: 0 }],
    ['AH before TCP', [hop], AH, [6, 4, ...SYN], { protocol: AH, sourcePort: 0, destinationPort: 0 }],
    ['no next header', [destination], NO_NEXT, [], { protocol: NO_NEXT, contentBytes: 0 }],
    ['mobility', [], MOBILITY, SYN, { protocol: MOBILITY, sourcePort: 0 }],
    ['HIP', [hop], HIP, SYN, { protocol: HIP, sourcePort: 0 }],
    ['shim6', [], SHIM6, SYN, { protocol: SHIM6, sourcePort: 0 }],
    ['an unknown header', [hop], 253, SYN, { protocol: 253, sourcePort: 0 }],
    [
      'ICMPv6',
      [],
      ICMPV6,
      [128, 3, 0, 0, 0x12, 0x34, 0, 1],
      { protocol: ICMPV6, icmpType: 128, icmpCode: 3, icmpId: 0x1234 },
    ],
    ['ICMP of IPv4', [], IPPROTO.icmp, [8, 0, 0, 0, 0x12, 0x34, 0, 1], { protocol: 1, icmpType: 0, icmpId: 0 }],
    ['an atomic fragment', [fragmentHeader(0, false, ID)], IPPROTO.tcp, SYN, { ...tcp, part: 'whole', id: 0 }],
    [
      'a first fragment',
      [fragmentHeader(0, true, ID)],
      IPPROTO.tcp,
      SYN,
      { ...tcp, part: 'first', more: true, id: 0x0102_0304 },
    ],
    [
      'a later fragment',
      [fragmentHeader(3, false, ID)],
      IPPROTO.tcp,
      SYN,
      { protocol: 6, sourcePort: 0, part: 'later', unit: 3 },
    ],
    [
      'a later fragment that begins like options',
      [fragmentHeader(3, true, ID), destination],
      IPPROTO.tcp,
      SYN,
      { protocol: DESTINATION, part: 'later' },
    ],
    [
      'a first fragment that ends in options',
      [fragmentHeader(0, true, ID), cutOptions],
      IPPROTO.tcp,
      SYN,
      'fragment_tiny',
    ],
    ['options beyond the packet', [cutOptions], IPPROTO.tcp, SYN, 'malformed'],
    [
      'a first fragment that ends in its ports',
      [fragmentHeader(0, true, ID)],
      IPPROTO.tcp,
      SYN.slice(0, 8),
      'fragment_tiny',
    ],
    [
      'a first fragment without a header of TCP',
      [fragmentHeader(0, true, ID), destination],
      IPPROTO.tcp,
      [],
      'malformed',
    ],
    [
      'two fragment headers',
      [fragmentHeader(0, false, ID), fragmentHeader(0, false, ID)],
      IPPROTO.tcp,
      SYN,
      'malformed',
    ],
    ['a fragment beyond the longest packet', [fragmentHeader(8_191, false, ID)], IPPROTO.tcp, SYN, 'malformed'],
    ['a fragment of a part of a unit', [fragmentHeader(1, true, ID)], IPPROTO.tcp, SYN.slice(0, 15), 'malformed'],
  ])('the IPv6 parser of the datapath reads a packet with %s', (_, headers, protocol, content, expected) => {
    const length = write(headers, protocol, content);
    expect(parse(length)).toEqual(typeof expected === 'string' ? expected : expect.objectContaining(expected));
  });

  test.each<[string, number, number]>([
    ['a payload length of 0', 5, 0],
    ['a payload that ends after the frame', 5, SYN.length + 1],
    ['the version 4', 0, 0x45],
  ])('the IPv6 parser of the datapath drops a packet with %s as malformed', (_, at, value) => {
    const length = write([], NO_NEXT, SYN);
    frame[ETHERNET + at] = value;
    expect(parse(length)).toBe('malformed');
  });

  test('the IPv6 parser of the datapath reads random packets as a TypeScript model', () => {
    const random = new Random(seed);
    const counts = new Map<string, number>();
    for (let number = 0; number < FRAMES; number++) {
      const length = randomFrame(random);
      const expected = expectedOf(length);
      const found = parse(length);
      if (inspect(found) !== inspect(expected)) {
        const bytes = Buffer.from(frame.subarray(0, length)).toString('hex');
        expect.fail(inspect({ seed, number, found, expected, bytes }, { maxStringLength: null }));
      }
      const kind =
        typeof expected === 'string' ? expected : `${expected.part}, ${expected.content > 54 ? 'extended' : 'plain'}`;
      counts.set(kind, (counts.get(kind) ?? 0) + 1);
    }
    console.log(`IPv6 parser: ${FRAMES} frames, seed ${seed}`, Object.fromEntries(counts));
    expect([...counts.keys()].sort()).toEqual([
      'first, extended',
      'fragment_tiny',
      'later, extended',
      'malformed',
      'source_route',
      'tcp_flags',
      'whole, extended',
      'whole, plain',
    ]);
    expect(Math.min(...counts.values())).toBeGreaterThan(FRAMES / 500);
  });
});

const LAST = [6, 6, 6, 17, 17, 33, 132, 136, ICMPV6, ICMPV6, IPPROTO.icmp, 47, ESP, AH, NO_NEXT, MOBILITY, HIP, SHIM6];

/**
 * Writes a random packet, of which some are damaged, into `frame`. Returns the length of the frame. The
 * kernel runs no program on a frame that is shorter than the IPv6 header.
 */
function randomFrame(random: Random): number {
  const headers = Array.from({ length: random.pick([0, 0, 1, 1, 1, 2, 2, 3, 4, 5]) }, (_, index) =>
    randomHeader(random, index),
  );
  const protocol = random.chance(0.05) ? random.below(256) : random.pick(LAST);
  const content = Array.from({ length: random.pick([0, 1, 8, 8, 16, 20, 24, 24, 32, 40, 64, 65]) }, () =>
    random.below(256),
  );
  const isUdp = protocol === IPPROTO.udp && content.length >= 8;
  if (isUdp && random.chance(0.9)) content.splice(4, 2, 0, random.chance(0.9) ? content.length : random.below(80));
  const isTcp = protocol === IPPROTO.tcp && content.length >= 20;
  if (isTcp && random.chance(0.9)) content.splice(12, 2, random.between(5, 6) << 4, random.pick([2, 16, 18, 4, 17, 3]));
  let length = write(headers, protocol, content);
  if (random.chance(0.05)) frame[ETHERNET + 4] = random.pick([0, 1, 255]);
  if (random.chance(0.05)) frame[ETHERNET + 5] = random.below(256);
  for (let damaged = random.chance(0.1) ? random.between(1, 3) : 0; damaged > 0; damaged--)
    frame[random.between(ETHERNET, length - 1)] = random.below(256);
  if (random.chance(0.05)) length = random.between(ETHERNET + HEADER, length);
  else if (random.chance(0.1)) length += random.below(20);
  return length;
}

function randomHeader(random: Random, index: number): ExtensionHeader {
  const kind = index === 0 ? random.pick([HOP_BY_HOP, FRAGMENT, DESTINATION]) : random.pick([FRAGMENT, DESTINATION]);
  if (random.chance(0.04)) return routingHeader(random.below(5));
  if (random.chance(0.03)) return optionHeader(HOP_BY_HOP);
  if (kind === FRAGMENT) {
    const unit = random.pick([0, 0, 0, 1, 2, 8_000, 8_185, 8_191, random.below(8_192)]);
    return fragmentHeader(unit, random.chance(0.5), random.word());
  }
  const units = random.pick([0, 0, 0, 0, 1, 2, 30]);
  return random.chance(0.1)
    ? { kind, bytes: [0, random.below(256), ...Array<number>(6).fill(0)] }
    : optionHeader(kind, units);
}
