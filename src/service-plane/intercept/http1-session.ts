import type { Header } from '#policy/http-facts.js';
import type { Step } from '#policy/inspection.js';
import { BodyReader } from '../http/body.js';
import { hostFault } from '../http/canonical.js';
import { chunked, lastChunk } from '../http/chunks.js';
import type { HttpFault } from '../http/fault.js';
import { type RequestHead, RequestHeadReader } from '../http/request-head.js';
import { type ResponseHead, ResponseHeadReader } from '../http/response-head.js';
import { writeRequestHead, writeResponseHead } from '../http/write-head.js';
import type { RefusedReason } from '../refused-reason.js';
import { type Problem, problemResponse } from './answer.js';
import { deniedProblem, faultProblem, judgeResponse, mayTrail, NO_HTTP, SERVER_CLOSED } from './exchange.js';
import { Out } from './out.js';
import type { ServerLink, ServerLinkFailure } from './server-link.js';
import type { SessionPorts } from './session-ports.js';

/** Ticks of the clock after which what does not move is given up. */
const IDLE_TICKS = 60;
/** And after which a head must be complete, however slowly it moves. */
const HEAD_TICKS = 6;
/** Then the server's side goes to whoever needs one: an idle client takes no more than its own. */
const RESTING_TICKS = 1;
/** Of a tunnel, which has no other end that is seen. */
const KEEP_ALIVE_MS = 60_000;
/** May be sent again where a server closed before it answered (RFC 9110, 9.2.2). */
const REPEATABLE: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

const UNREACHABLE: Problem = { status: 502, detail: 'The server cannot be reached.' };

export type Http1Ports = SessionPorts & {
  linkAgain(done: (link: ServerLink | ServerLinkFailure) => void): void;
  /** Nobody here needs it any more. */
  give(link: ServerLink): void;
};

type Response = {
  readonly head: ResponseHead;
  readonly body: BodyReader;
  /** On its way to the client, which may know no chunks. */
  readonly framing: ResponseHead['framing'];
};

type Exchange = {
  readonly request: RequestHead;
  readonly step: Step;
  readonly body: BodyReader;
  /** The server has been told of it. */
  isSent: boolean;
  response: Response | null;
  /** Interim responses, or a part of a head, came. */
  isAnswered: boolean;
  mayRepeat: boolean;
};

/** HTTP/1.1 between a client and a server, one request at a time; each is read, judged and written anew. */
export class Http1Session {
  readonly #heads = new RequestHeadReader();
  #responses = new ResponseHeadReader();
  readonly #toClient = new Out();
  readonly #toServer = new Out();
  #exchange: Exchange | null = null;
  #link: ServerLink | null = null;
  #unhook: () => void = () => {};
  /** Of the client, behind the request that is under way. */
  #waiting: Buffer | null = null;
  #isTunnel = false;
  #isClosing = false;
  #clientEnded = false;
  #isReading = false;
  #movedAt = 0;
  #headSince = 0;

  constructor(private readonly ports: Http1Ports) {
    const { client, link } = ports;
    // It may have broken while the client's handshake went on.
    if (!link.socket.destroyed) this.#hook(link);
    client.on('data', (chunk: Buffer) => this.#onClient(chunk));
    client.on('drain', () => {
      this.#link?.socket.resume();
      if (!this.#isClosing) this.#read();
    });
    client.once('end', () => this.#onClientEnd());
    this.#movedAt = this.#headSince = ports.clock.tick;
  }

  /** The request that opened a tunnel, which nothing of is read any more; null: there is none. */
  get tunnel(): RequestHead | null {
    return this.#isTunnel ? (this.#exchange?.request ?? null) : null;
  }

  get isIdle(): boolean {
    return this.#exchange === null && !this.#isTunnel;
  }

  /** Ends what there is; the server's side is given back where it can be of use. */
  close(): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    const link = this.#link;
    this.#drop(this.#exchange === null && !this.#isTunnel && link?.isUsed === true);
  }

  /** Gives up what has not moved for too long. */
  lookAtClock(): void {
    if (this.#isTunnel) return;
    const { tick } = this.ports.clock;
    const still = tick - this.#movedAt;
    if (this.isIdle && still > RESTING_TICKS) this.#dropLink(true);
    if (!this.#heads.isInside) this.#headSince = tick;
    if (still > IDLE_TICKS) this.#abort('idle');
    else if (tick - this.#headSince > HEAD_TICKS) this.#abort('head_late');
  }

  #onClient(chunk: Buffer): void {
    this.#movedAt = this.ports.clock.tick;
    if (this.#isTunnel) {
      // What comes after the server's end has nobody to go to.
      if (this.#link?.socket.write(chunk) === false) this.ports.client.pause();
      return;
    }
    this.#waiting = this.#waiting === null ? chunk : Buffer.concat([this.#waiting, chunk]);
    this.#read();
  }

  /** Reads what the client sent as far as it may be read now. */
  #read(): void {
    // A link may come while a request is being read: what is behind it is read on by whoever began.
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
    // Whoever does not read his answers asks nothing more.
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
        this.#sendBody(exchange, data);
      } else {
        break;
      }
    }
    if (chunk !== null) chunk = at === chunk.length ? null : at === 0 ? chunk : chunk.subarray(at);
    this.#waiting = chunk;
    const link = this.#link;
    const takes = link === null || this.#toServer.flush(link.socket);
    if (chunk !== null || !takes) this.ports.client.pause();
    else if (this.ports.client.isPaused() && link?.socket.writableNeedDrain !== true) this.ports.client.resume();
  }

  #begin(request: RequestHead): void {
    const { ports } = this;
    const fault = hostFault(request, ports.connection);
    if (fault !== null) {
      this.#refuse(fault);
      return;
    }
    const { step, verdict } = ports.judge(request);
    if (verdict === 'deny') {
      this.#deny(request, step);
      return;
    }
    const mayRepeat = REPEATABLE.has(request.method) && request.framing === 0 && !request.isWebSocket;
    const body = new BodyReader(request.framing);
    this.#exchange = { request, step, body, isSent: false, response: null, isAnswered: false, mayRepeat };
    if (request.expectsContinue) ports.client.write('HTTP/1.1 100 Continue\r\n\r\n');
    this.#send();
  }

  #send(): void {
    const exchange = this.#exchange;
    if (exchange === null) return;
    const link = this.#link;
    if (link === null) {
      this.#linkAgain();
      return;
    }
    const { request } = exchange;
    exchange.isSent = true;
    this.#responses.asked = { method: request.method, isWebSocket: request.isWebSocket };
    this.#toServer.add(writeRequestHead(request, { closes: false }));
  }

