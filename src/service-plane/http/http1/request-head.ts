import type { Header, Headers, RequestFacts } from '#contracts/service-plane/http-facts.js';
import { type Authority, readAuthority } from '#service-plane/http/authority.js';
import type { HttpFault, Refusal } from '#service-plane/http/fault.js';
import { type Fields, type Framing, readFields } from '#service-plane/http/fields.js';
import { readTarget } from '#service-plane/http/target.js';
import { HeadReader, type RawHead } from './head.js';

/**
 * An HTTP/1.1 request head as the service plane evaluates and forwards it. `headers`: the forwarded fields.
 */
export type RequestHead = RequestFacts & {
  readonly version: '1.0' | '1.1';
  /** The value of the Host field as received. */
  readonly authority: string;
  /** The port in the Host field; null if the Host field contains no port. */
  readonly port: number | null;
  readonly framing: Exclude<Framing, 'until_close'>;
  /**
   * True for a valid upgrade to WebSocket (RFC 6455, 4.2.1). Requests for other upgrades are forwarded
   * without the Upgrade field.
   */
  readonly isWebSocket: boolean;
  /**
   * True if the client waits for a response with status 100 before it sends the body (RFC 9110, 10.1.1). The
   * Expect field is not forwarded.
   */
  readonly expectsContinue: boolean;
  /** True if the client may send another request on the connection after this request. */
  readonly keepsAlive: boolean;
};

/**
 * Reads the request heads of one HTTP/1.1 connection. The reader rejects some heads that RFC 9112 permits,
 * because servers could read them differently.
 */
export class RequestHeadReader extends HeadReader<RequestHead> {
  /**
   * The last Host value and its parsed form, as a cache: the requests of a connection usually have the same
   * Host value.
   */
  #authorityText = '';
  #authority: Authority | null = null;

  constructor() {
    super('request');
  }

  protected finish(head: RawHead): RequestHead | Refusal {
    const request = this.#request(head);
    return typeof request === 'string' ? { fault: request } : request;
  }

  #request(head: RawHead): RequestHead | HttpFault {
    const { text, base, lines } = head;
    const line = text.slice(lines.start - base, lines.startEnd - base);
    const methodEnd = line.indexOf(' ');
    const targetEnd = line.length - ' HTTP/1.1'.length;
    if (methodEnd === -1 || targetEnd <= methodEnd) return 'request_line';
    const minor = minorOf(line, targetEnd);
    if (typeof minor === 'string') return minor;
    const method = line.slice(0, methodEnd);
    const fault = methodFault(method);
    if (fault !== null) return fault;
    const fields = readFields(head, 'request');
    if (typeof fields === 'string') return fields;
    if (minor === 0 && fields.framing === 'chunked') return 'transfer_encoding';
    const authority = this.#host(fields);
    if (typeof authority === 'string') return authority;
    const target = readTarget(line.slice(methodEnd + 1, targetEnd), method, this.#authorityText);
    if (typeof target === 'string') return target;
    if (fields.expect.some((expectation) => expectation !== '100-continue')) return 'expectation';
    const isWebSocket = minor === 1 && upgradesToWebSocket(method, fields);
    return {
      method,
      host: authority.host,
      path: target.path,
      query: target.query,
      headers: headersOf(fields, isWebSocket),
      version: minor === 1 ? '1.1' : '1.0',
      authority: this.#authorityText,
      port: authority.port,
      framing: fields.framing ?? 0,
      isWebSocket,
      expectsContinue: minor === 1 && fields.expect.length > 0 && (fields.framing ?? 0) !== 0,
      keepsAlive: minor === 1 && !fields.connection.includes('close'),
    };
  }

  #host({ hosts }: Fields): Authority | HttpFault {
    const [text] = hosts;
    if (text === undefined) return 'no_host';
    if (hosts.length > 1) return 'two_hosts';
    if (this.#authority !== null && text === this.#authorityText) return this.#authority;
    const authority = readAuthority(text);
    if (typeof authority === 'string') return authority;
    this.#authorityText = text;
    this.#authority = authority;
    return authority;
  }
}

function minorOf(line: string, at: number): 0 | 1 | HttpFault {
  if (line.endsWith(' HTTP/1.1')) return 1;
  if (line.endsWith(' HTTP/1.0')) return 0;
  return /^ HTTP\/[0-9]\.[0-9]$/.test(line.slice(at)) ? 'version' : 'request_line';
}

/**
 * Returns a fault for methods with lower-case letters: no registered method has lower-case letters, and no
 * rule can name such a method. Also returns a fault for CONNECT, TRACE and PRI, and for methods longer than
 * 32 characters.
 */
export function methodFault(method: string): HttpFault | null {
  if (method === 'GET' || method === 'POST') return null;
  if (!/^[!#$%&'*+\-.^_`|~0-9A-Z]{1,32}$/.test(method)) return 'method';
  return method === 'CONNECT' || method === 'TRACE' || method === 'PRI' ? 'refused_method' : null;
}

/**
 * Returns the forwarded fields, including the hop-by-hop fields Upgrade and TE, so that rules can also match
 * Upgrade and TE.
 */
function headersOf({ list, te }: Fields, isWebSocket: boolean): Headers {
  if (!isWebSocket && te.length === 0) return list;
  const more: Header[] = [];
  if (isWebSocket) more.push(['upgrade', 'websocket', 'Upgrade']);
  if (te.includes('trailers')) more.push(['te', 'trailers', 'TE']);
  return [...list, ...more];
}

function upgradesToWebSocket(method: string, { list, connection, upgrade, framing }: Fields): boolean {
  if (!upgrade.includes('websocket') || !connection.includes('upgrade')) return false;
  if (method !== 'GET' || (framing ?? 0) !== 0) return false;
  const keys = list.filter(([name]) => name === 'sec-websocket-key');
  const versions = list.filter(([name]) => name === 'sec-websocket-version');
  const [key] = keys;
  return (
    keys.length === 1 &&
    versions.length === 1 &&
    versions[0]?.[1] === '13' &&
    key !== undefined &&
    /^[A-Za-z0-9+/]{21}[AQgw]==$/.test(key[1])
  );
}
