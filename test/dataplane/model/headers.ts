import type { DROP_REASON } from '#contracts/datapath/datapath-numbers.js';
import { type Address, IPPROTO, PORT_PROTOCOLS } from '#contracts/policy/policy-model.js';

export type DropReason = Exclude<keyof typeof DROP_REASON, 'none'>;

/**
 * The parsed headers of an IP packet, by default of IPv4. Ports are 0 for a protocol without ports. `unit`
 * is the fragment offset in units of 8 bytes.
 */
export type Headers<A extends Address = number> = {
  readonly source: A;
  readonly destination: A;
  /** Of a later fragment of IPv6, only the first fragment tells the protocol. */
  protocol: number;
  sourcePort: number;
  destinationPort: number;
  icmpType: number;
  icmpCode: number;
  icmpId: number;
  tcpFlags: number;
  sequence: number;
  acknowledgment: number;
  /** Number of payload bytes of a TCP packet. */
  data: number;
  readonly id: number;
  readonly part: 'whole' | 'first' | 'later';
  readonly more: boolean;
  readonly unit: number;
  /**
   * Offset of the payload of the IP header in the frame, in bytes. `contentBytes` is the length of this
   * payload.
   */
  readonly content: number;
  readonly contentBytes: number;
  /** Number of bytes of the datagram that a fragment has. */
  readonly fragmentBytes: number;
};

/** The numbers of the ICMP messages of an IP family. */
export type IcmpNumbers = {
  /** The protocol of ICMP messages in the IP header. */
  readonly protocol: number;
  /** The type of the reply to a query of each type, and the type of the query of each reply. */
  readonly replies: Readonly<Record<number, number>>;
  readonly queries: Readonly<Record<number, number>>;
  readonly errors: readonly number[];
  readonly redirect: number;
};

/** The fields that `readTransport` reads, before it reads them. */
export const NO_TRANSPORT = {
  sourcePort: 0,
  destinationPort: 0,
  icmpType: 0,
  icmpCode: 0,
  icmpId: 0,
  tcpFlags: 0,
  sequence: 0,
  acknowledgment: 0,
  data: 0,
};

const ETHERNET = 14;
const LONGEST = 65_535;
const LEAST_HEADER: Readonly<Record<number, number>> = {
  [IPPROTO.tcp]: 20,
  [IPPROTO.udp]: 8,
  [IPPROTO.udplite]: 8,
  [IPPROTO.dccp]: 12,
  [IPPROTO.sctp]: 12,
};
const LEAST_ICMP = 8;
const [FIN, SYN, RST, ACK] = [1, 2, 4, 16];

/**
 * Parses a frame of `length` bytes with the EtherType of IPv4. Returns the headers or a drop reason.
 * `merged`: the frame has merged UDP segments, and its UDP length is the length of one segment.
 */
export function readHeaders(frame: DataView, length: number, merged: boolean): Headers | DropReason {
  if (length < ETHERNET + 20) return 'malformed';
  const first = frame.getUint8(ETHERNET);
  const headerBytes = (first & 15) * 4;
  const total = frame.getUint16(ETHERNET + 2);
  if (first >> 4 !== 4 || headerBytes < 20 || total < headerBytes || total + ETHERNET > length) return 'malformed';
  const field = frame.getUint16(ETHERNET + 6);
  const more = (field & 0x2000) !== 0;
  const unit = field & 0x1fff;
  const contentBytes = total - headerBytes;
  if (more || unit > 0) {
    if (contentBytes === 0 || unit * 8 + total > LONGEST) return 'malformed';
    if (more && contentBytes % 8 !== 0) return 'malformed';
  }
  const headers: Headers = {
    source: frame.getUint32(ETHERNET + 12),
    destination: frame.getUint32(ETHERNET + 16),
    protocol: frame.getUint8(ETHERNET + 9),
    ...NO_TRANSPORT,
    id: frame.getUint16(ETHERNET + 4),
    part: unit > 0 ? 'later' : more ? 'first' : 'whole',
    more,
    unit,
    content: ETHERNET + headerBytes,
    contentBytes,
    fragmentBytes: contentBytes,
  };
  const wrong = headers.part === 'later' ? undefined : readTransport(frame, headers, merged);
  return wrong ?? wrongOption(frame, ETHERNET + 20, headerBytes - 20) ?? headers;
}

/**
 * Reads the header after the IP header into `headers`. `icmp`: the number of the protocol ICMP in the IP
 * header. Returns the drop reason of a wrong header.
 */