  #linkAgain(): void {
    this.ports.linkAgain((link) => {
      if (this.#isClosing) {
        if (!('kind' in link)) link.socket.destroy();
        return;
      }
      if ('kind' in link) return this.#fail(UNREACHABLE, link.reason);
      this.#hook(link);
      this.#send();
      this.#read();
    });
  }

  #sendBody({ request, step, body }: Exchange, data: readonly Buffer[]): void {
    const parts = request.framing === 'chunked' ? chunked(data) : data;
    for (const part of parts) this.#toServer.add(part);
    if (request.framing !== 'chunked' || !body.isComplete) return;
    this.#toServer.add(lastChunk(mayTrail(step, 'request') ? body.trailers : []));
  }

  #onServer(chunk: Buffer): void {
    this.#movedAt = this.ports.clock.tick;
    if (this.#isTunnel) {
      if (!this.ports.client.write(chunk)) this.#link?.socket.pause();
      return;
    }
    let at = 0;
    while (at < chunk.length && !this.#isClosing && !this.#isTunnel) {
      const exchange = this.#exchange;
      // A server that speaks unasked answers the next request before it is sent.
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
    if (!this.#isClosing && !this.#toClient.flush(this.ports.client)) this.#link?.socket.pause();
  }

  #beginResponse(exchange: Exchange, head: ResponseHead, rest: Buffer): void {
    const { request, step } = exchange;
    const problem = judgeResponse(this.ports, request, step, head);
    if (problem !== null) {
      this.#fail(problem, 'response_denied');
      return;
    }
    if (head.status === 101) {
      this.#beginTunnel(head, rest);
      return;
    }
    if (head.status < 200) {
      // The client's 100 is ours; HTTP/1.0 knows none of them.
      if (head.status !== 100 && request.version === '1.1')
        this.#toClient.add(writeResponseHead(head, 0, { closes: false }));
      return;
    }
    const framing = head.framing === 'chunked' && request.version === '1.0' ? 'until_close' : head.framing;
    const closes = !this.#clientStays(exchange, framing);
    this.#toClient.add(writeResponseHead(head, framing, { closes }));
    exchange.response = { head, body: new BodyReader(head.framing), framing };
    if (exchange.response.body.isComplete) this.#endResponse(exchange, rest.length === 0);
  }

  #clientStays({ request, body }: Exchange, framing: ResponseHead['framing']): boolean {
    return request.keepsAlive && framing !== 'until_close' && body.isComplete && !this.#clientEnded;
  }

  /** `isAlone`: nothing came behind the response. */
  #endResponse(exchange: Exchange, isAlone: boolean): void {
    const { request, step, response } = exchange;
    if (response === null) throw new Error('a response ends that did not begin');
    if (response.framing === 'chunked')
      this.#toClient.add(lastChunk(mayTrail(step, 'response') ? response.body.trailers : []));
    const stays = this.#clientStays(exchange, response.framing);
    this.#exchange = null;
    const link = this.#link;
    if (link !== null) link.isUsed = true;
    if (link !== null && isBound(request, response.head)) link.isBound = true;
    const mayServe = response.head.keepsAlive && isAlone && exchange.body.isComplete;
    if (!mayServe) this.#dropLink(false);
    this.#toClient.flush(this.ports.client);
    if (!stays) {
      this.#isClosing = true;
      this.ports.client.end();
      this.#drop(mayServe);
      return;
    }
    if (this.#waiting !== null) setImmediate(() => this.#read());
  }

  /** From here on nothing is understood any more; the rule let it pass. */
  #beginTunnel(head: ResponseHead, rest: Buffer): void {
    this.#isTunnel = true;
    const { client } = this.ports;
    client.setKeepAlive(true, KEEP_ALIVE_MS);
    this.#toClient.add(writeResponseHead(head, 0, { closes: false }));
    this.#toClient.add(rest);
    this.#toClient.flush(client);
    const link = this.#link as ServerLink;
    link.socket.setKeepAlive(true, KEEP_ALIVE_MS);
    if (this.#waiting !== null) link.socket.write(this.#waiting);
    this.#waiting = null;
    client.resume();
  }

  #deny(request: RequestHead, step: Step): void {
    const { client, denied } = this.ports;
    if (denied === 'reset') {
      this.#abort(null);
      return;
    }
    const closes = request.framing !== 0 || !request.keepsAlive;
    const isHead = request.method === 'HEAD';
    client.write(problemResponse(deniedProblem(step), { closes, isHead }));
    if (closes) this.#endClient();
  }

  #refuse(fault: HttpFault): void {
    this.ports.refuse(`request_${fault}`);
    this.#say(faultProblem(fault));
  }

  /** Something went wrong with the server. */
  #fail(problem: Problem, reason: RefusedReason): void {
    this.ports.refuse(reason);
    if (this.#exchange?.response != null) {
      this.#abort(null);
      return;
    }
    this.#say(problem);
  }

  #say(problem: Problem): void {
    if (this.#isClosing) return;
    const isHead = this.#exchange?.request.method === 'HEAD';
    this.ports.client.write(problemResponse(problem, { closes: true, isHead }));
    this.#endClient();
  }

  #endClient(): void {
    this.#isClosing = true;
    this.ports.client.end();
    this.#drop(false);
  }

  #abort(reason: RefusedReason | null): void {
    if (reason !== null) this.ports.refuse(reason);
    this.#isClosing = true;
    this.#drop(false);
    this.ports.over();
  }

  #onClientEnd(): void {
    this.#clientEnded = true;
    if (this.#isTunnel) {
      this.#link?.socket.end();
      return;
    }
    if (this.#exchange?.body.isComplete === true) return;
    this.ports.client.end();
    this.close();
  }

  #hook(link: ServerLink): void {
    const { socket } = link;
    const data = (chunk: Buffer): void => this.#onServer(chunk);
    const drain = (): void => {
      if (this.#waiting === null) this.ports.client.resume();
      else this.#read();
    };
    const gone = (): void => this.#onServerGone();
    socket.on('data', data);
    socket.on('drain', drain);
    socket.once('end', gone);
    socket.once('close', gone);
    socket.on('error', gone);
    socket.resume();
    this.#link = link;
    this.#responses = new ResponseHeadReader();
    this.#unhook = () => {
      socket.off('data', data);
      socket.off('drain', drain);
      socket.off('end', gone);
      socket.off('close', gone);
      socket.off('error', gone);
      this.#unhook = () => {};
    };
  }

  #onServerGone(): void {
    const link = this.#link;
    const exchange = this.#exchange;
    const wasUsed = link?.isUsed === true;
    if (this.#isTunnel) {
      this.ports.client.end();
      this.ports.client.setTimeout(KEEP_ALIVE_MS);
      this.#drop(false);
      return;
    }
    this.#dropLink(false);
    if (exchange === null || !exchange.isSent || this.#isClosing) return;
    if (exchange.response !== null) {
      if (!exchange.response.body.finish()) {
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

  #dropLink(mayServe: boolean): void {
    const link = this.#link;
    this.#unhook();
    this.#link = null;
    if (link === null) return;
    if (mayServe && !link.isBound) this.ports.give(link);
    else {
      link.socket.on('error', () => {});
      link.socket.destroy();
    }
  }

  #drop(mayServe: boolean): void {
    this.#waiting = null;
    this.#dropLink(mayServe);
  }
}

/** Whether a server takes the connection for the one who authenticated on it. */
function isBound({ headers }: RequestHead, response: ResponseHead): boolean {
  const binds = ([name, value]: Header): boolean =>
    (name === 'authorization' || name === 'www-authenticate') && /^(ntlm|negotiate)\b/i.test(value);
  return headers.some(binds) || response.headers.some(binds);
}
