import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  constants,
  type Http2Stream,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2';
import type { Headers } from '#contracts/service-plane/http-facts.js';
import type { Decided, Step } from '#policy/evaluate/connection/connection-steps.js';
import { hostFault } from '#service-plane/http/authority.js';
import type { HttpFault } from '#service-plane/http/fault.js';
import { type Http2Request, readHttp2Request } from '#service-plane/http/http2/http2-request.js';
import { type Http2Response, readHttp2Response } from '#service-plane/http/http2/http2-response.js';
import { type Http2Lines, writeHttp2Request, writeHttp2Response } from '#service-plane/http/http2/write-http2.js';
import { type Problem, problemBody } from '#service-plane/intercept/answer.js';
import {
  decideResponse,
  deniedProblem,
  faultProblem,
  mayTrail,
  NO_HTTP,
  SERVER_CLOSED,
  TIMED_OUT,
} from '#service-plane/intercept/exchange.js';
import { IdleTimeout } from '#service-plane/intercept/idle-timeout.js';
import type { SessionPorts } from '#service-plane/intercept/session-ports.js';
import { watchStreamEnd } from '#service-plane/intercept/stream-end.js';
import type { RefusedReason } from '#service-plane/refused-reason.js';
import { type Following, Http2Body, isOpen, withSecrets } from './http2-body.js';
import type { Http2Window } from './http2-window.js';

const {
  NGHTTP2_CANCEL,
  NGHTTP2_FLAG_END_STREAM,
  NGHTTP2_INTERNAL_ERROR,
  NGHTTP2_NO_ERROR,
  NGHTTP2_PROTOCOL_ERROR,
  NGHTTP2_REFUSED_STREAM,
} = constants;

export type Http2ExchangePorts = SessionPorts & {
  /**
   * The flow-control windows of two connections: the client's, on which request bodies arrive, and the
   * server's, on which response bodies arrive.
   */
  readonly windows: Readonly<Record<'request' | 'response', Http2Window>>;
  /** Called when the client's stream is closed. */
  closed(exchange: Http2Exchange): void;
};

/** A request or response whose body and trailers `Http2Body` forwards; see `Http2BodyPorts`. */
type Carried = {
  readonly side: 'request' | 'response';
  readonly head: Headers;
  readonly step: Step;
  readonly isWhole: () => boolean;
};

const NOTHING_FOLLOWS: Following = { endStream: true, waitForTrailers: false };
/**
 * The default priority of a stream. Passing these values saves a fifth of the time of a request, because Node
 * is slow when it must add the defaults. Node 20 needs `weight`; Node 22 sends no weight, and warns if
 * `weight` is given (DEP0194).
 */
const PRIORITY = {
  ...(process.versions.node.startsWith('20.') ? { weight: 16 } : {}),
  parent: 0,
  exclusive: false,
};
/**
 * A client's HTTP/2 request and its response. The client's stream and the server's stream have separate flow
 * control.
 */
export class Http2Exchange {
  #server: ClientHttp2Stream | null = null;
  /** The body of the response; null before the response, or if the response has no body. */
  #body: Http2Body | null = null;
  readonly #idleTimeout: IdleTimeout;
  /** True after the whole response was passed to the client's stream. */
  #isAnswered = false;
  /** True if `#resetClient` reset the client's stream, because of the policy or of the server. */
  #wasReset = false;

  constructor(
    private readonly client: ServerHttp2Stream,
    private readonly session: ClientHttp2Session,
    private readonly ports: Http2ExchangePorts,
  ) {
    this.#idleTimeout = new IdleTimeout(ports.clock);
  }

  /**
   * True if the client's stream was reset, but not by `#resetClient`: the client cancelled the request or
   * violated the protocol, or `#reset` closed the stream.
   */
  get isClientReset(): boolean {
    return this.client.rstCode !== NGHTTP2_NO_ERROR && !this.#wasReset;
  }

