import { libc } from '#libc/libc.js';
import { AF_INET } from '#libc/socket-numbers.js';

const SOL_TCP = 6;
const TCP_INFO = 11;
const TCP_REPAIR = 19;
const SIOCINQ = 0x541b;
const SIOCOUTQ = 0x5411;
const SOCKADDR_BYTES = 16;
// The size of struct tcp_info, and the offsets and flags of its fields. Sizes and offsets are in bytes.
const INFO_BYTES = 88;
const AT = { state: 0, options: 5, scales: 6, sendMss: 16, roundTripUs: 68, announcedMss: 84 } as const;
const OPTIONS = { timeStamps: 1, sack: 2, ecn: 8, microseconds: 64 } as const;
const TIME_STAMP_BYTES = 12;
const TCP_CLOSE = 7;

type Address = { readonly address: number; readonly port: number };

export type TcpEndpoint = {
  readonly local: Address;
  readonly peer: Address;
  readonly hasTimeStamps: boolean;
  readonly hasSack: boolean;
  /** The window scale that the peer announced, and the window scale that this socket announced. */
  readonly peerScale: number;
  readonly ownScale: number;
  /**
   * The greatest size of a segment that this socket sends to the peer (`sends`) and receives from the peer
   * (`takes`), in bytes.
   */
  readonly sends: number;
  readonly takes: number;
  readonly roundTripMs: number;
};

/**
 * Returns the addresses and TCP options of the socket `fd`. Returns null if the socket has no peer any
 * more, is a socket of IPv6, or uses a TCP option that the datapath cannot translate for another
 * connection.
 */
export function readEndpoint(fd: number): TcpEndpoint | null {
  const view = infoOf(fd);
  const local = addressBy('getsockname', fd);
  const peer = addressBy('getpeername', fd);
  if (view === null || local === null || peer === null) return null;
  const options = view.getUint8(AT.options);
  const scales = view.getUint8(AT.scales);
  // ECN feedback is valid within one connection only. The datapath does not translate time stamps in
  // microseconds, because no system uses them by default.
  if ((options & (OPTIONS.ecn | OPTIONS.microseconds)) !== 0) return null;
  const hasTimeStamps = (options & OPTIONS.timeStamps) !== 0;
  return {
    local,
    peer,
    hasTimeStamps,
    hasSack: (options & OPTIONS.sack) !== 0,
    peerScale: scales & 0xf,
    ownScale: scales >> 4,
    sends: view.getUint32(AT.sendMss, true),
    takes: view.getUint32(AT.announcedMss, true) - (hasTimeStamps ? TIME_STAMP_BYTES : 0),
    roundTripMs: view.getUint32(AT.roundTripUs, true) / 1_000,
  };
}

/**
 * Returns true if the connection of a socket has ended by a reset or a time-out. Node reports this only for a
 * socket that it reads or writes.
 */
export function isBroken(fd: number): boolean {
  return infoOf(fd)?.getUint8(AT.state) === TCP_CLOSE;
}

function infoOf(fd: number): DataView | null {
  const info = new Uint8Array(INFO_BYTES);
  const result = libc.getsockopt(fd, SOL_TCP, TCP_INFO, info, Uint32Array.of(INFO_BYTES));
  return result < 0 ? null : new DataView(info.buffer);
}

/** Returns true if the peer has acknowledged all sent data, and the process has read all received data. */
export function isIdle(fd: number): boolean {
  const count = new Uint8Array(4);
  for (const asked of [SIOCOUTQ, SIOCINQ]) {
    if (libc.ioctl(fd, asked, count) < 0 || count.some((byte) => byte !== 0)) return false;
  }
  return true;
}

/**
 * Closes a socket without a FIN or RST to its peer (TCP_REPAIR). Returns false if the kernel does not permit
 * TCP_REPAIR; the socket then stays open.
 */
export function closeSilently(fd: number): boolean {
  if (libc.setsockopt(fd, SOL_TCP, TCP_REPAIR, Uint32Array.of(1), 4) < 0) return false;
  libc.close(fd);
  return true;
}

function addressBy(ask: 'getsockname' | 'getpeername', fd: number): Address | null {
  const bytes = new Uint8Array(SOCKADDR_BYTES);
  if (libc[ask](fd, bytes, Uint32Array.of(SOCKADDR_BYTES)) < 0) return null;
  const view = new DataView(bytes.buffer);
  if (view.getUint16(0, true) !== AF_INET) return null;
  return { address: view.getUint32(4), port: view.getUint16(2) };
}
