import {
  type ClientHttp2Session,
  connect,
  constants,
  type IncomingHttpHeaders,
  type Http2Session as NodeSession,
  performServerHandshake,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { TLSSocket } from 'node:tls';
import { IdleTimeout } from '#service-plane/intercept/idle-timeout.js';
import type { SessionPorts } from '#service-plane/intercept/session-ports.js';
import { destroyWithReset } from '#sockets/socket-options.js';
import { Http2Exchange, type Http2ExchangePorts } from './http2-exchange.js';
import { Http2Window, STREAM_WINDOW } from './http2-window.js';

const STREAMS = 100;
const HEADER_BYTES = 65_536;
/** The maximum number of fields in a header block: 256 as in an HTTP/1.1 head, plus 4 pseudo-headers. */
const HEADER_PAIRS = 260;
const INVALID_FRAMES = 100;

const SETTINGS = { maxHeaderListSize: HEADER_BYTES, initialWindowSize: STREAM_WINDOW };
const OPTIONS = { maxHeaderListPairs: HEADER_PAIRS, maxSessionInvalidFrames: INVALID_FRAMES };

/** Starts HTTP/2 with a client after the TLS handshake. Does not offer extended CONNECT (RFC 8441). */
function acceptHttp2(socket: TLSSocket): ServerHttp2Session {
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
function connectHttp2(socket: TLSSocket): ClientHttp2Session {
  const session = connect('https://server', {
    ...OPTIONS,
    createConnection: () => socket,
    settings: { ...SETTINGS, enablePush: false },
  });
  endAfterRead(session);
  return session;
}

/**
 * Makes `session.destroy` wait until the current read is complete, and run only once. Node calls `destroy`
 * while nghttp2 is still reading a chunk. Without this delay, Node 22.23.3 aborts the process (nodejs/node
 * 64850), and queued frames are lost.
 */
function endAfterRead(session: NodeSession): void {
  const destroy = session.destroy.bind(session);
  let isEnding = false;
  session.destroy = (...given: Parameters<NodeSession['destroy']>) => {
    if (isEnding) return;
    isEnding = true;
    setImmediate(() => destroy(...given));
  };
}

const { NGHTTP2_ENHANCE_YOUR_CALM, NGHTTP2_REFUSED_STREAM } = constants;

/**
 * The number of requests cancelled within `RESETS_MS` at which the service plane closes the client's
 * connection. A client that cancels so many requests is probably an attacker (rapid reset, CVE-2023-44487).
 */
const RESETS = 1_000;
const RESETS_MS = 30_000;
/** The time that a client has to close its connection after a GOAWAY frame, in milliseconds. */
const FAREWELL_MS = 5_000;
/**
 * After the server has closed its connection, the session still reads received frames for this time, in
 * milliseconds. While Node writes to a connection, it reports the end of the connection before such frames.
 */
const UNREAD_MS = 100;

/**
 * An HTTP/2 session between a client and a server. Each request has a stream to the client and a stream to
 * the server. The session evaluates each request before it forwards the request.
 */
export class Http2Session {
  readonly #client: ServerHttp2Session;
  readonly #server: ClientHttp2Session;
  readonly #exchangePorts: Http2ExchangePorts;
  readonly #exchanges = new Set<Http2Exchange>();
  readonly #idleTimeout: IdleTimeout;
  #resets = 0;
  #resetsSinceMs = 0;
  #farewell: NodeJS.Timeout | null = null;
  #isClosed = false;
  #serverEnded = false;

  constructor(private readonly ports: SessionPorts) {
    this.#idleTimeout = new IdleTimeout(ports.clock);
    // Add this listener before Node's HTTP/2 session adds its own, which closes all streams when the
    // connection ends.
    ports.link.socket.once('end', () => this.#onServerFin());
    for (const event of ['error', 'close'] as const) ports.link.socket.once(event, () => this.#onServerEnd());
    ports.client.once('end', () => this.#onClientEnd());
    this.#server = connectHttp2(ports.link.socket);
    this.#client = acceptHttp2(ports.client);
    this.#exchangePorts = {
      ...ports,
      windows: { request: new Http2Window(this.#client), response: new Http2Window(this.#server) },
      closed: (exchange) => this.#over(exchange),
    };
    this.#listenToServer();
    this.#listenToClient();
  }

  /**
   * Checks the idle timeouts of the session and its requests: resets idle requests, and sends GOAWAY if the
   * session was idle for too long. The interceptor calls this method at every tick.
   */
  checkTimeouts(): void {
    for (const exchange of this.#exchanges) exchange.checkTimeouts();
    if (this.#exchanges.size === 0 && this.#idleTimeout.over({}) !== null) this.#goAway();
  }

  /**
   * Closes the connection to the client and the connection to the server. Resets the connection to a server
   * that still has requests.
   */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    if (this.#farewell !== null) clearTimeout(this.#farewell);
    this.#client.destroy();
    this.#server.destroy();
    const { socket } = this.ports.link;
    if (this.#exchanges.size > 0) destroyWithReset(socket);
    else socket.destroy();
  }

  /**
   * HTTP/2 has no half-closed connection: if the client's connection ends without GOAWAY, its requests end
   * too.
   */
  #onClientEnd(): void {
    this.close();
    this.ports.over();
  }

  #onServerFin(): void {
    this.#goAway();
    if (this.#exchanges.size === 0) this.#onServerEnd();
    else setTimeout(() => setImmediate(() => this.#onServerEnd()), UNREAD_MS);
  }

  #onServerEnd(): void {
    if (this.#serverEnded || this.#isClosed) return;
    this.#serverEnded = true;
    for (const exchange of this.#exchanges) exchange.onServerEnd();
    this.#server.destroy();
    this.ports.link.socket.destroy();
    this.#goAway();
  }

  #listenToClient(): void {
    const client = this.#client;
    client.on(
      'stream',
      (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, _flags: number, raw: readonly string[]) => {
        if (this.#isClosed || this.#server.closed || this.ports.link.hasEnded) {
          stream.on('error', () => {});
          stream.close(NGHTTP2_REFUSED_STREAM);
          return;
        }
        const exchange = new Http2Exchange(stream, this.#server, this.#exchangePorts);
        this.#exchanges.add(exchange);
        this.#idleTimeout.moved();
        exchange.begin(headers, raw);
      },
    );
    // Node emits the error of a session after the client has closed its connection.
    client.on('error', () => this.ports.refuse('client_http2'));
    client.once('goaway', () => this.#goAway());
    client.once('close', () => {
      this.close();
      this.ports.over();
    });
  }

  #listenToServer(): void {
    const server = this.#server;
    server.on('error', () => {
      if (!this.#isClosed) this.ports.refuse('server_http2');
    });
    server.once('goaway', () => this.#goAway());
    server.once('close', () => this.#goAway());
  }

  /** Sends GOAWAY to the client, and accepts no new requests. Requests that have begun continue. */
  #goAway(): void {
    if (!this.#isClosed) this.#client.close();
    if (this.#exchanges.size === 0) this.#limitFarewell();
  }

  #limitFarewell(): void {
    if (!this.#isClosed) this.#farewell ??= setTimeout(() => this.ports.client.destroy(), FAREWELL_MS);
  }

  #over(exchange: Http2Exchange): void {
    this.#exchanges.delete(exchange);
    this.#idleTimeout.moved();
    if (exchange.isClientReset) this.#countReset();
    if (this.#exchanges.size === 0 && this.#client.closed) this.#limitFarewell();
  }

  /**
   * Counts a request that the client cancelled (`isClientReset`). At `RESETS` such requests within
   * `RESETS_MS`, closes the client's connection.
   */
  #countReset(): void {
    const now = performance.now();
    if (now - this.#resetsSinceMs > RESETS_MS) {
      this.#resetsSinceMs = now;
      this.#resets = 0;
    }
    this.#resets++;
    if (this.#resets !== RESETS || this.#client.destroyed) return;
    this.ports.refuse('rapid_reset');
    this.#client.destroy(new Error('rapid reset'), NGHTTP2_ENHANCE_YOUR_CALM);
  }
}
