import {
  type AddressOf,
  type Family,
  IPPROTO,
  type Packet,
  PORT_PROTOCOLS,
  reversed,
} from '#contracts/policy/policy-model.js';
import type { Random } from '#test/seed.js';
import { FAMILY_FRAMES, type OptionsOf } from '../family-frames.js';
import { ETHERNET, icmpContent, MAX_FRAME, MORE_FRAGMENTS, type PacketOptions, TCP, writeIpv6Frame } from '../frame.js';
import { EXEMPT_BIT, GUARD_BIT } from '../marks.js';
import type { Seen } from '../model/datapath.js';
import { FAMILY_MODELS } from '../model/family-models.js';
import type { FrameSource } from './frame-sources.js';

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
const UNITS = [0, 0, 0, 0, 1, 2, 2, 3, 3, 4, 5, 6, 8, 12, 63, 64, 8180, 8189, 8191];

/**
 * Probabilities that a frame belongs to a new conversation, is a reply, and is a fragment. `changes`: how
 * many of a thousand steps change the policy.
 */
type Mood = { readonly changes: number; readonly fresh: number; readonly replies: number; readonly fragments: number };

/**
 * Returns `length` steps: frames of a few conversations, some of them mutated, and changes of the policy,
 * the epoch and the pickup period, in which a TCP packet without SYN may open a flow.
 */
