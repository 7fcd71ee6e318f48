import type { Decided } from '#policy/evaluate/connection/connection-steps.js';
import { hostFault } from '#service-plane/http/authority.js';
import type { HttpFault } from '#service-plane/http/fault.js';
import { chunked } from '#service-plane/http/http1/chunks.js';
import { type RequestHead, RequestHeadReader } from '#service-plane/http/http1/request-head.js';
import { type ResponseHead, ResponseHeadReader } from '#service-plane/http/http1/response-head.js';
import { writeRequestHead, writeResponseHead } from '#service-plane/http/http1/write-head.js';
import { type Problem, problemResponse } from '#service-plane/intercept/answer.js';
import {
  decideResponse,
  deniedProblem,
  faultProblem,
  NO_HTTP,
  SERVER_CLOSED,
  TIMED_OUT,
} from '#service-plane/intercept/exchange.js';
import { IdleTimeout } from '#service-plane/intercept/idle-timeout.js';
import type { ServerLink, ServerLinkFailure } from '#service-plane/intercept/server-link.js';
import type { SessionPorts } from '#service-plane/intercept/session-ports.js';
import { type TlsEnd, watchTlsEnd } from '#service-plane/intercept/stream-end.js';
import type { RefusedReason } from '#service-plane/refused-reason.js';
import { descriptorOf } from '#sockets/listening/descriptor-reserve.js';
import { isBroken } from '#sockets/listening/tcp-endpoint.js';
import { Http1Exchange } from './http1-exchange.js';
import { ServerEnd } from './server-end.js';
import { Tunnel } from './tunnel.js';
import { WriteBatch } from './write-batch.js';

/**
 * The maximum number of client bytes that wait behind the current request. Up to this number, the session
 * reads the client's socket, because Node reports the end of a connection only for a socket that it reads.
 */
const AHEAD_BYTES = 65_536;
/** The time that a client has to close its connection after its last response, in ticks of five seconds. */
const FAREWELL_TICKS = 1;
const UNREACHABLE: Problem = { status: 502, detail: 'The server cannot be reached.' };

export type Http1Ports = SessionPorts & {
  linkAgain(done: (link: ServerLink | ServerLinkFailure) => void): void;
  /** Returns a connection to a server, which the session no longer needs, to the pool. */
  give(link: ServerLink): void;
};

/**
 * An HTTP/1.1 session between a client and a server. The session reads, evaluates and forwards one request at
 * a time.
 */
export class Http1Session {
  readonly #heads = new RequestHeadReader();
  #responses = new ResponseHeadReader();
  readonly #toClient = new WriteBatch();
  readonly #server: ServerEnd;
  readonly #unhookClient: () => void;
  readonly #idleTimeout: IdleTimeout;
  readonly #clientEnd: () => TlsEnd | null;
  #exchange: Http1Exchange | null = null;
  /**
   * Client bytes that have arrived but that the session has not read yet, for example a request after the
   * current request.
   */
  #waiting: Buffer | null = null;
  #tunnel: Tunnel | null = null;
  #isClosing = false;
  /**
   * The tick at which all bytes were sent to the client of a closing session, which then only waits for the
   * client to close its connection; null before.
   */
  #farewellSince: number | null = null;
  #clientEnded = false;
  #isReading = false;

