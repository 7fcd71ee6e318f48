import { parseAddress } from '#addresses/ip-address.js';
import { IPPROTO, type Packet } from '#contracts/policy/policy-model.js';
import { ETHERNET, MAX_FRAME } from '#test/dataplane/frame.js';
import { type Ipv6FrameOptions, writeIpv6Packet } from '#test/dataplane/ipv6-frame.js';

const HEADER = 40;
const CHECKSUM_AT: Readonly<Record<number, number>> = { [IPPROTO.tcp]: 16, [IPPROTO.udp]: 6, [IPPROTO.icmpv6]: 2 };

/** Parses an IPv6 address. */
export function ipv6Address(text: string): bigint {
  const address = parseAddress(text);
  if (typeof address !== 'bigint') throw new Error(`not an address of IPv6: ${text}`);
  return address;
}

/** Returns a packet between two addresses, with the fields in `given` replaced. */
export function ipv6Packet(source: string, destination: string, given: Partial<Packet<bigint>>): Packet<bigint> {
  return {
    ...{ protocol: IPPROTO.udp, sourcePort: 0, destinationPort: 0, icmpType: 0, icmpCode: 0 },
    ...given,
    ...{ source: ipv6Address(source), destination: ipv6Address(destination) },
  };
}

/**
 * Returns an Ethernet frame with the checksum of its TCP, UDP or ICMPv6 header. A multicast packet goes to
 * the MAC address of its group, another to that of `writeIpv6Packet`.
 */
export function ipv6Frame(packet: Packet<bigint>, options: Ipv6FrameOptions = {}): Uint8Array {
  const frame = new Uint8Array(MAX_FRAME);
  const length = writeIpv6Packet(frame, packet, options);
  if (packet.destination >> 120n === 0xffn) frame.set([0x33, 0x33, ...frame.subarray(ETHERNET + 36, ETHERNET + 40)]);
  const extensions = [...(options.extensions ?? []), ...(options.fragmented ?? [])];
  const headers = extensions.reduce((sum, { bytes }) => sum + bytes.length, options.fragment === undefined ? 0 : 8);
  const isPart = (options.fragment ?? 0) !== 0;
  if (!isPart) writeChecksum(frame.subarray(0, length), packet.protocol, ETHERNET + HEADER + headers);
  return frame.slice(0, length);
}

/** Writes the checksum of the header at offset `l4`, with the pseudo-header of RFC 8200, 8.1. */
function writeChecksum(frame: Uint8Array, protocol: number, l4: number): void {
  const offset = CHECKSUM_AT[protocol];
  if (offset === undefined) return;
  const view = new DataView(frame.buffer, frame.byteOffset, frame.length);
  view.setUint16(l4 + offset, 0);
  let sum = protocol + frame.length - l4;
  for (let at = ETHERNET + 8; at < ETHERNET + HEADER; at += 2) sum += view.getUint16(at);
  for (let at = l4; at < frame.length; at += 2)
    sum += at + 1 < frame.length ? view.getUint16(at) : view.getUint8(at) << 8;
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  view.setUint16(l4 + offset, ~sum & 0xffff);
}
