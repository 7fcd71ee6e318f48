import type { Ends } from '#contracts/policy/policy-model.js';

const IP_BYTES = 20;
const TCP_BYTES = 20;
const TIME_STAMP_BYTES = 12;
const IPPROTO_TCP = 6;
const TTL = 64;
const DONT_FRAGMENT = 0x4000;
export const TCP_FLAGS = { rst: 0x04, ack: 0x10 } as const;

export type TcpSegment = Ends<number> & {
  readonly sequence: number;
  readonly acknowledgment: number;
  readonly flags: number;
  readonly window: number;
  /** The TCP time stamp option: the value of the sender (TSval), then the echo reply (TSecr). */
  readonly stamps?: readonly [number, number] | undefined;
};

/** Returns an IPv4 packet with a TCP segment that has no data (RFC 9293, 3.1; RFC 7323, 3.2). */
export function segmentBytes(segment: TcpSegment): Uint8Array {
  const { source, destination, sourcePort, destinationPort, stamps } = segment;
  const tcpBytes = TCP_BYTES + (stamps === undefined ? 0 : TIME_STAMP_BYTES);
  const bytes = new Uint8Array(IP_BYTES + tcpBytes);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, 0x45);
  view.setUint16(2, bytes.length);
  view.setUint16(6, DONT_FRAGMENT);
  view.setUint8(8, TTL);
  view.setUint8(9, IPPROTO_TCP);
  view.setUint32(12, source);
  view.setUint32(16, destination);
  view.setUint16(10, sumOf(view, 0, IP_BYTES, 0));
  view.setUint16(20, sourcePort);
  view.setUint16(22, destinationPort);
  view.setUint32(24, segment.sequence);
  view.setUint32(28, segment.acknowledgment);
  view.setUint8(32, (tcpBytes / 4) << 4);
  view.setUint8(33, segment.flags);
  view.setUint16(34, segment.window);
  if (stamps !== undefined) {
    view.setUint32(40, 0x01_01_08_0a);
    view.setUint32(44, stamps[0]);
    view.setUint32(48, stamps[1]);
  }
  // The TCP checksum also covers a pseudo-header: the two addresses, the protocol number and the TCP length.
  const pseudo = sumOf(view, 12, IP_BYTES, IPPROTO_TCP + tcpBytes) ^ 0xffff;
  view.setUint16(36, sumOf(view, IP_BYTES, bytes.length, pseudo));
  return bytes;
}

/**
 * Returns the Internet checksum (RFC 1071) of the bytes from offset `from` to offset `to`, exclusive. The sum
 * starts at `initial`.
 */
function sumOf(view: DataView, from: number, to: number, initial: number): number {
  let sum = initial;
  for (let at = from; at < to; at += 2) sum += view.getUint16(at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return sum ^ 0xffff;
}
