import { type ClientHttp2Session, connect, performServerHandshake, type ServerHttp2Session } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import { endAfterRead } from './http2-late-destroy.js';

const STREAMS = 100;
const HEADER_BYTES = 65_536;
/** The same number as in an HTTP/1 head, plus the pseudo-headers. */
const HEADER_PAIRS = 260;
const INVALID_FRAMES = 100;
/** The limit of bytes buffered for one stream while its receiver does not read. */
const STREAM_WINDOW = 262_144;
/** The limit for a whole connection; it bounds bytes in transit, not buffered ones. */
const CONNECTION_WINDOW = 4 * 1024 * 1024;

const SETTINGS = { maxHeaderListSize: HEADER_BYTES, initialWindowSize: STREAM_WINDOW };
const OPTIONS = { maxHeaderListPairs: HEADER_PAIRS, maxSessionInvalidFrames: INVALID_FRAMES };

/** Starts HTTP/2 with a client after its TLS handshake. Extended CONNECT (RFC 8441) is not offered. */
export function acceptHttp2(socket: TLSSocket): ServerHttp2Session {
  // Node clears this flag only on sockets of its own servers, and waits until it is cleared.
  Object.assign(socket, { secureConnecting: false });
  const session = performServerHandshake(socket, {
    ...OPTIONS,
    settings: { ...SETTINGS, maxConcurrentStreams: STREAMS },
  });
  session.setLocalWindowSize(CONNECTION_WINDOW);
  endAfterRead(session);
  return session;
}

/** Starts HTTP/2 with a server after its TLS handshake; server push is disabled. */
export function connectHttp2(socket: TLSSocket): ClientHttp2Session {
  const session = connect('https://server', {
    ...OPTIONS,
    createConnection: () => socket,
    settings: { ...SETTINGS, enablePush: false },
  });
  session.setLocalWindowSize(CONNECTION_WINDOW);
  endAfterRead(session);
  return session;
}