export function makeSequence<F extends Family>(
  random: Random,
  source: FrameSource<F>,
  packet: () => Packet<AddressOf<F>>,
  length: number,
): Step[] {
  const conversations = [conversation(random, source, packet())];
  for (let more = random.below(5); more > 0; more--) {
    const another = random.chance(0.25)
      ? neighbour(random, source, random.pick(conversations))
      : conversation(random, source, packet());
    conversations.push(another);
  }
  const mood: Mood = random.chance(0.3)
    ? { changes: 16, fresh: 0.02, replies: 0.1, fragments: 0.7 }
    : { changes: random.pick([16, 16, 100]), fresh: 0.2, replies: 0.45, fragments: 0.1 };
  const scratch = new Uint8Array(MAX_FRAME);
  return Array.from({ length }, () => {
    const chance = random.below(1_000);
    if (chance < mood.changes) return { kind: 'other_policy' };
    if (chance < mood.changes + 4) return { kind: 'new_epoch' };
    if (chance < mood.changes + 8) return { kind: 'pickup_begins' };
    if (chance < mood.changes + 22) return { kind: 'pickup_ends' };
    const opening = random.chance(mood.fresh) ? conversation(random, source, packet()) : random.pick(conversations);
    const written = writeStep(random, source, scratch, opening, mood);
    const bytes = scratch.slice(0, written);
    return {
      kind: 'frame',
      bytes: runnable(source, random.chance(0.2) ? mutate(random, source, bytes) : bytes),
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
function conversation<F extends Family>(
  random: Random,
  source: FrameSource<F>,
  packet: Packet<AddressOf<F>>,
): Packet<AddressOf<F>> {
  const { icmp } = FAMILY_MODELS[source.family];
  const protocol = random.chance(0.4) ? IPPROTO.tcp : random.chance(0.2) ? icmp.protocol : packet.protocol;
  const isIcmp = protocol === icmp.protocol;
  const asks = isIcmp && random.chance(0.8);
  const hasPorts = PORT_PROTOCOLS.includes(protocol);
  const address = (from: AddressOf<F>): AddressOf<F> => (random.chance(0.02) ? source.specialAddress(random) : from);
  return {
    ...packet,
    source: address(packet.source),
    destination: address(packet.destination),
    protocol,
    sourcePort: hasPorts ? packet.sourcePort : 0,
    destinationPort: hasPorts ? packet.destinationPort : 0,
    icmpType: asks ? random.pick(source.queries) : isIcmp ? packet.icmpType : 0,
    icmpCode: asks || !isIcmp ? 0 : packet.icmpCode,
  };
}

/** Returns the first packet of a conversation whose addresses differ in one bit from those of another. */
function neighbour<F extends Family>(
  random: Random,
  source: FrameSource<F>,
  packet: Packet<AddressOf<F>>,
): Packet<AddressOf<F>> {
  const end = random.pick(['source', 'destination'] as const);
  return { ...packet, [end]: source.withFlippedBit(random, packet[end]) };
}

function writeStep<F extends Family>(
  random: Random,
  source: FrameSource<F>,
  into: Uint8Array,
  opening: Packet<AddressOf<F>>,
  mood: Mood,
): number {
  const packet = random.chance(mood.replies) ? replyTo(source, opening) : opening;
  const options: OptionsOf<F> = { ...source.headerOptions(random), ...transportOptions(random, source) };
  if (random.chance(mood.fragments)) return writeFragment(random, source, into, packet, options);
  if (random.chance(0.12)) return writeError(random, source, into, packet);
  if (random.chance(source.ofLink)) return writeLinkFrame(random, into);
  return FAMILY_FRAMES[source.family].write(into, packet, { ...options, payloadBytes: random.pick([0, 4, 8, 20]) });
}

function replyTo<F extends Family>({ family }: FrameSource<F>, packet: Packet<AddressOf<F>>): Packet<AddressOf<F>> {
  const { replies } = FAMILY_MODELS[family].icmp;
  return { ...packet, ...reversed(packet), icmpType: replies[packet.icmpType] ?? packet.icmpType };
}

function transportOptions(random: Random, { etherTypes }: FrameSource<Family>): PacketOptions {
  return {
    tcpFlags: random.chance(0.9) ? random.pick(FLAGS) : random.below(256),
    sequence: random.pick(NUMBERS),
    acknowledgment: random.pick(NUMBERS),
    icmpId: random.chance(0.95) ? 77 : 78,
    ...(random.chance(0.01) ? { etherType: random.pick(etherTypes) } : {}),
  };
}

function writeError<F extends Family>(
  random: Random,
  source: FrameSource<F>,
  into: Uint8Array,
  packet: Packet<AddressOf<F>>,
): number {
  const frames = FAMILY_FRAMES[source.family];
  const type = random.pick(source.errors);
  const code = random.below(16);
  const quoted = frames.quote(packet, source.errorOptions(random), random.pick([8, 8, 8, 28, 7, 0]));
  if (random.chance(0.1)) flip(random, quoted, 8, quoted.length);
  const error: Packet<AddressOf<F>> = {
    source: random.chance(0.5) ? packet.destination : source.anyAddress(random),
    destination: random.chance(0.9) ? packet.source : packet.destination,
    protocol: FAMILY_MODELS[source.family].icmp.protocol,
    sourcePort: 0,
    destinationPort: 0,
    icmpType: type,
    icmpCode: code,
  };
  return frames.write(into, error, {
    ...source.errorOptions(random),
    content: icmpContent(type, code, quoted),
    ...(random.chance(0.05) ? { fragment: MORE_FRAGMENTS } : {}),
  });
}

/** Writes a packet that resembles neighbour discovery or multicast listener discovery of IPv6. */
function writeLinkFrame(random: Random, into: Uint8Array): number {
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

function writeFragment<F extends Family>(
  random: Random,
  source: FrameSource<F>,
  into: Uint8Array,
  packet: Packet<AddressOf<F>>,
  options: OptionsOf<F>,
): number {
  const { write } = FAMILY_FRAMES[source.family];
  const unit = random.pick(UNITS);
  const more = random.chance(0.7) ? MORE_FRAGMENTS : 0;
  const placed = {
    ...options,
    ...source.fragmentOptions(random, unit),
    id: random.pick([1, 1, 1, 1, 2, 0x1_0001]),
    fragment: more | unit,
  };
  if (unit === 0) {
    if (random.chance(0.1)) return write(into, packet, { ...placed, content: new Uint8Array(8) });
    const payloadBytes = packet.protocol === IPPROTO.tcp ? 4 : random.pick([0, 4, 8, 16]);
    return write(into, packet, { ...placed, payloadBytes });
  }
  const content = new Uint8Array(random.chance(0.9) ? 8 * random.between(1, 4) : random.between(0, 40));
  content.fill(random.below(256));
  return write(into, packet, { ...placed, content });
}

function mutate(random: Random, source: FrameSource<Family>, bytes: Uint8Array): Uint8Array {
  const kind = random.below(10);
  if (kind < 5) flip(random, bytes, 12, Math.min(bytes.length, source.flippedBytes));
  else if (kind < 8) {
    const at = random.pick(source.fields);
    if (at < bytes.length) bytes[at] = random.pick(source.values);
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
 * EtherType. Changes the EtherType of IPv4 if the frames are of IPv6, because the model has the flows of one
 * family.
 */
function runnable({ family }: FrameSource<Family>, bytes: Uint8Array): Uint8Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (view.getUint16(12) === FAMILY_MODELS.ipv4.etherType) view.setUint16(12, FAMILY_MODELS[family].etherType);
  const etherType = view.getUint16(12);
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
