import type { Headers, ResponseFacts } from '#contracts/service-plane/http-facts.js';
import type { HttpFault, Refusal } from '#service-plane/http/fault.js';
import { type Fields, type Framing, readFields } from '#service-plane/http/fields.js';
import { HeadReader, type RawHead } from './head.js';

/**
 * An HTTP/1.1 response head as the service plane evaluates and forwards it. `headers`: the forwarded fields.
 */
export type ResponseHead = ResponseFacts & {
  readonly version: '1.0' | '1.1';
  readonly status: number;
  readonly reason: string;
  readonly framing: Framing;
  /** True if the server accepts another request on the connection after this response. */
  readonly keepsAlive: boolean;
};

/** The values of a request that the reader needs to read the response to this request. */
export type RequestOfResponse = { readonly method: string; readonly isWebSocket: boolean };

/**
 * Reads the response heads of one HTTP/1.1 connection (RFC 9112). The caller must set `asked` to the values
 * of a request before it pushes the bytes of the response to this request.
 */
export class ResponseHeadReader extends HeadReader<ResponseHead> {
  asked: RequestOfResponse = { method: 'GET', isWebSocket: false };

  constructor() {
    super('response');
  }

  protected finish(head: RawHead): ResponseHead | Refusal {
    const response = readResponse(head, this.asked);
    return typeof response === 'string' ? { fault: response } : response;
  }
}

function readResponse(head: RawHead, asked: RequestOfResponse): ResponseHead | HttpFault {
  const { text, base, lines } = head;
  const line = text.slice(lines.start - base, lines.startEnd - base);
  const match = /^HTTP\/([0-9])\.([0-9]) ([1-5][0-9]{2})(?: (.*))?$/s.exec(line);
  if (match === null) return 'status_line';
  const [, major, minor, digits, reason = ''] = match;
  if (major !== '1' || (minor !== '0' && minor !== '1')) return 'version';
  const status = Number(digits);
  const fields = readFields(head, 'response');
  if (typeof fields === 'string') return fields;
  if (minor === '0' && fields.framing === 'chunked') return 'transfer_encoding';
  const opens = status === 101;
  if (opens && !(asked.isWebSocket && minor === '1' && opensWebSocket(fields))) return 'unasked_upgrade';
  const framing = framingOf(status, asked.method, fields.framing);
  return {
    version: minor === '1' ? '1.1' : '1.0',
    status,
    reason,
    headers: headersOf(fields, status),
    framing,
    keepsAlive: minor === '1' && framing !== 'until_close' && !fields.connection.includes('close'),
  };
}

/** Returns how the end of a response body is determined (RFC 9112, 6.3). */
function framingOf(status: number, method: string, said: Fields['framing']): Framing {
  if (status < 200 || status === 204 || status === 304 || method === 'HEAD') return 0;
  return said ?? 'until_close';
}

function opensWebSocket({ upgrade, connection }: Fields): boolean {
  return upgrade.length === 1 && upgrade[0] === 'websocket' && connection.includes('upgrade');
}

function headersOf({ list, framing }: Fields, status: number): Headers {
  if (status === 101) return [...withoutLength(list), ['upgrade', 'websocket', 'Upgrade']];
  // RFC 9110, 8.6: a response with status 1xx or 204 must not have a Content-Length field. If the server sent
  // this field, remove it.
  return framing !== null && (status < 200 || status === 204) ? withoutLength(list) : list;
}

function withoutLength(list: Headers): Headers {
  return list.filter(([name]) => name !== 'content-length');
}
