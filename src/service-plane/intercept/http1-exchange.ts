import type { Header } from '#contracts/http-facts.js';
import type { Step } from '#policy/evaluate/connection-steps.js';
import { BodyReader } from '#service-plane/http/body-reader.js';
import { chunked, lastChunk } from '../http/chunks.js';
import type { RequestHead } from '../http/request-head.js';
import type { ResponseHead } from '../http/response-head.js';
import { mayTrail } from './exchange.js';

/** Methods of requests that may be sent again after the server closed without an answer (RFC 9110, 9.2.2). */
const REPEATABLE: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

type Response = {
  readonly head: ResponseHead;
  readonly body: BodyReader;
  /** The framing towards the client, which may not support chunks. */
  readonly framing: ResponseHead['framing'];
};

/** An allowed HTTP/1.1 request, and its response. */
export class Http1Exchange {
  readonly body: BodyReader;
  /** Whether the server was sent the request. */
  isSent = false;
  response: Response | null = null;
  /** Whether the server has sent any byte of an answer. */
  isAnswered = false;
  mayRepeat: boolean;

  constructor(
    readonly request: RequestHead,
    readonly step: Step,
  ) {
    this.body = new BodyReader(request.framing, request.headers);
    this.mayRepeat = REPEATABLE.has(request.method) && request.framing === 0 && !request.isWebSocket;
  }

  /** Writes data of the request for the server, with the end of the body after the last of them. */
  requestParts(data: readonly Buffer[]): readonly Buffer[] {
    const { request, step, body } = this;
    if (request.framing !== 'chunked') return data;
    if (!body.isComplete) return chunked(data);
    return [...chunked(data), lastChunk(mayTrail(step, 'request') ? body.trailers : [])];
  }

  beginResponse(head: ResponseHead): Response {
    const framing = head.framing === 'chunked' && this.request.version === '1.0' ? 'until_close' : head.framing;
    this.response = { head, body: new BodyReader(head.framing), framing };
    return this.response;
  }

  /** Writes the end of a response whose data have all been written. */
  responseEnd({ framing, body }: Response): readonly Buffer[] {
    return framing === 'chunked' ? [lastChunk(mayTrail(this.step, 'response') ? body.trailers : [])] : [];
  }

  /** Whether the client's connection stays open after a response of this framing. */
  keepsClient(framing: ResponseHead['framing']): boolean {
    return this.request.keepsAlive && framing !== 'until_close' && this.body.isComplete;
  }

  /** Whether the server may bind the connection to the user who authenticated on it. */
  get bindsLink(): boolean {
    return this.request.headers.some(binds) || (this.response?.head.headers.some(binds) ?? false);
  }
}

function binds([name, value]: Header): boolean {
  return (name === 'authorization' || name === 'www-authenticate') && /^(ntlm|negotiate)\b/i.test(value);
}
