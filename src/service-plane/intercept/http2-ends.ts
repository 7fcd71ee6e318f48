import { type ClientHttp2Session, connect, performServerHandshake, type ServerHttp2Session } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import { endAfterRead } from './http2-end.js';

const STREAMS = 100;
const HEADER_BYTES = 65_536;
/** As many as in a head of HTTP/1, and the pseudo-headers. */
const HEADER_PAIRS = 260;
const INVALID_FRAMES = 100;
/** What one stream may hold while its other side does not read. */
const STREAM_WINDOW = 262_144;
/** Of a whole connection; it bounds what is on its way, not what is held. */
const CONNECTION_WINDOW = 4 * 1024 * 1024;

const SETTINGS = { maxHeaderListSize: HEADER_BYTES, initialWindowSize: STREAM_WINDOW };
const OPTIONS = { maxHeaderListPairs: HEADER_PAIRS, maxSessionInvalidFrames: INVALID_FRAMES };

/** HTTP/2 with a client, whose TLS handshake is done. Extended CONNECT (RFC 8441) is not offered. */
export function acceptHttp2(socket: TLSSocket): ServerHttp2Session {
  // Node clears this only in sockets of its own servers, and waits for it.
  Object.assign(socket, { secureConnecting: false });
  const session = performServerHandshake(socket, {
    ...OPTIONS,
    settings: { ...SETTINGS, maxConcurrentStreams: STREAMS },
  });
  session.setLocalWindowSize(CONNECTION_WINDOW);
  endAfterRead(session);
  return session;
}

/** HTTP/2 with a server, whose TLS handshake is done; it may not push. */
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