export function readTransport(
  frame: DataView,
  headers: Headers<Address>,
  merged: boolean,
  icmp: number = IPPROTO.icmp,
): DropReason | undefined {
  const { protocol, content: at, contentBytes } = headers;
  const least = protocol === icmp ? LEAST_ICMP : LEAST_HEADER[protocol];
  if (least === undefined) return undefined;
  const tooShort = headers.part === 'first' ? 'fragment_tiny' : 'malformed';
  if (contentBytes < least) return tooShort;
  if (protocol === icmp) {
    headers.icmpType = frame.getUint8(at);
    headers.icmpCode = frame.getUint8(at + 1);
    headers.icmpId = frame.getUint16(at + 4);
  } else if (PORT_PROTOCOLS.includes(protocol)) {
    headers.sourcePort = frame.getUint16(at);
    headers.destinationPort = frame.getUint16(at + 2);
  }
  if (protocol === IPPROTO.tcp) {
    const bytes = (frame.getUint8(at + 12) >> 4) * 4;
    if (bytes < 20) return 'malformed';
    if (contentBytes < bytes) return tooShort;
    headers.tcpFlags = frame.getUint8(at + 13);
    headers.sequence = frame.getUint32(at + 4);
    headers.acknowledgment = frame.getUint32(at + 8);
    headers.data = contentBytes - bytes;
    return isSent(headers.tcpFlags) ? undefined : 'tcp_flags';
  }
  if (protocol === IPPROTO.udp && headers.part === 'whole' && !merged) {
    const bytes = frame.getUint16(at + 4);
    if (bytes < 8 || bytes > contentBytes) return 'malformed';
  }
  return undefined;
}

/**
 * Returns whether RFC 9293 allows these TCP flags: a SYN without FIN and RST, or a RST without FIN. Without
 * SYN and RST, the flags must contain ACK.
 */
function isSent(flags: number): boolean {
  const has = (flag: number): boolean => (flags & flag) !== 0;
  if (has(SYN)) return !has(FIN) && !has(RST);
  if (has(RST)) return !has(FIN);
  return has(ACK);
}

/**
 * Returns the drop reason for a source route (K1), and for an option that extends beyond the IPv4 header (RFC
 * 791).
 */
function wrongOption(frame: DataView, at: number, bytes: number): DropReason | undefined {
  for (let offset = 0; offset < bytes; ) {
    const kind = frame.getUint8(at + offset);
    if (kind === 0) return undefined;
    if (kind === 131 || kind === 137) return 'source_route';
    if (kind === 1) {
      offset += 1;
      continue;
    }
    const length = offset + 1 < bytes ? frame.getUint8(at + offset + 1) : 0;
    if (length < 2 || offset + length > bytes) return 'malformed';
    offset += length;
  }
  return undefined;
}

/** Returns the packet that an ICMP error of IPv4 quotes; undefined if the quote is too short or invalid. */
export function readQuoted(frame: DataView, error: Headers): Headers | undefined {
  const at = error.content + LEAST_ICMP;
  const quotedBytes = error.contentBytes - LEAST_ICMP;
  if (error.part !== 'whole' || quotedBytes < 20 + QUOTED_BYTES) return undefined;
  const headerBytes = (frame.getUint8(at) & 15) * 4;
  if (frame.getUint8(at) >> 4 !== 4 || headerBytes < 20 || quotedBytes < headerBytes + QUOTED_BYTES) return undefined;
  if ((frame.getUint16(at + 6) & 0x1fff) !== 0) return undefined;
  const [source, destination, protocol] = [frame.getUint32(at + 12), frame.getUint32(at + 16), frame.getUint8(at + 9)];
  return withQuotedFields({ ...error, source, destination, protocol }, frame, at + headerBytes, IPPROTO.icmp);
}

/** Number of bytes that an error must quote after the IP header. */
export const QUOTED_BYTES = 8;

/**
 * Returns `quoted` with the ports or ICMP fields of the header at offset `at`. Other protocols have zeros.
 */
export function withQuotedFields<A extends Address>(
  quoted: Headers<A>,
  frame: DataView,
  at: number,
  icmp: number,
): Headers<A> {
  const isIcmp = quoted.protocol === icmp;
  const hasPorts = PORT_PROTOCOLS.includes(quoted.protocol);
  return {
    ...quoted,
    sourcePort: hasPorts ? frame.getUint16(at) : 0,
    destinationPort: hasPorts ? frame.getUint16(at + 2) : 0,
    icmpType: isIcmp ? frame.getUint8(at) : 0,
    icmpCode: isIcmp ? frame.getUint8(at + 1) : 0,
    icmpId: isIcmp ? frame.getUint16(at + 4) : 0,
    tcpFlags: 0,
  };
}
