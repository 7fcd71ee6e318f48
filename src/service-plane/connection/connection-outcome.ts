import type { Socket } from 'node:net';
import type { Decided } from '#policy/evaluate/connection/connection-steps.js';
import type { RefusedReason } from '#service-plane/refused-reason.js';
import type { HandshakeFault } from './handshake.js';

export const NO_BYTES = Buffer.alloc(0);

/**
 * A verdict, the rule or default that decided (`step`), and the reason. The reason comes from the policy
 * evaluation, or is a fault of the connection.
 */
export type Outcome = Pick<Decided, 'step' | 'verdict'> & {
  readonly reason: Decided['reason'] | RefusedReason | HandshakeFault;
};

/**
 * Client bytes that the connection has not forwarded to the server yet. `hello`: the TLS records that contain
 * the ClientHello; `behind`: the bytes after these records; `body`: the body of the ClientHello message. If
 * no ClientHello could be read, `body` is empty, and `hello` contains all bytes.
 */
export type ClientBytes = { readonly hello: Buffer; readonly body: Uint8Array; readonly behind: Buffer };

/**
 * A server that has received the ClientHello: its socket, and the server bytes that the connection has not
 * forwarded to the client yet (`held`).
 */
export type QueriedServer = { readonly server: Socket; readonly held: Buffer };

export const NO_CLIENT_BYTES: ClientBytes = { hello: NO_BYTES, body: NO_BYTES, behind: NO_BYTES };
