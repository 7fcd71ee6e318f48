import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  constants,
  type Http2Stream,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
  sensitiveHeaders,
} from 'node:http2';
import type { Step } from '#policy/inspection.js';
import { hostFault } from '../http/canonical.js';
import type { HttpFault } from '../http/fault.js';
import { readHttp2Trailers } from '../http/http2-fields.js';
import { type Http2Request, readHttp2Request } from '../http/http2-request.js';
import { type Http2Response, readHttp2Response } from '../http/http2-response.js';
import { type Http2Lines, writeHttp2Request, writeHttp2Response, writeHttp2Trailers } from '../http/write-http2.js';
import type { RefusedReason } from '../refused-reason.js';
import { type Problem, problemBody } from './answer.js';
import { deniedProblem, faultProblem, judgeResponse, mayTrail, NO_HTTP, SERVER_CLOSED } from './exchange.js';
import { type SessionPorts, STILL_MS } from './session-ports.js';

const { NGHTTP2_CANCEL, NGHTTP2_FLAG_END_STREAM, NGHTTP2_INTERNAL_ERROR, NGHTTP2_NO_ERROR, NGHTTP2_PROTOCOL_ERROR } =
  constants;

/** A request of a client and its response: a stream on either side, each with its own flow control. */
export class Http2Exchange {
  #server: ClientHttp2Stream | null = null;
  /** The whole response has been handed over. */
  #isAnswered = false;
  /** The client's stream was reset by the policy, or as the server did. */
  wasReset = false;

  constructor(
    private readonly client: ServerHttp2Stream,
    private readonly session: ClientHttp2Session,
    private readonly ports: SessionPorts,
  ) {}

  begin(headers: IncomingHttpHeaders, raw: readonly string[]): void {
    const { client, ports } = this;
    client.once('close', () => this.#onClientClose());
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
    const { step, verdict } = ports.judge(request);
    if (verdict === 'deny') {
      this.#deny(step);
      return;
    }
    client.setTimeout(STILL_MS, () => this.#reset(NGHTTP2_CANCEL, 'idle'));
    this.#send(request, step, headers);
  }

  #send(request: Http2Request, step: Step, headers: IncomingHttpHeaders): void {
    const { client } = this;
    const isBare = client.endAfterHeaders;
    if (!isBare && request.expectsContinue) client.additionalHeaders({ ':status': '100' });
    const lines = withSecrets(writeHttp2Request(request), headers);
    const server = this.session.request(lines, { endStream: isBare, waitForTrailers: !isBare });
    this.#server = server;
    server.on('error', () => {});
    server.once('close', () => this.#onServerClose(server));
    server.on('headers', (interim: IncomingHttpHeaders, _flags: number, raw: readonly string[]) => {
      const response = this.#judge(raw, request, step);
      // The client's 100 is ours.
      if (response !== null && response.status !== 100)
        client.additionalHeaders(withSecrets(writeHttp2Response(response), interim));
    });
    server.once('response', (its: IncomingHttpHeaders, flags: number, raw: readonly string[]) => {
      const response = this.#judge(raw, request, step);
      if (response === null) return;
      const isBodiless = (flags & NGHTTP2_FLAG_END_STREAM) !== 0 || request.method === 'HEAD';
      this.#answer(server, withSecrets(writeHttp2Response(response), its), isBodiless, mayTrail(step, 'response'));
    });
    if (isBare) client.resume();
    else this.#carry(client, server, mayTrail(step, 'request'));
  }

  /** Null: it does not go on, and the client was told. */
  #judge(raw: readonly string[], request: Http2Request, step: Step): Http2Response | null {
    if (!isOpen(this.client) || this.client.headersSent) return null;
    const response = readHttp2Response(raw);
    if ('fault' in response) {
      this.#fail(NO_HTTP, `response_${response.fault}`);
      return null;
    }
    const problem = judgeResponse(this.ports, request, step, response);
    if (problem === null) return response;
    this.#fail(problem, 'response_denied');
    return null;
  }

  #answer(server: ClientHttp2Stream, lines: Http2Lines, isBodiless: boolean, trails: boolean): void {
    const { client } = this;
    const isEmpty = isBodiless || lines[':status'] === '204' || lines[':status'] === '304';
    // Not in the types: what the server did not say is not said.
    const options = { endStream: isEmpty, waitForTrailers: !isEmpty, sendDate: false };
    client.respond(lines, options);
    if (!isEmpty) {
      this.#carry(server, client, trails);
      return;
    }
    this.#isAnswered = true;
    server.resume();
  }

