import { IPPROTO, type Packet } from '#contracts/policy/policy-model.js';
import type { Random } from '#test/seed.js';
import { back, icmp } from '../conversation.js';
import {
  ETHERNET,
  type FrameOptions,
  icmpContent,
  MAX_FRAME,
  MORE_FRAGMENTS,
  quoteOf,
  TCP,
  writeFrame,
  writeIpv6Frame,
} from '../frame.js';
import { EXEMPT_BIT, GUARD_BIT } from '../marks.js';
import type { Seen } from '../model/datapath.js';

type FrameStep = {
  readonly kind: 'frame';
  readonly bytes: Uint8Array;
  readonly mark: number;
  readonly seen: Seen;
  /** Number of merged segments in the frame; 0 for a frame without merged segments. */
  readonly segments: number;
};
export type Step = FrameStep | { readonly kind: 'other_policy' | 'new_epoch' | 'pickup_begins' | 'pickup_ends' };

const FLAGS = [
  TCP.syn,
  TCP.syn | TCP.ack,
  TCP.ack,
  TCP.ack,
  TCP.psh | TCP.ack,
  TCP.fin | TCP.ack,
  TCP.rst,
  TCP.rst | TCP.ack,
];
/** Few sequence and acknowledgment numbers, so that some of the RST packets have an expected number. */
const NUMBERS = [0, 1, 2, 3, 3, 3, 4, 0x1_0003, 0xffff_ffff];
const ETHER_TYPES = [0x0806, 0x86dd, 0x8100, 0x88a8, 0x9100, 0x9200, 0x9300, 0x0004, 0x05ff, 0x8864, 0x8847, 0x0801];
const UNITS = [0, 0, 0, 0, 1, 2, 2, 3, 3, 4, 5, 6, 8, 12, 63, 64, 8180, 8189, 8191];
const ERRORS = [3, 3, 3, 4, 5, 11, 12];
const QUERIES = [8, 8, 8, 13, 15, 17];
/**
 * Offsets of the frame bytes that `mutate` overwrites: EtherType, IPv4 header, and the start of the IPv4
 * payload.
 */
const FIELDS = [12, 14, 15, 16, 17, 18, 20, 21, 22, 23, 24, 26, 29, 30, 33, 34, 35, 36, 37, 38, 39, 42, 46, 47, 54];

/** Probabilities that a frame belongs to a new conversation, is a reply, and is a fragment. */
type Mood = { readonly fresh: number; readonly replies: number; readonly fragments: number };

/**
 * Returns `length` steps: frames of a few conversations, some of them mutated, and changes of the policy,
 * the epoch and the pickup period, in which a TCP packet without SYN may open a flow.
 */
export function makeSequence(random: Random, packet: () => Packet<number>, length: number): Step[] {
  const conversations = Array.from({ length: random.between(1, 5) }, () => conversation(random, packet()));
  const mood: Mood = random.chance(0.3)
    ? { fresh: 0.02, replies: 0.1, fragments: 0.7 }
    : { fresh: 0.2, replies: 0.45, fragments: 0.1 };
  const scratch = new Uint8Array(MAX_FRAME);
  return Array.from({ length }, () => {
    const chance = random.below(1_000);
    if (chance < 16) return { kind: 'other_policy' };
    if (chance < 20) return { kind: 'new_epoch' };
    if (chance < 24) return { kind: 'pickup_begins' };
    if (chance < 38) return { kind: 'pickup_ends' };
    const opening = random.chance(mood.fresh) ? conversation(random, packet()) : random.pick(conversations);
    const written = writeStep(random, scratch, opening, mood);
    const bytes = scratch.slice(0, written);
    return {
      kind: 'frame',
      bytes: runnable(random.chance(0.2) ? mutate(random, bytes) : bytes),
      mark: mark(random),
      seen: random.pick(SEEN),
      segments: random.chance(0.02) ? random.between(1, 40) : 0,
    };
  });
}

const SEEN: readonly Seen[] = ['in', 'in', 'in', 'in', 'in', 'in', 'in', 'out_of_node', 'out_foreign'];

function mark(random: Random): number {
  if (!random.chance(0.2)) return 0;
  return (random.word() & ~(random.chance(0.8) ? GUARD_BIT : 0) & ~(random.chance(0.7) ? EXEMPT_BIT : 0)) >>> 0;
}

/**
 * Returns the first packet of a conversation. On average, at least 40 % of the conversations are TCP, and
 * at least 80 % of the ICMP conversations begin with a query.
 */
function conversation(random: Random, packet: Packet<number>): Packet<number> {
  const protocol = random.chance(0.4) ? IPPROTO.tcp : random.chance(0.2) ? IPPROTO.icmp : packet.protocol;
  const isIcmp = protocol === IPPROTO.icmp;
  const asks = isIcmp && random.chance(0.8);
  const hasPorts = Object.values(IPPROTO).some((one) => one === protocol) && !isIcmp;
  const address = (from: number): number => (random.chance(0.02) ? 0x7f00_0000 + random.below(4) : from);
  return {
    ...packet,
    source: address(packet.source),
    destination: address(packet.destination),
    protocol,
    sourcePort: hasPorts ? packet.sourcePort : 0,
    destinationPort: hasPorts ? packet.destinationPort : 0,
    icmpType: asks ? random.pick(QUERIES) : isIcmp ? packet.icmpType : 0,
    icmpCode: asks || !isIcmp ? 0 : packet.icmpCode,
  };
}

