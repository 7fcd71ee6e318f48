import { type DropReason, type Headers, readTransport } from './headers.js';

const ETHERNET = 14;
const HEADER = 40;
const MAX_EXTENSIONS = 4;
/** The greatest length of a reassembled packet, and the fragment header that is not part of it. */
const LONGEST = HEADER + 65_535 + 8;
const ICMPV6 = 58;
const [HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS] = [0, 43, 44, 60];
const WALKED = [HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS];

type Fragment = { readonly unit: number; readonly more: boolean; readonly id: number };
type Chain = { readonly protocol: number; readonly bytes: number; readonly fragment: Fragment };
const WHOLE: Fragment = { unit: 0, more: false, id: 0 };

/**
 * Parses a frame of `length` bytes with the EtherType of IPv6. Returns the headers or a drop reason. The
 * content begins after the extension headers.
 */
export function readIpv6Headers(frame: DataView, length: number): Headers<bigint> | DropReason {
  if (length < ETHERNET + HEADER) return 'malformed';
  const payload = frame.getUint16(ETHERNET + 4);
  const total = HEADER + payload;
  if (frame.getUint8(ETHERNET) >> 4 !== 6 || payload === 0 || ETHERNET + total > length) return 'malformed';
  const chain = readChain(new DataView(frame.buffer, frame.byteOffset + ETHERNET, total));
  if (typeof chain === 'string') return chain;
  const { unit, more, id } = chain.fragment;
  const contentBytes = total - chain.bytes;
  if (more || unit > 0) {
    if (contentBytes === 0 || unit * 8 + total > LONGEST) return 'malformed';
    if (more && contentBytes % 8 !== 0) return 'malformed';
  }
  const addressAt = (at: number): bigint => (frame.getBigUint64(at) << 64n) | frame.getBigUint64(at + 8);
  const headers: Headers<bigint> = {
    source: addressAt(ETHERNET + 8),
    destination: addressAt(ETHERNET + 24),
    protocol: chain.protocol,
    sourcePort: 0,
    destinationPort: 0,
    icmpType: 0,
    icmpCode: 0,
    icmpId: 0,
    tcpFlags: 0,
    sequence: 0,
    acknowledgment: 0,
    data: 0,
    id,
    part: unit > 0 ? 'later' : more ? 'first' : 'whole',
    more,
    unit,
    content: ETHERNET + chain.bytes,
    contentBytes,
  };
  const wrong = headers.part === 'later' ? undefined : readTransport(frame, headers, false, ICMPV6);
  return wrong ?? headers;
}

/** Walks over the extension headers of an IPv6 packet. */
function readChain(packet: DataView): Chain | DropReason {
  let fragment = WHOLE;
  let at = HEADER;
  let protocol = packet.getUint8(6);
  const walked: number[] = [];
  while (WALKED.includes(protocol)) {
    if (protocol === ROUTING) return 'source_route';
    if (walked.length === MAX_EXTENSIONS) return 'malformed';
    if (protocol === HOP_BY_HOP && walked.length > 0) return 'malformed';
    const tooShort = fragment.more ? 'fragment_tiny' : 'malformed';
    if (at + 8 > packet.byteLength) return tooShort;
    const next = packet.getUint8(at);
    if (protocol === FRAGMENT) {
      if (walked.includes(FRAGMENT)) return 'malformed';
      const field = packet.getUint16(at + 2);
      const [unit, more] = [field >> 3, (field & 1) === 1];
      if (unit > 0 || more) fragment = { unit, more, id: packet.getUint32(at + 4) };
      at += 8;
      if (unit > 0) return { protocol: next, bytes: at, fragment };
    } else {
      at += 8 + packet.getUint8(at + 1) * 8;
      if (at > packet.byteLength) return tooShort;
    }
    walked.push(protocol);
    protocol = next;
  }
  return { protocol, bytes: at, fragment };
}