  /** A body, and what comes behind it; whoever takes it slowly is sent it slowly. */
  #carry(from: Http2Stream, to: Http2Stream, trails: boolean): void {
    let trailers: Http2Lines = {};
    from.once('trailers', (its: IncomingHttpHeaders, _flags: number, raw: readonly string[]) => {
      const read = readHttp2Trailers(raw);
      if ('fault' in read) return this.#reset(NGHTTP2_PROTOCOL_ERROR, `${this.#sideOf(from)}_${read.fault}`);
      if (trails) trailers = withSecrets(writeHttp2Trailers(read), its);
    });
    to.once('wantTrailers', () => to.sendTrailers(trailers));
    from.on('data', (chunk: Buffer) => {
      if (isOpen(to) && !to.write(chunk)) from.pause();
    });
    to.on('drain', () => from.resume());
    from.once('end', () => {
      // A stream that is reset ends as well.
      if (from.rstCode !== NGHTTP2_NO_ERROR || from.aborted || !isOpen(to)) return;
      if (to === this.client) this.#isAnswered = true;
      to.end();
    });
  }

  #sideOf(stream: Http2Stream): 'request' | 'response' {
    return stream === this.client ? 'request' : 'response';
  }

  #deny(step: Step): void {
    // RFC 9113, 8.7: a stream that was refused would be asked again.
    if (this.ports.denied === 'reset') this.#resetClient(NGHTTP2_CANCEL);
    else this.#say(deniedProblem(step));
  }

  #refuse(fault: HttpFault): void {
    this.ports.refuse(`request_${fault}`);
    this.#say(faultProblem(fault));
  }

  /** Something went wrong with the server, or with its response. */
  #fail(problem: Problem, reason: RefusedReason): void {
    this.ports.refuse(reason);
    this.#say(problem);
    this.#server?.close(NGHTTP2_CANCEL);
  }

  #say(problem: Problem): void {
    const { client } = this;
    if (!isOpen(client)) return;
    this.#isAnswered = true;
    const body = Buffer.from(problemBody(problem));
    client.once('finish', () => {
      // RFC 9113, 8.1: the rest of the request is not wanted.
      if (!client.readableEnded) client.close(NGHTTP2_NO_ERROR);
    });
    client.respond({
      ':status': problem.status,
      'content-type': 'application/problem+json',
      'content-length': body.length,
      'cache-control': 'no-store',
    });
    if (client.writable) client.end(body);
    if (client.endAfterHeaders) client.resume();
  }

  #reset(code: number, reason: RefusedReason | null): void {
    if (reason !== null) this.ports.refuse(reason);
    this.client.close(code);
    this.#server?.close(code);
  }

  #onClientClose(): void {
    const { rstCode } = this.client;
    if (this.#isAnswered && rstCode === NGHTTP2_NO_ERROR) return;
    this.#server?.close(rstCode === NGHTTP2_NO_ERROR ? NGHTTP2_CANCEL : rstCode);
  }

  #onServerClose({ rstCode }: ClientHttp2Stream): void {
    const { client } = this;
    if (!isOpen(client)) return;
    if (this.#isAnswered) {
      if (client.readableEnded) return;
      if (client.writableFinished) client.close(NGHTTP2_NO_ERROR);
      else client.once('finish', () => client.close(NGHTTP2_NO_ERROR));
    } else if (!client.headersSent && this.session.destroyed) this.#fail(SERVER_CLOSED, 'server_closed');
    else this.#resetClient(rstCode === NGHTTP2_NO_ERROR ? NGHTTP2_INTERNAL_ERROR : rstCode);
  }

  #resetClient(code: number): void {
    this.wasReset = true;
    this.client.close(code);
  }
}

function isOpen(stream: Http2Stream): boolean {
  return !stream.closed && !stream.destroyed;
}

/** What one side keeps out of the compression goes on so (RFC 7541, 7.1.3). */
function withSecrets(lines: Http2Lines, headers: IncomingHttpHeaders): Http2Lines {
  const names: unknown = Reflect.get(headers, sensitiveHeaders);
  return Array.isArray(names) && names.length > 0 ? Object.assign(lines, { [sensitiveHeaders]: names }) : lines;
}
