import type { Headers, ResponseFacts } from '#contracts/http-facts.js';
import type { HttpFault, Refusal } from './fault.js';
import { type Fields, type Framing, readFields } from './fields.js';
import { HeadReader, type RawHead } from './head.js';

/** A response as it is evaluated and forwarded. `headers`: the forwarded fields. */
export type ResponseHead = ResponseFacts & {
  readonly version: '1.0' | '1.1';
  readonly status: number;
  readonly reason: string;
  readonly framing: Framing;
  /** Whether the server accepts another request after this one. */
  readonly keepsAlive: boolean;
};

/** The facts of the request that a response answers. */
export type RequestOfResponse = { readonly method: string; readonly isWebSocket: boolean };

/**
 * Reads the heads of the responses of one connection (RFC 9112). Set `asked` before the bytes of its response
 * are pushed.
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

/** RFC 9112, 6.3. */
function framingOf(status: number, method: string, said: Fields['framing']): Framing {
  if (status < 200 || status === 204 || status === 304 || method === 'HEAD') return 0;
  return said ?? 'until_close';
}

function opensWebSocket({ upgrade, connection }: Fields): boolean {
  return upgrade.length === 1 && upgrade[0] === 'websocket' && connection.includes('upgrade');
}

function headersOf({ list, framing }: Fields, status: number): Headers {
  if (status === 101) return [...withoutLength(list), ['upgrade', 'websocket', 'Upgrade']];
  // RFC 9110, 8.6: these responses have no Content-Length; one sent by the server is removed.
  return framing !== null && (status < 200 || status === 204) ? withoutLength(list) : list;
}

function withoutLength(list: Headers): Headers {
  return list.filter(([name]) => name !== 'content-length');
}
