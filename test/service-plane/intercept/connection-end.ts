import type { TLSSocket } from 'node:tls';
import { destroyWithReset } from '#sockets/socket-options.js';

/** The time in which a side must learn of the end of the other side, in milliseconds. */
export const AT_ONCE = { timeout: 1_000, interval: 5 };

/**
 * The ends of a TLS connection, without GOAWAY of HTTP/2. A process that is killed ends it by `FIN`, or by
 * `RST` if it has unread data.
 */
export const END = {
  close_notify: (socket: TLSSocket) => socket.end(),
  FIN: (socket: TLSSocket) => socket.destroy(),
  RST: destroyWithReset,
} as const;
export type End = keyof typeof END;
export const ENDS = Object.keys(END) as End[];