  begin(headers: IncomingHttpHeaders, raw: readonly string[]): void {
    const { client, ports } = this;
    client.on('error', () => {});
    client.on('close', () => this.#onClientClose());
    const request = readHttp2Request(raw);
    if ('fault' in request) {
      this.#refuse(request.fault);
      return;
    }
    const fault = hostFault(request, ports.connection);
    if (fault !== null) {
      this.#refuse(fault);
      return;
    }
    const decided = ports.decide(request);
    if (decided.verdict === 'deny') this.#deny(decided);
    else this.#send(request, decided.step, headers);
  }

  /**
   * Ends both streams if they were idle for too long: with a problem response if the server has not answered
   * a complete request, otherwise by a reset. The session calls this method at every tick.
   */
  checkTimeouts(): void {
    const { client } = this;
    if (!isOpen(client) || this.#idleTimeout.over({}) === null) return;
    const awaitsServer = client.endAfterHeaders || client.readableEnded;
    if (awaitsServer && !client.headersSent) this.#fail(TIMED_OUT, 'idle');
    else this.#reset(NGHTTP2_CANCEL, 'idle', false);
  }

  /**
   * Must be called when the server has ended its connection, before the streams of the connection are closed.
   * A complete response still reaches the client. Any other response is replaced by 502, or reset if it has
   * begun.
   */
  onServerEnd(): void {
    const server = this.#server;
    if (server === null || this.#isAnswered || !isOpen(this.client) || this.#body?.finish() === true) return;
    if (!this.client.headersSent) this.#fail(SERVER_CLOSED, 'server_closed');
    else this.#reset(NGHTTP2_INTERNAL_ERROR, 'response_cut_short', false);
  }

  #send(request: Http2Request, step: Step, headers: IncomingHttpHeaders): void {
    const { client } = this;
    const lines = withSecrets(writeHttp2Request(request), headers);
    if (client.endAfterHeaders) {
      // Do not read the client's stream. Node reports an error if the readable side of a stream closes
      // before the last write is complete.
      this.#ask(lines, request, step, NOTHING_FOLLOWS);
      return;
    }
    if (request.expectsContinue) this.#trySend('response', () => client.additionalHeaders({ ':status': '100' }));
    const isWhole = watchStreamEnd(client);
    this.#carry(client, { side: 'request', head: request.headers, step, isWhole }, (following) =>
      this.#ask(lines, request, step, following),
    );
  }

  #ask(lines: Http2Lines, request: Http2Request, step: Step, following: Following): ClientHttp2Stream | null {
    const { client, session } = this;
    if (!isOpen(client)) return null;
    if (session.closed || this.ports.link.hasEnded) {
      this.#resetClient(NGHTTP2_REFUSED_STREAM);
      return null;
    }
    const { endStream, waitForTrailers } = following;
    const options = { endStream, waitForTrailers, ...PRIORITY };
    const server = this.#trySend('request', () => session.request(lines, options));
    if (server === null) return null;
    this.#server = server;
    const isWhole = watchStreamEnd(server);
    server.on('error', () => {});
    server.on('close', () => this.#onServerClose(server));
    server.on('headers', (interim: IncomingHttpHeaders, _flags: number, raw: readonly string[]) => {
      this.#idleTimeout.moved();
      const response = this.#decide(raw, request, step);
      // Do not forward the status 100, because `#send` sends it to the client.
      if (response === null || response.status === 100) return;
      const lines = withSecrets(writeHttp2Response(response), interim);
      this.#trySend('response', () => client.additionalHeaders(lines));
    });
    server.on('response', (its: IncomingHttpHeaders, flags: number, raw: readonly string[]) => {
      this.#idleTimeout.moved();
      const response = this.#decide(raw, request, step);
      if (response === null) return;
      const answer = withSecrets(writeHttp2Response(response), its);
      if ((flags & NGHTTP2_FLAG_END_STREAM) === 0 && mayHaveBody(request, response)) {
        this.#body = this.#carry(server, { side: 'response', head: [], step, isWhole }, (following) =>
          this.#answer(answer, following),
        );
        return;
      }
      this.#answer(answer, NOTHING_FOLLOWS);
      this.#isAnswered = true;
      server.resume();
    });
    return server;
  }

