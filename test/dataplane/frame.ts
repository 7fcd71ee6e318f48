import type { Packet } from '#policy/model.js';
import { IPPROTO, PORT_PROTOCOLS } from '#policy/model.js';

export const TCP = { fin: 0x01, syn: 0x02, rst: 0x04, psh: 0x08, ack: 0x10 } as const;

export type FrameOptions = {
  readonly tcpFlags?: number;
  readonly icmpId?: number;
  readonly etherType?: number;
  /** Flags and offset of the IPv4 header, as one 16-bit number. */
  readonly fragment?: number;
  /** Bytes of IPv4 options, a multiple of 4. */
  readonly optionBytes?: number;
  readonly version?: number;
  readonly headerWords?: number;
  readonly totalLength?: number;
  readonly payloadBytes?: number;
};

const ETHERNET = 14;
export const MAX_FRAME = 256;

/** Writes an Ethernet frame that carries the packet into `bytes`, and answers its length. */
export function writeFrame(bytes: Uint8Array, packet: Packet, options: FrameOptions = {}): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  bytes.fill(0);
  bytes.set([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
  view.setUint16(12, options.etherType ?? 0x0800);
  const headerBytes = 20 + (options.optionBytes ?? 0);
  const l4Bytes = transportBytes(packet.protocol);
  const total = headerBytes + l4Bytes + (options.payloadBytes ?? 4);
  view.setUint8(14, (options.version ?? 4) * 16 + (options.headerWords ?? headerBytes / 4));
  view.setUint16(16, options.totalLength ?? total);
  view.setUint16(20, options.fragment ?? 0x4000);
  view.setUint8(22, 64);
  view.setUint8(23, packet.protocol);
  view.setUint32(26, packet.source);
  view.setUint32(30, packet.destination);
  for (let at = 34; at < ETHERNET + headerBytes; at++) view.setUint8(at, 1);
  const l4 = ETHERNET + headerBytes;
  if (packet.protocol === IPPROTO.icmp) {
    view.setUint8(l4, packet.icmpType);
    view.setUint8(l4 + 1, packet.icmpCode);
    view.setUint16(l4 + 4, options.icmpId ?? 77);
  } else if (PORT_PROTOCOLS.includes(packet.protocol)) {
    view.setUint16(l4, packet.sourcePort);
    view.setUint16(l4 + 2, packet.destinationPort);
  }
  if (packet.protocol === IPPROTO.udp) view.setUint16(l4 + 4, total - headerBytes);
  if (packet.protocol === IPPROTO.tcp) {
    view.setUint8(l4 + 12, 5 << 4);
    view.setUint8(l4 + 13, options.tcpFlags ?? TCP.syn);
  }
  return ETHERNET + total;
}

function transportBytes(protocol: number): number {
  if (protocol === IPPROTO.tcp) return 20;
  if (protocol === IPPROTO.sctp || protocol === IPPROTO.dccp) return 12;
  return 8;
}
