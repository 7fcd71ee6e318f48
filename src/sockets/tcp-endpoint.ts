import { libc } from '#libc/libc.js';

const SOL_TCP = 6;
const TCP_INFO = 11;
const TCP_REPAIR = 19;
const SIOCINQ = 0x541b;
const SIOCOUTQ = 0x5411;
const SOCKADDR_BYTES = 16;
// Offsets and flags of struct tcp_info.
const INFO_BYTES = 88;
const AT = { options: 5, scales: 6, sendMss: 16, roundTripUs: 68, announcedMss: 84 } as const;
const OPTIONS = { timeStamps: 1, sack: 2, ecn: 8, microseconds: 64 } as const;
const TIME_STAMP_BYTES = 12;

type Address = { readonly address: number; readonly port: number };

/** The options that a TCP socket negotiated with its peer. */
export type TcpEndpoint = {
  readonly local: Address;
  readonly peer: Address;
  readonly hasTimeStamps: boolean;
  readonly hasSack: boolean;
  /** The window scale of the peer, and the socket's own. */
  readonly peerScale: number;
  readonly ownScale: number;
  /** The greatest segments sent to the peer and received from it, in bytes. */
  readonly sends: number;
  readonly takes: number;
  readonly roundTripMs: number;
};

/**
 * Returns null if the socket has no peer any more, or negotiated an option that cannot be carried over to
 * another connection.
 */
export function readEndpoint(fd: number): TcpEndpoint | null {
  const info = new Uint8Array(INFO_BYTES);
  const local = addressBy('getsockname', fd);
  const peer = addressBy('getpeername', fd);
  if (libc.getsockopt(fd, SOL_TCP, TCP_INFO, info, Uint32Array.of(INFO_BYTES)) < 0 || local === null || peer === null)
    return null;
  const view = new DataView(info.buffer);
  const options = view.getUint8(AT.options);
  const scales = view.getUint8(AT.scales);
  // ECN feedback is valid on one connection only. Time stamps in microseconds are no system's default.
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

/** Whether the peer has acknowledged all sent data, and all received data was read. */
export function isIdle(fd: number): boolean {
  const count = new Uint8Array(4);
  for (const asked of [SIOCOUTQ, SIOCINQ]) {
    if (libc.ioctl(fd, asked, count) < 0 || count.some((byte) => byte !== 0)) return false;
  }
  return true;
}

/**
 * Closes a socket without notice to its peer (TCP_REPAIR). Returns false if the kernel does not permit it;
 * the socket is then still open.
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
  return { address: view.getUint32(4), port: view.getUint16(2) };
}
