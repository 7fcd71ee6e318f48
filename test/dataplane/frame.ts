import type { Address, Packet } from '#contracts/policy/policy-model.js';
import { IPPROTO, PORT_PROTOCOLS } from '#contracts/policy/policy-model.js';

export const TCP = { fin: 0x01, syn: 0x02, rst: 0x04, psh: 0x08, ack: 0x10, urg: 0x20 } as const;
export const MORE_FRAGMENTS = 0x2000;

/** Options of a frame of each IP family. */
export type PacketOptions = {
  readonly tcpFlags?: number;
  readonly sequence?: number;
  readonly acknowledgment?: number;
  readonly icmpId?: number;
  readonly etherType?: number;
  readonly id?: number;
  /**
   * Flags and fragment offset, as the 16-bit number of an IPv4 header. A frame of IPv6 has a fragment header
   * with this flag and offset, and none without this option.
   */
  readonly fragment?: number;
  readonly version?: number;
  readonly payloadBytes?: number;
  /** The bytes after the IP header; replaces the transport header and `payloadBytes`. */
  readonly content?: Uint8Array;
};

export type FrameOptions = PacketOptions & {
  /**
   * Length of the IPv4 options in bytes, a multiple of 4. The options are NOPs, except for the bytes that
   * `optionText` gives.
   */
  readonly optionBytes?: number;
  readonly optionText?: readonly number[];
  readonly headerWords?: number;
  readonly totalLength?: number;
};

export const ETHERNET = 14;
export const MAX_FRAME = 2048;

/** Writes `packet` as an Ethernet frame into `bytes`, and returns the length of the frame in bytes. */
export function writeFrame(bytes: Uint8Array, packet: Packet<number>, options: FrameOptions = {}): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const headerBytes = 20 + (options.optionBytes ?? 0);
  const behind = options.content?.length ?? transportBytes(packet.protocol) + (options.payloadBytes ?? 4);
  const total = headerBytes + behind;
  bytes.fill(0, 0, ETHERNET + total);
  bytes.set([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
  view.setUint16(12, options.etherType ?? 0x0800);
  view.setUint8(14, (options.version ?? 4) * 16 + (options.headerWords ?? headerBytes / 4));
  view.setUint16(16, options.totalLength ?? total);
  view.setUint16(18, options.id ?? 0);
  view.setUint16(20, options.fragment ?? 0x4000);
  view.setUint8(22, 64);
  view.setUint8(23, packet.protocol);
  view.setUint32(26, packet.source);
  view.setUint32(30, packet.destination);
  for (let at = 34; at < ETHERNET + headerBytes; at++) view.setUint8(at, options.optionText?.[at - 34] ?? 1);
  const l4 = ETHERNET + headerBytes;
  if (options.content !== undefined) bytes.set(options.content, l4);
  else writeTransport(view, l4, behind, packet, options, IPPROTO.icmp);
  return ETHERNET + total;
}

type Ipv6Options = {
  readonly nextHeader: number;
  readonly hopLimit?: number;
  readonly source?: readonly number[];
  readonly destination?: readonly number[];
  /** The bytes after the IPv6 header; by default eight zero bytes. */
  readonly content?: Uint8Array;
};

/**
 * Writes an Ethernet frame with an IPv6 packet into `bytes`, and returns the length of the frame in bytes. By
 * default the packet goes from 2001:db8::1 to 2001:db8::2.
 */
export function writeIpv6Frame(bytes: Uint8Array, options: Ipv6Options): number {
  const content = options.content ?? new Uint8Array(8);
  const ends = [options.source ?? DOCUMENTED(1), options.destination ?? DOCUMENTED(2)].flat();
  const length = ETHERNET + 40 + content.length;
  bytes.fill(0, 0, length);
  bytes.set([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0]);
  bytes.set([content.length >> 8, content.length & 255, options.nextHeader, options.hopLimit ?? 64, ...ends], 18);
  bytes.set(content, ETHERNET + 40);
  return length;
}

const DOCUMENTED = (last: number): number[] => [0x20, 0x01, 0x0d, 0xb8, ...new Array<number>(11).fill(0), last];

/** Writes the checksum of the IPv4 header into `frame`, and returns `frame`. */
export function withChecksum(frame: Uint8Array): Uint8Array {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.length);
  const end = ETHERNET + (view.getUint8(ETHERNET) & 15) * 4;
  view.setUint16(ETHERNET + 10, 0);
  let sum = 0;
  for (let offset = ETHERNET; offset + 1 < Math.min(end, frame.length); offset += 2) sum += view.getUint16(offset);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  view.setUint16(ETHERNET + 10, ~sum & 0xffff);
  return frame;
}

/**
 * Writes the header of the packet's protocol at offset `l4`. `length`: length of this header with its
 * payload. `icmp`: the protocol of ICMP messages in this IP family.
 */
export function writeTransport(
  view: DataView,
  l4: number,
  length: number,
  packet: Packet<Address>,
  options: PacketOptions,
  icmp: number,
): void {
  if (packet.protocol === icmp) {
    view.setUint8(l4, packet.icmpType);
    view.setUint8(l4 + 1, packet.icmpCode);
    view.setUint16(l4 + 4, options.icmpId ?? 77);
  } else if (PORT_PROTOCOLS.includes(packet.protocol)) {
    view.setUint16(l4, packet.sourcePort);
    view.setUint16(l4 + 2, packet.destinationPort);
  }
  if (packet.protocol === IPPROTO.udp) view.setUint16(l4 + 4, length);
  if (packet.protocol === IPPROTO.tcp) {
    view.setUint32(l4 + 4, options.sequence ?? 0);
    view.setUint32(l4 + 8, options.acknowledgment ?? 0);
    view.setUint8(l4 + 12, 5 << 4);
    view.setUint8(l4 + 13, options.tcpFlags ?? TCP.syn);
  }
}

export function transportBytes(protocol: number): number {
  if (protocol === IPPROTO.tcp) return 20;
  if (protocol === IPPROTO.sctp || protocol === IPPROTO.dccp) return 12;
  return 8;
}

const scratch = new Uint8Array(MAX_FRAME);

/**
 * Returns the body of an ICMP error that quotes `packet`: 8 zero bytes in the place of the ICMP header, the
 * IPv4 header of the packet, and the first `bytes` bytes behind that header.
 */
export function quoteOf(packet: Packet<number>, options: FrameOptions = {}, bytes = 8): Uint8Array {
  const length = writeFrame(scratch, packet, options);
  const header = 20 + (options.optionBytes ?? 0);
  const content = new Uint8Array(8 + header + bytes);
  content.set(scratch.subarray(ETHERNET, Math.min(length, ETHERNET + header + bytes)), 8);
  return content;
}

/**
 * Returns a copy of the ICMP message `rest` with this type and code in the first two bytes. The checksum is
 * not computed.
 */
export function icmpContent(type: number, code: number, rest: Uint8Array): Uint8Array {
  const content = Uint8Array.from(rest);
  content[0] = type;
  content[1] = code;
  return content;
}
