import { type ClientHttp2Session, connect, performServerHandshake, type ServerHttp2Session } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import { endAfterRead } from './http2-late-destroy.js';
import { STREAM_WINDOW } from './http2-window.js';

const STREAMS = 100;
const HEADER_BYTES = 65_536;
/** The maximum number of fields in a header block: 256 as in an HTTP/1.1 head, plus 4 pseudo-headers. */
const HEADER_PAIRS = 260;
const INVALID_FRAMES = 100;

const SETTINGS = { maxHeaderListSize: HEADER_BYTES, initialWindowSize: STREAM_WINDOW };
const OPTIONS = { maxHeaderListPairs: HEADER_PAIRS, maxSessionInvalidFrames: INVALID_FRAMES };

/** Starts HTTP/2 with a client after the TLS handshake. Does not offer extended CONNECT (RFC 8441). */
export function acceptHttp2(socket: TLSSocket): ServerHttp2Session {
  // Node's HTTP/2 waits until `secureConnecting` is false. Node clears this flag only on sockets that one of
  // its own servers accepted.
  Object.assign(socket, { secureConnecting: false });
  const session = performServerHandshake(socket, {
    ...OPTIONS,
    settings: { ...SETTINGS, maxConcurrentStreams: STREAMS },
  });
  endAfterRead(session);
  return session;
}

/** Starts HTTP/2 with a server after the TLS handshake, and disables server push. */
export function connectHttp2(socket: TLSSocket): ClientHttp2Session {
  const session = connect('https://server', {
    ...OPTIONS,
    createConnection: () => socket,
    settings: { ...SETTINGS, enablePush: false },
  });
  endAfterRead(session);
  return session;
}