function writeStep(random: Random, into: Uint8Array, opening: Packet<number>, mood: Mood): number {
  const replies = random.chance(mood.replies);
  const turned = replies ? back(opening) : opening;
  const packet =
    replies && [13, 15, 17].includes(opening.icmpType) ? { ...turned, icmpType: opening.icmpType + 1 } : turned;
  const options = headers(random);
  if (random.chance(mood.fragments)) return writeFragment(random, into, packet, options);
  if (random.chance(0.12)) return writeError(random, into, packet);
  if (random.chance(0.005)) return writeIpv6(random, into);
  return writeFrame(into, packet, { ...options, payloadBytes: random.pick([0, 4, 8, 20]) });
}

function headers(random: Random): FrameOptions {
  const optionBytes = random.chance(0.08) ? 4 * random.between(1, 10) : 0;
  return {
    tcpFlags: random.chance(0.9) ? random.pick(FLAGS) : random.below(256),
    sequence: random.pick(NUMBERS),
    acknowledgment: random.pick(NUMBERS),
    icmpId: random.chance(0.95) ? 77 : 78,
    optionBytes,
    optionText: random.chance(0.5)
      ? []
      : Array.from({ length: optionBytes }, () => random.pick([0, 1, 2, 3, 4, 7, 68, 131, 137, 148])),
    ...(random.chance(0.01) ? { etherType: random.pick(ETHER_TYPES) } : {}),
    ...(random.chance(0.02) ? { totalLength: random.below(80) } : {}),
  };
}

function writeError(random: Random, into: Uint8Array, packet: Packet<number>): number {
  const type = random.pick(ERRORS);
  const code = random.below(16);
  const quoted = quoteOf(packet, { optionBytes: random.pick([0, 0, 0, 40]) }, random.pick([8, 8, 8, 28, 7, 0]));
  if (random.chance(0.1)) flip(random, quoted, 8, quoted.length);
  const from = random.chance(0.5) ? packet.destination : random.word();
  const to = random.chance(0.9) ? packet.source : packet.destination;
  return writeFrame(into, icmp(from, to, type, code), {
    content: icmpContent(type, code, quoted),
    ...(random.chance(0.05) ? { fragment: MORE_FRAGMENTS } : {}),
  });
}

function writeIpv6(random: Random, into: Uint8Array): number {
  return writeIpv6Frame(into, {
    nextHeader: random.pick([0, 0, 58, 58, 6]),
    hopLimit: random.pick([1, 64, 255]),
    content: Uint8Array.from([
      random.pick([58, 58, 132, 133, 137, 138]),
      random.pick([0, 0, 1]),
      ...[5, 2, 0, 0, 1, 0],
      random.pick([129, 130, 132, 133, 143]),
    ]),
  });
}

function writeFragment(random: Random, into: Uint8Array, packet: Packet<number>, options: FrameOptions): number {
  const unit = random.pick(UNITS);
  const more = random.chance(0.7) ? MORE_FRAGMENTS : 0;
  const placed = { ...options, id: random.pick([1, 1, 1, 2]), fragment: more | unit };
  if (unit === 0) {
    if (random.chance(0.1)) return writeFrame(into, packet, { ...placed, content: new Uint8Array(8) });
    const payloadBytes = packet.protocol === IPPROTO.tcp ? 4 : random.pick([0, 4, 8, 16]);
    return writeFrame(into, packet, { ...placed, payloadBytes });
  }
  const content = new Uint8Array(random.chance(0.9) ? 8 * random.between(1, 4) : random.between(0, 40));
  content.fill(random.below(256));
  return writeFrame(into, packet, { ...placed, content });
}

function mutate(random: Random, bytes: Uint8Array): Uint8Array {
  const kind = random.below(10);
  if (kind < 5) flip(random, bytes, 12, Math.min(bytes.length, 64));
  else if (kind < 8) {
    const at = random.pick(FIELDS);
    if (at < bytes.length) bytes[at] = random.pick([0, 1, 4, 5, 6, 8, 17, 20, 28, 40, 60, 64, 69, 127, 128, 255]);
  } else if (kind < 9) {
    return bytes.slice(0, Math.max(ETHERNET, bytes.length - random.between(1, 50)));
  } else {
    const longer = new Uint8Array(bytes.length + random.between(1, 40));
    longer.set(bytes);
    return longer;
  }
  return bytes;
}

/**
 * Extends a short frame with zeros: BPF_PROG_TEST_RUN refuses a frame that is shorter than the header of its
 * EtherType.
 */
function runnable(bytes: Uint8Array): Uint8Array {
  const etherType = ((bytes[12] ?? 0) << 8) | (bytes[13] ?? 0);
  const least = ETHERNET + (etherType === 0x86dd ? 40 : 20);
  if (bytes.length >= least) return bytes;
  const longer = new Uint8Array(least);
  longer.set(bytes);
  return longer;
}

function flip(random: Random, bytes: Uint8Array, from: number, to: number): void {
  for (let count = random.between(1, 3); count > 0 && to > from; count--) {
    const at = random.between(from, to - 1);
    bytes[at] = (bytes[at] ?? 0) ^ (1 << random.below(8));
  }
}
