import { IPPROTO } from '#contracts/policy/policy-model.js';
import {
  type DropReason,
  type Headers,
  NO_TRANSPORT,
  QUOTED_BYTES,
  readTransport,
  withQuotedFields,
} from './headers.js';

const ETHERNET = 14;
const HEADER = 40;
const MAX_EXTENSIONS = 4;
/** The greatest length of a reassembled packet, and the fragment header that is not part of it. */
const LONGEST = HEADER + 65_535 + 8;
const ICMP_HEADER = 8;
const [HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS] = [0, 43, 44, 60];
const WALKED = [HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS];

type Fragment = { readonly unit: number; readonly more: boolean; readonly id: number };
/**
 * `protocol` is the header after the extension headers, and `bytes` the length of the headers before it.
 * `unfragmented` is the length of the headers up to the fragment header, which every fragment has.
 */
type Chain = {
  readonly protocol: number;
  readonly bytes: number;
  readonly fragment: Fragment;
  readonly unfragmented: number;
};
const WHOLE: Fragment = { unit: 0, more: false, id: 0 };

/**
 * Parses a frame of `length` bytes with the EtherType of IPv6. Returns the headers or a drop reason. The
 * content begins after the extension headers. `merged`: as in `readHeaders`.
 */
export function readIpv6Headers(frame: DataView, length: number, merged: boolean): Headers<bigint> | DropReason {
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
  const headers: Headers<bigint> = {
    source: addressAt(frame, ETHERNET + 8),
    destination: addressAt(frame, ETHERNET + 24),
    protocol: chain.protocol,
    ...NO_TRANSPORT,
    id,
    part: unit > 0 ? 'later' : more ? 'first' : 'whole',
    more,
    unit,
    content: ETHERNET + chain.bytes,
    contentBytes,
    fragmentBytes: total - chain.unfragmented,
  };
  const wrong = headers.part === 'later' ? undefined : readTransport(frame, headers, merged, IPPROTO.icmpv6);
  return wrong ?? headers;
}

function addressAt(frame: DataView, at: number): bigint {
  return (frame.getBigUint64(at) << 64n) | frame.getBigUint64(at + 8);
}

/** Returns the packet that an ICMP error of IPv6 quotes; undefined if the quote is too short or invalid. */
export function readIpv6Quoted(frame: DataView, error: Headers<bigint>): Headers<bigint> | undefined {
  const at = error.content + ICMP_HEADER;
  const quotedBytes = error.contentBytes - ICMP_HEADER;
  if (error.part !== 'whole' || quotedBytes < HEADER + QUOTED_BYTES || frame.getUint8(at) >> 4 !== 6) return undefined;
  const chain = readChain(new DataView(frame.buffer, frame.byteOffset + at, quotedBytes));
  if (typeof chain === 'string' || chain.fragment.unit > 0 || quotedBytes < chain.bytes + QUOTED_BYTES)
    return undefined;
  const quoted = {
    ...error,
    source: addressAt(frame, at + 8),
    destination: addressAt(frame, at + 24),
    protocol: chain.protocol,
  };
  return withQuotedFields(quoted, frame, at + chain.bytes, IPPROTO.icmpv6);
}

/**
 * Returns whether the frame is IPv6 neighbour discovery, or multicast listener discovery behind a hop-by-hop
 * header of eight bytes.
 */
export function isDiscovery(frame: DataView, length: number): boolean {
  if (frame.getUint16(12) !== 0x86dd || length < 55) return false;
  const [nextHeader, hopLimit, first] = [frame.getUint8(20), frame.getUint8(21), frame.getUint8(54)];
  if (nextHeader === IPPROTO.icmpv6 && hopLimit === 255) return first >= 133 && first <= 137;
  if (nextHeader !== HOP_BY_HOP || hopLimit !== 1 || length < 63) return false;
  if (first !== IPPROTO.icmpv6 || frame.getUint8(55) !== 0) return false;
  return [130, 131, 132, 143].includes(frame.getUint8(62));
}

/** Walks over the extension headers of an IPv6 packet. */
function readChain(packet: DataView): Chain | DropReason {
  let fragment = WHOLE;
  let unfragmented = HEADER;
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
      unfragmented = at;
      if (unit > 0) return { protocol: next, bytes: at, fragment, unfragmented };
    } else {
      at += 8 + packet.getUint8(at + 1) * 8;
      if (at > packet.byteLength) return tooShort;
    }
    walked.push(protocol);
    protocol = next;
  }
  return { protocol, bytes: at, fragment, unfragmented };
}
