import type { Header } from '#contracts/http-facts.js';
import type { Step } from '#policy/evaluate/connection-steps.js';
import { BodyReader } from '#service-plane/http/body-reader.js';
import { chunked, lastChunk } from '../http/chunks.js';
import type { RequestHead } from '../http/request-head.js';
import type { ResponseHead } from '../http/response-head.js';
import { mayTrail } from './exchange.js';

/** May be sent again where a server closed before it answered (RFC 9110, 9.2.2). */
const REPEATABLE: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

type Response = {
  readonly head: ResponseHead;
  readonly body: BodyReader;
  /** On its way to the client, which may know no chunks. */
  readonly framing: ResponseHead['framing'];
};

/** A request of HTTP/1.1 that was let pass, and its response. */
export class Http1Exchange {
  readonly body: BodyReader;
  /** The server has been told of it. */
  isSent = false;
  response: Response | null = null;
  /** Interim responses, or a part of a head, came. */
  isAnswered = false;
  mayRepeat: boolean;

  constructor(
    readonly request: RequestHead,
    readonly step: Step,
  ) {
    this.body = new BodyReader(request.framing, request.headers);
    this.mayRepeat = REPEATABLE.has(request.method) && request.framing === 0 && !request.isWebSocket;
  }

  /** Data of the request as they go on, with what ends it behind the last of them. */
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

  /** What ends a response whose data are through. */
  responseEnd({ framing, body }: Response): readonly Buffer[] {
    return framing === 'chunked' ? [lastChunk(mayTrail(this.step, 'response') ? body.trailers : [])] : [];
  }

  /** Whether its connection serves the client on behind a response of this framing. */
  keepsClient(framing: ResponseHead['framing']): boolean {
    return this.request.keepsAlive && framing !== 'until_close' && this.body.isComplete;
  }

  /** Whether a server takes the connection for the one who authenticated on it. */
  get bindsLink(): boolean {
    return this.request.headers.some(binds) || (this.response?.head.headers.some(binds) ?? false);
  }
}

function binds([name, value]: Header): boolean {
  return (name === 'authorization' || name === 'www-authenticate') && /^(ntlm|negotiate)\b/i.test(value);
}
