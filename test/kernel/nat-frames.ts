import { formatAddress, parseIpv4Address } from '#addresses/ip-address.js';
import { IPPROTO, type Packet } from '#contracts/policy/policy-model.js';
import {
  ETHERNET,
  type FrameOptions,
  icmpContent,
  MAX_FRAME,
  MORE_FRAGMENTS,
  quoteOf,
  TCP,
  withChecksum,
  writeFrame,
} from '#test/dataplane/frame.js';

/** The MAC address of the node's interfaces, which `writeFrame` uses as the destination. */
export const NODE_MAC = '02:00:00:00:00:01';
const NODE_MAC_BYTES = [2, 0, 0, 0, 0, 1];

export type SentPacket = { readonly packet: Packet<number>; readonly options?: FrameOptions };

/** Returns an Ethernet frame to the node, with the checksums that conntrack verifies. */
export function frameOf({ packet, options }: SentPacket): Uint8Array {
  const buffer = new Uint8Array(MAX_FRAME);
  const frame = withChecksum(buffer.subarray(0, writeFrame(buffer, packet, options)));
  const isFragment = ((options?.fragment ?? 0) & 0x3fff) !== 0;
  // A UDP checksum of 0 is valid: there is none.
  if (packet.protocol !== IPPROTO.udp && !isFragment) checksum(frame, packet.protocol);
  return frame;
}

/** Returns a UDP datagram of 16 bytes in two fragments, whose IPv4 headers have the identification `id`. */
export function parts({ packet }: SentPacket, id: number): SentPacket[] {
  const { sourcePort, destinationPort } = packet;
  const header = [sourcePort >> 8, sourcePort & 255, destinationPort >> 8, destinationPort & 255, 0, 24, 0, 0];
  return [
    { packet, options: { id, fragment: MORE_FRAGMENTS, content: Uint8Array.from([...header, ...new Uint8Array(8)]) } },
    { packet, options: { id, fragment: 2, content: new Uint8Array(8) } },
  ];
}

/** Returns an ICMP error about a packet, as a host or router with the address `source` sends it. */
export function errorAbout({ packet, options }: SentPacket, source: string, type: number, code: number): SentPacket {
  return {
    packet: {
      ...{ source: parseIpv4Address(source) ?? 0, destination: packet.source, protocol: IPPROTO.icmp },
      ...{ sourcePort: 0, destinationPort: 0, icmpType: type, icmpCode: code },
    },
    options: { content: icmpContent(type, code, withQuotedChecksum(quoteOf(packet, options))) },
  };
}

function withQuotedChecksum(content: Uint8Array): Uint8Array {
  // The quote begins behind 8 bytes of ICMP header, and `withChecksum` expects an Ethernet header.
  const frame = new Uint8Array(ETHERNET + content.length - 8);
  frame.set(content.subarray(8), ETHERNET);
  content.set(withChecksum(frame).subarray(ETHERNET), 8);
  return content;
}

/** Writes the checksum of the TCP or ICMP header behind an IPv4 header of 20 bytes. */
function checksum(frame: Uint8Array, protocol: number): void {
  const l4 = ETHERNET + 20;
  const view = new DataView(frame.buffer, frame.byteOffset, frame.length);
  const at = l4 + (protocol === IPPROTO.tcp ? 16 : 2);
  view.setUint16(at, 0);
  let sum = protocol === IPPROTO.tcp ? protocol + frame.length - l4 : 0;
  const begin = protocol === IPPROTO.tcp ? ETHERNET + 12 : l4;
  for (let offset = begin; offset < frame.length; offset += 2) {
    sum += offset + 1 < frame.length ? view.getUint16(offset) : view.getUint8(offset) << 8;
  }
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  view.setUint16(at, ~sum & 0xffff);
}

const NAMES: Readonly<Record<number, string>> = { [IPPROTO.tcp]: 'tcp', [IPPROTO.udp]: 'udp' };

/**
 * Describes a frame that the node has sent: `udp 10.77.1.2:5000 > 10.77.2.2:9`, `echo 7 A > B` or
 * `icmp 3/3 A > B about udp C:5000 > D:9`. TCP flags, `fragment` or `later fragment` are at the end. Returns
 * undefined for other frames.
 */
export function textOf(frame: Uint8Array): string | undefined {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.length);
  const isToNode = NODE_MAC_BYTES.every((byte, index) => frame[index] === byte);
  return isToNode || frame.length < ETHERNET + 20 || view.getUint16(12) !== 0x0800 ? undefined : textAt(view, ETHERNET);
}

function textAt(view: DataView, ip: number): string {
  const protocol = view.getUint8(ip + 9);
  const [source, destination] = [view.getUint32(ip + 12), view.getUint32(ip + 16)].map(formatAddress);
  const fragment = view.getUint16(ip + 6) & 0x3fff;
  if ((fragment & 0x1fff) !== 0) return `${source} > ${destination} later fragment`;
  const suffix = fragment === 0 ? '' : ' fragment';
  const l4 = ip + (view.getUint8(ip) & 15) * 4;
  if (protocol !== IPPROTO.icmp) {
    const flags = protocol === IPPROTO.tcp && l4 + 13 < view.byteLength ? ` ${flagsOf(view.getUint8(l4 + 13))}` : '';
    const [from, to] = [view.getUint16(l4), view.getUint16(l4 + 2)];
    return `${NAMES[protocol] ?? protocol} ${source}:${from} > ${destination}:${to}${flags}${suffix}`;
  }
  const [type, code] = [view.getUint8(l4), view.getUint8(l4 + 1)];
  if (type === 8 || type === 0) {
    return `${type === 8 ? 'echo' : 'reply'} ${view.getUint16(l4 + 4)} ${source} > ${destination}${suffix}`;
  }
  return `icmp ${type}/${code} ${source} > ${destination} about ${textAt(view, l4 + 8)}`;
}

function flagsOf(bits: number): string {
  return Object.entries(TCP)
    .flatMap(([name, bit]) => ((bits & bit) !== 0 ? name : []))
    .join('+');
}