  /**
   * Evaluates the head of a response. Returns null if the response must not be forwarded: the client's stream
   * is closed, or the client has received another response.
   */
  #decide(raw: readonly string[], request: Http2Request, step: Step): Http2Response | null {
    if (!isOpen(this.client) || this.client.headersSent) return null;
    const response = readHttp2Response(raw);
    if ('fault' in response) {
      this.#fail(NO_HTTP, `response_${response.fault}`);
      return null;
    }
    const problem = decideResponse(this.ports, request, step, response);
    if (problem === null) return response;
    this.#fail(problem, 'response_denied');
    return null;
  }

  #answer(lines: Http2Lines, { endStream, waitForTrailers }: Following): ServerHttp2Stream | null {
    const { client } = this;
    // While the response head waited for its body, the server may have failed. The client has then already
    // received a problem response, and a second response is not possible.
    if (!isOpen(client) || client.headersSent) return null;
    // Without `sendDate: false`, Node would add a Date field that the server did not send. Node's type
    // definitions lack `sendDate`.
    const options = { endStream, waitForTrailers, sendDate: false };
    return this.#trySend('response', () => {
      client.respond(lines, options);
      return client;
    });
  }

  /**
   * Sends a head. If Node's HTTP/2 API refuses to send the head, resets both streams and returns null.
   * Without this method, the error would end the service-plane thread and all its connections.
   */
  #trySend<T>(side: Carried['side'], send: () => T): T | null {
    try {
      return send();
    } catch {
      this.#resetUnsendable(side);
      return null;
    }
  }

  #resetUnsendable(side: Carried['side']): void {
    this.#reset(NGHTTP2_INTERNAL_ERROR, `${side}_unsendable`, side === 'request');
  }

  #carry(
    from: Http2Stream,
    { side, head, step, isWhole }: Carried,
    open: (following: Following) => Http2Stream | null,
  ): Http2Body {
    return new Http2Body(from, {
      head,
      isWhole,
      trails: mayTrail(step, side),
      window: this.ports.windows[side],
      open,
      moved: () => this.#idleTimeout.moved(),
      broken: (fault) => this.#reset(NGHTTP2_PROTOCOL_ERROR, `${side}_${fault}`, side === 'request'),
      unsendable: () => this.#resetUnsendable(side),
      over: () => {
        if (side === 'response') this.#isAnswered = true;
      },
    });
  }

  #deny(decided: Decided): void {
    // Do not use REFUSED_STREAM here: after REFUSED_STREAM, a client may repeat the request (RFC 9113, 8.7).
    if (this.ports.denied === 'reset') this.#resetClient(NGHTTP2_CANCEL);
    else this.#respond(deniedProblem(decided));
  }

  #refuse(fault: HttpFault): void {
    this.ports.refuse(`request_${fault}`);
    this.#respond(faultProblem(fault));
  }

  /**
   * Handles a fault of the server or of its response: sends a problem response to the client, and cancels the
   * server's stream.
   */
  #fail(problem: Problem, reason: RefusedReason): void {
    this.ports.refuse(reason);
    this.#respond(problem);
    this.#server?.close(NGHTTP2_CANCEL);
  }

  #respond(problem: Problem): void {
    const { client } = this;
    if (!isOpen(client)) return;
    this.#isAnswered = true;
    const body = Buffer.from(problemBody(problem));
    client.once('finish', () => {
      // RFC 9113, 8.1: after a complete response, the service plane does not need the remaining request
      // body.
      if (!client.readableEnded) client.close(NGHTTP2_NO_ERROR);
    });
    client.respond({
      ':status': problem.status,
      'content-type': 'application/problem+json',
      'content-length': body.length,
      'cache-control': 'no-store',
    });
    if (client.writable) client.end(body);
    // Discard the request body. Otherwise a client that does not read the response could make the thread keep
    // the body in memory.
    client.resume();
  }

  /** Resets both streams. `isClientFault`: the reset counts towards the limit of resets of the client. */
  #reset(code: number, reason: RefusedReason, isClientFault: boolean): void {
    this.ports.refuse(reason);
    if (isClientFault) this.client.close(code);
    else this.#resetClient(code);
    this.#server?.close(code);
  }

  #onClientClose(): void {
    const { rstCode } = this.client;
    if (!this.#isAnswered || rstCode !== NGHTTP2_NO_ERROR)
      this.#server?.close(rstCode === NGHTTP2_NO_ERROR ? NGHTTP2_CANCEL : rstCode);
    this.ports.closed(this);
  }

  #onServerClose({ rstCode }: ClientHttp2Stream): void {
    const { client } = this;
    if (!isOpen(client)) return;
    if (this.#isAnswered) {
      if (client.endAfterHeaders || client.readableEnded) return;
      if (client.writableFinished) client.close(NGHTTP2_NO_ERROR);
      else client.once('finish', () => client.close(NGHTTP2_NO_ERROR));
    } else if (!client.headersSent && this.#isServerGone()) this.#fail(SERVER_CLOSED, 'server_closed');
    else this.#resetClient(rstCode === NGHTTP2_NO_ERROR ? NGHTTP2_INTERNAL_ERROR : rstCode);
  }

  /**
   * Test the socket too: Node 20.19.2 closes the streams of a broken connection before it destroys their
   * session.
   */
  #isServerGone(): boolean {
    return this.session.destroyed || this.ports.link.socket.destroyed;
  }

  #resetClient(code: number): void {
    this.#wasReset = true;
    this.client.close(code);
  }
}

function mayHaveBody({ method }: Http2Request, { status }: Http2Response): boolean {
  return method !== 'HEAD' && status !== 204 && status !== 304;
}
