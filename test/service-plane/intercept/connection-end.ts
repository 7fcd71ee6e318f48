import type { TLSSocket } from 'node:tls';
import { destroyWithReset } from '#sockets/socket-options.js';

/** The time in which a side must learn of the end of the other side, in milliseconds. */
export const AT_ONCE = { timeout: 1_000, interval: 5 };

/**
 * Functions that end a TLS connection in the way of their name, without GOAWAY of HTTP/2. If a process is
 * killed, its connections end by `FIN`, or by `RST` if they have unread data.
 */
export const END = {
  close_notify: (socket: TLSSocket) => socket.end(),
  FIN: (socket: TLSSocket) => socket.destroy(),
  RST: destroyWithReset,
} as const;
export type End = keyof typeof END;
export const ENDS = Object.keys(END) as End[];
