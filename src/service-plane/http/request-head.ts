import type { Header, Headers, RequestFacts } from '#contracts/http-facts.js';
import { type Authority, readAuthority } from './authority.js';
import type { HttpFault, Refusal } from './fault.js';
import { type Fields, type Framing, readFields } from './fields.js';
import { HeadReader, type RawHead } from './head.js';
import { readTarget } from './target.js';

/** A request as it is evaluated and forwarded. `headers`: the forwarded fields. */
export type RequestHead = RequestFacts & {
  readonly version: '1.0' | '1.1';
  /** The Host field as received. */
  readonly authority: string;
  /** The port of the Host field; null: none. */
  readonly port: number | null;
  readonly framing: Exclude<Framing, 'until_close'>;
  /** Whether this is an upgrade by RFC 6455, 4.2.1; other upgrades are removed. */
  readonly isWebSocket: boolean;
  /**
   * Whether the client waits for a 100 before it sends the body (RFC 9110, 10.1.1); the Expect field is
   * removed.
   */
  readonly expectsContinue: boolean;
  /** Whether the client may send another request after this one. */
  readonly keepsAlive: boolean;
};

/** Reads the heads of the requests of one connection (RFC 9112), more strictly than the RFC requires. */
export class RequestHeadReader extends HeadReader<RequestHead> {
  /** A cache: the requests of a connection usually have one host. */
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

/** Registered methods have no lower-case letters, and a rule cannot name a method that has them. */
export function methodFault(method: string): HttpFault | null {
  if (method === 'GET' || method === 'POST') return null;
  if (!/^[!#$%&'*+\-.^_`|~0-9A-Z]{1,32}$/.test(method)) return 'method';
  return method === 'CONNECT' || method === 'TRACE' || method === 'PRI' ? 'refused_method' : null;
}

/** Adds the hop-by-hop fields that are forwarded; they are evaluated like the rest. */
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