  constructor(private readonly ports: Http1Ports) {
    const { link } = ports;
    this.#server = new ServerEnd({
      onData: (chunk) => this.#onServer(chunk),
      drained: () => this.#onServerDrain(),
      gone: (how) => this.#onServerGone(how),
      give: (given) => ports.give(given),
    });
    // The server may have closed its connection during the TLS handshake with the client. The session then
    // opens a new connection for the first request.
    if (link.hasEnded) link.socket.destroy();
    else this.#useLink(link);
    this.#clientEnd = watchTlsEnd(ports.client);
    this.#unhookClient = this.#hookClient();
    this.#idleTimeout = new IdleTimeout(ports.clock);
  }

  /**
   * The request that opened a WebSocket tunnel; null if there is no tunnel. The bytes in a tunnel are not
   * inspected.
   */
  get tunnel(): RequestHead | null {
    return this.#tunnel === null ? null : (this.#exchange?.request ?? null);
  }

  get isIdle(): boolean {
    return this.#exchange === null;
  }

  /**
   * Ends the session. If the session is idle and its connection to the server has transferred a complete
   * exchange, returns the connection to the pool; otherwise closes it. Resets the connection of an incomplete
   * exchange.
   */
  close(): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    this.#tunnel?.close();
    this.#drop(this.#server.link?.isUsed === true);
  }

  /**
   * Ends the session in three cases: it was idle for too long, a request head is incomplete for too long, or
   * the client's connection has broken while Node did not read it. Between requests, returns the connection
   * to the server to the pool after a short time. The interceptor calls this method at every tick.
   */
  checkTimeouts(): void {
    if (this.#tunnel !== null) {
      this.#tunnel.checkTimeouts();
      return;
    }
    const { client } = this.ports;
    if ((client.isPaused() || this.#clientEnded) && isBroken(descriptorOf(client))) {
      this.#abort(null);
      return;
    }
    if (this.#isClosing && client.writableFinished) {
      this.#limitFarewell();
      return;
    }
    if (this.isIdle && this.#idleTimeout.isResting) this.#server.drop(true);
    const reason = this.#idleTimeout.over({
      isInsideHead: this.#heads.isInside,
      isHalfClosed: this.#clientEnded,
    });
    if (reason === 'idle') this.#endIdle();
    else if (reason !== null) this.#abort(reason);
  }

  #limitFarewell(): void {
    const { tick } = this.ports.clock;
    this.#farewellSince ??= tick;
    if (tick - this.#farewellSince > FAREWELL_TICKS) this.ports.over();
  }

  #endIdle(): void {
    const exchange = this.#exchange;
    if (this.#isClosing || exchange?.response != null || exchange?.body.isComplete === false) {
      this.#abort('idle');
      return;
    }
    this.ports.refuse('idle');
    if (exchange === null) this.#endClient();
    else this.#respond(TIMED_OUT);
  }

  #hookClient(): () => void {
    const { client } = this.ports;
    const data = (chunk: Buffer): void => this.#onClient(chunk);
    const drain = (): void => {
      this.#server.resume();
      if (!this.#isClosing) this.#read();
    };
    const end = (): void => this.#onClientEnd(this.#clientEnd() ?? 'cut');
    client.on('data', data);
    client.on('drain', drain);
    client.once('end', end);
    return () => {
      client.off('data', data);
      client.off('drain', drain);
      client.off('end', end);
    };
  }

  #onClient(chunk: Buffer): void {
    // Read and drop the bytes that the client sends after its last request. A close with unread data would
    // become a reset, which can destroy the last response on its way to the client.
    if (this.#isClosing) return;
    this.#idleTimeout.moved();
    this.#waiting = this.#waiting === null ? chunk : Buffer.concat([this.#waiting, chunk]);
    this.#read();
  }

  /**
   * Reads the waiting client bytes until a request must wait for its response, or until backpressure stops
   * the read.
   */
  #read(): void {
    // Prevent recursion: the callback of `ports.linkAgain` calls `#read`, and `ports.linkAgain` may call the
    // callback immediately. The outer call then reads the remaining bytes.
    if (this.#isReading) return;
    this.#isReading = true;
    try {
      this.#readOn();
    } finally {
      this.#isReading = false;
    }
  }

  #readOn(): void {
    let chunk = this.#waiting;
    let at = 0;
    // Backpressure: stop reading requests while the client does not drain responses.
    while (chunk !== null && at < chunk.length && !this.#isClosing && !this.ports.client.writableNeedDrain) {
      const exchange = this.#exchange;
      if (exchange === null) {
        const head = this.#heads.push(chunk, at);
        if (head === null) {
          at = chunk.length;
          break;
        }
        if ('fault' in head) {
          this.#refuse(head.fault);
          return;
        }
        at = this.#heads.end;
        this.#begin(head);
      } else if (exchange.isSent && !exchange.body.isComplete) {
        const data = exchange.body.push(chunk, at);
        at = exchange.body.end;
        if (exchange.body.fault !== null) {
          this.#refuse(exchange.body.fault);
          return;
        }
        for (const part of exchange.requestParts(data)) this.#server.add(part);
      } else {
        break;
      }
    }
    if (chunk !== null) chunk = at === chunk.length ? null : at === 0 ? chunk : chunk.subarray(at);
    this.#waiting = chunk;
    const takes = this.#server.flush();
    const isFull = this.#server.link?.socket.writableNeedDrain === true;
    if ((chunk !== null && chunk.length > AHEAD_BYTES) || !takes) this.ports.client.pause();
    else if (this.ports.client.isPaused() && !isFull) this.ports.client.resume();
    if (this.#clientEnded) this.#endWithClient();
  }

  #begin(request: RequestHead): void {
    const { ports } = this;
    const fault = hostFault(request, ports.connection);
    if (fault !== null) {
      this.#refuse(fault);
      return;
    }
    const decided = ports.decide(request);
    if (decided.verdict === 'deny') {
      this.#deny(request, decided);
      return;
    }
    const exchange = new Http1Exchange(request, decided.step);
    this.#exchange = exchange;
    if (request.expectsContinue) ports.client.write('HTTP/1.1 100 Continue\r\n\r\n');
    if (this.#server.link === null || exchange.mayRepeat) this.#send();
    else this.#sendOnceHeard(exchange);
  }

  /**
   * Sends a request that must not be sent twice, in the next event-loop iteration. Before that, Node can
   * report that the server has closed the connection (RFC 9112, 9.3.1).
   */
  #sendOnceHeard(exchange: Http1Exchange): void {
    setImmediate(() => {
      if (this.#isClosing || this.#exchange !== exchange) return;
      this.#send();
      this.#read();
    });
  }

  #send(): void {
    const exchange = this.#exchange;
    if (exchange === null) return;
    if (this.#server.link === null) {
      this.#linkAgain();
      return;
    }
    const { request } = exchange;
    exchange.isSent = true;
    this.#responses.asked = { method: request.method, isWebSocket: request.isWebSocket };
    this.#server.add(writeRequestHead(request, { closes: false }));
  }

  #linkAgain(): void {
    this.ports.linkAgain((link) => {
      if (this.#isClosing) {
        if (!('kind' in link)) link.socket.destroy();
        return;
      }
      if ('kind' in link) return this.#fail(UNREACHABLE, link.reason);
      this.#useLink(link);
      this.#send();
      this.#read();
    });
  }

  #useLink(link: ServerLink): void {
    this.#responses = new ResponseHeadReader();
    this.#server.use(link);
  }

  #onServer(chunk: Buffer): void {
    this.#idleTimeout.moved();
    let at = 0;
    while (at < chunk.length && !this.#isClosing && this.#tunnel === null) {
      const exchange = this.#exchange;
      // Reject bytes that the server sends when no request is unanswered. The session would otherwise use
      // these bytes as the response to the next request.
      if (exchange === null || !exchange.isSent) {
        this.#abort('unasked_response');
        return;
      }
      exchange.isAnswered = true;
      if (exchange.response === null) {
        const head = this.#responses.push(chunk, at);
        if (head === null) break;
        if ('fault' in head) {
          this.#fail(NO_HTTP, `response_${head.fault}`);
          return;
        }
        at = this.#responses.end;
        this.#beginResponse(exchange, head, chunk.subarray(at));
      } else {
        const { body, framing } = exchange.response;
        const data = body.push(chunk, at);
        at = body.end;
        if (body.fault !== null) {
          this.#abort(`response_${body.fault}`);
          return;
        }
        for (const part of framing === 'chunked' ? chunked(data) : data) this.#toClient.add(part);
        if (body.isComplete) this.#endResponse(exchange, at === chunk.length);
      }
    }
    if (!this.#isClosing && !this.#toClient.flush(this.ports.client)) this.#server.pause();
  }

  #beginResponse(exchange: Http1Exchange, head: ResponseHead, rest: Buffer): void {
    const { request, step } = exchange;
    const problem = decideResponse(this.ports, request, step, head);
    if (problem !== null) {
      this.#fail(problem, 'response_denied');
      return;
    }
    if (head.status === 101) {
      this.#beginTunnel(head, rest);
      return;
    }
    if (head.status < 200) {
      // Do not forward the status 100, because `#begin` sends it to the client. HTTP/1.0 has no interim
      // responses.
      if (head.status !== 100 && request.version === '1.1')
        this.#toClient.add(writeResponseHead(head, 0, { closes: false }));
      return;
    }
    const { framing, body } = exchange.beginResponse(head);
    const closes = !this.#staysAfter(exchange, framing);
    this.#toClient.add(writeResponseHead(head, framing, { closes }));
    if (body.isComplete) this.#endResponse(exchange, rest.length === 0);
  }

  /** Ends an exchange whose response is complete. `isAlone`: the server sent no bytes after the response. */
  #endResponse(exchange: Http1Exchange, isAlone: boolean): void {
    const { response } = exchange;
    if (response === null) throw new Error('end an HTTP response: no response head was read before');
    for (const part of exchange.responseEnd(response)) this.#toClient.add(part);
    const stays = this.#staysAfter(exchange, response.framing);
    this.#exchange = null;
    const { link } = this.#server;
    if (link !== null) link.isUsed = true;
    if (link !== null && exchange.bindsLink) link.isBound = true;
    const mayServe = response.head.keepsAlive && isAlone && exchange.body.isComplete;
    if (!mayServe) this.#server.drop(false);
    this.#toClient.flush(this.ports.client);
    if (!stays) {
      this.#endClient(mayServe);
      return;
    }
    if (this.#waiting !== null) setImmediate(() => this.#read());
  }

  /**
   * Returns true if the client can send another request on its connection after a response with this framing.
   */
  #staysAfter(exchange: Http1Exchange, framing: ResponseHead['framing']): boolean {
    return exchange.keepsClient(framing) && !(this.#clientEnded && this.#waiting === null);
  }

  #beginTunnel(head: ResponseHead, rest: Buffer): void {
    const { client } = this.ports;
    const link = this.#server.release();
    if (link === null) throw new Error('begin a WebSocket tunnel: there is no connection to the server');
    this.#unhookClient();
    this.#toClient.add(writeResponseHead(head, 0, { closes: false }));
    this.#toClient.add(rest);
    this.#toClient.flush(client);
    if (this.#waiting !== null) link.socket.write(this.#waiting);
    this.#waiting = null;
    this.#tunnel = new Tunnel({ client, clientEnd: this.#clientEnd, link, clock: this.ports.clock });
  }

  #deny(request: RequestHead, decided: Decided): void {
    const { client, denied } = this.ports;
    if (denied === 'reset') {
      this.#abort(null);
      return;
    }
    const closes = request.framing !== 0 || !request.keepsAlive;
    const isHead = request.method === 'HEAD';
    client.write(problemResponse(deniedProblem(decided), { closes, isHead }));
    if (closes) this.#endClient();
  }

  #refuse(fault: HttpFault): void {
    this.ports.refuse(`request_${fault}`);
    this.#respond(faultProblem(fault));
  }

  /**
   * Handles a fault of the server or of its response: sends a problem response to the client. If the response
   * has already begun, resets the connection.
   */
  #fail(problem: Problem, reason: RefusedReason): void {
    this.ports.refuse(reason);
    if (this.#exchange?.response != null) {
      this.#abort(null);
      return;
    }
    this.#respond(problem);
  }

  #respond(problem: Problem): void {
    if (this.#isClosing) return;
    const isHead = this.#exchange?.request.method === 'HEAD';
    this.ports.client.write(problemResponse(problem, { closes: true, isHead }));
    this.#endClient();
  }

  /**
   * Closes the connection to the client after all written data, and ends the use of the connection to the
   * server.
   */
  #endClient(mayServe = false): void {
    this.#isClosing = true;
    this.ports.client.end();
    this.ports.client.resume();
    this.#drop(mayServe);
  }

  #abort(reason: RefusedReason | null): void {
    if (reason !== null) this.ports.refuse(reason);
    this.#isClosing = true;
    this.#waiting = null;
    this.#server.reset();
    this.ports.reset();
  }

  #onClientEnd(how: TlsEnd): void {
    this.#clientEnded = true;
    if (this.#isClosing) return;
    // A client that closes without close_notify does not wait for a response: its process was killed, for
    // example.
    if (how === 'cut' && this.#exchange !== null) this.#abort(null);
    else this.#endWithClient();
  }

  /**
   * Ends the session after the client has closed its direction, unless complete requests still need their
   * responses.
   */
  #endWithClient(): void {
    if (this.#isClosing || this.#waiting !== null || this.#exchange?.body.isComplete === true) return;
    this.ports.client.end();
    this.close();
  }

  #onServerDrain(): void {
    if (this.#waiting === null) this.ports.client.resume();
    else this.#read();
  }

  #onServerGone(how: TlsEnd): void {
    const exchange = this.#exchange;
    const wasUsed = this.#server.link?.isUsed === true;
    this.#server.drop(false);
    if (exchange === null || !exchange.isSent || this.#isClosing) return;
    if (exchange.response !== null) {
      if (how === 'cut' || !exchange.response.body.finish()) {
        this.#abort('response_cut_short');
        return;
      }
      this.#endResponse(exchange, true);
      return;
    }
    if (wasUsed && exchange.mayRepeat && !exchange.isAnswered) {
      exchange.mayRepeat = false;
      exchange.isSent = false;
      this.#linkAgain();
      return;
    }
    this.#fail(SERVER_CLOSED, 'server_closed');
  }

  #drop(mayServe: boolean): void {
    this.#waiting = null;
    if (this.isIdle) this.#server.drop(mayServe);
    else this.#server.reset();
  }
}
