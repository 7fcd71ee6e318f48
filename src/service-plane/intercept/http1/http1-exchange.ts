import type { Header } from '#contracts/service-plane/http-facts.js';
import type { Step } from '#policy/evaluate/connection/connection-steps.js';
import { BodyReader } from '#service-plane/http/http1/body-reader.js';
import { chunked, lastChunk } from '#service-plane/http/http1/chunks.js';
import type { RequestHead } from '#service-plane/http/http1/request-head.js';
import type { ResponseHead } from '#service-plane/http/http1/response-head.js';
import { mayTrail } from '#service-plane/intercept/exchange.js';

/**
 * Methods of requests that the session may send again if the server closed the connection without a response
 * (RFC 9110, 9.2.2).
 */
const REPEATABLE: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

type Response = {
  readonly head: ResponseHead;
  readonly body: BodyReader;
  /** The framing of the body that the client receives; an HTTP/1.0 client does not support chunked coding. */
  readonly framing: ResponseHead['framing'];
};

/** An allowed HTTP/1.1 request, together with its response. */
export class Http1Exchange {
  readonly body: BodyReader;
  /** True after the request was sent to the server. */
  isSent = false;
  response: Response | null = null;
  /** True after the server has sent at least one byte of the response. */
  isAnswered = false;
  mayRepeat: boolean;

  constructor(
    readonly request: RequestHead,
    readonly step: Step,
  ) {
    this.body = new BodyReader(request.framing, request.headers);
    this.mayRepeat = REPEATABLE.has(request.method) && request.framing === 0 && !request.isWebSocket;
  }

  /**
   * Returns the buffers that encode request body data for the server. If the body is complete, the buffers
   * include the end of the body.
   */
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

  /** Returns the buffers that end a response body, after all its data was written. */
  responseEnd({ framing, body }: Response): readonly Buffer[] {
    return framing === 'chunked' ? [lastChunk(mayTrail(this.step, 'response') ? body.trailers : [])] : [];
  }

  /** Returns true if the client's connection stays open after a response with this framing. */
  keepsClient(framing: ResponseHead['framing']): boolean {
    return this.request.keepsAlive && framing !== 'until_close' && this.body.isComplete;
  }

  /**
   * True if the request or response uses NTLM or Negotiate. The server may then bind the TCP connection to
   * the authenticated user.
   */
  get bindsLink(): boolean {
    return this.request.headers.some(binds) || (this.response?.head.headers.some(binds) ?? false);
  }
}

function binds([name, value]: Header): boolean {
  return (name === 'authorization' || name === 'www-authenticate') && /^(ntlm|negotiate)\b/i.test(value);
}
