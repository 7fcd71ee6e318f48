import type { Header, RequestFacts } from '#contracts/service-plane/http-facts.js';
import { readAuthority } from '#service-plane/http/authority.js';
import type { HttpFault, Refusal } from '#service-plane/http/fault.js';
import { areAmbiguous, readLength } from '#service-plane/http/fields.js';
import { methodFault } from '#service-plane/http/http1/request-head.js';
import { readTarget } from '#service-plane/http/target.js';
import { type Block, readHttp2Block, valuesOf, withSingletons } from './http2-fields.js';

/**
 * An HTTP/2 request as the service plane evaluates and forwards it. `headers`: the forwarded fields, with a
 * Host field equal to `:authority`, and with one cookie field that contains all cookies (RFC 9113, 8.2.3).
 */
export type Http2Request = RequestFacts & {
  /** The value of `:authority`, or the value of the Host field if there is no `:authority`. */
  readonly authority: string;
  readonly port: number | null;
  /** The value of the content-length field; null if there is no such field. */
  readonly length: number | null;
  readonly expectsContinue: boolean;
};

const PSEUDO: ReadonlySet<string> = new Set([':method', ':scheme', ':authority', ':path']);

/**
 * Reads the header block of an HTTP/2 request (RFC 9113, 8.3). `raw` contains names and values alternately,
 * in the order received.
 */
export function readHttp2Request(raw: readonly string[]): Http2Request | Refusal {
  const request = readBlock(raw);
  return typeof request === 'string' ? { fault: request } : request;
}

function readBlock(raw: readonly string[]): Http2Request | HttpFault {
  const block = readHttp2Block(raw, PSEUDO);
  return typeof block === 'string' ? block : understood(block);
}

function understood({ pseudo, fields }: Block): Http2Request | HttpFault {
  const method = pseudo[':method'];
  const path = pseudo[':path'];
  if (method === undefined) return 'pseudo_header';
  const fault = methodFault(method);
  if (fault !== null) return fault;
  if (path === undefined || pseudo[':scheme'] !== 'https') return 'pseudo_header';
  if (areAmbiguous(fields.map(([name]) => name))) return 'ambiguous_names';
  const said = blockFactsOf(fields);
  const { host, length: digits } = said;
  if (host === 'repeated') return 'two_hosts';
  const text = pseudo[':authority'] ?? host?.value;
  if (text === undefined) return 'no_host';
  // RFC 9113, 8.3.1: if a request has both `:authority` and Host, their values must be equal.
  if (host !== null && host.value.toLowerCase() !== text.toLowerCase()) return 'two_hosts';
  const authority = readAuthority(text);
  if (typeof authority === 'string') return authority;
  if (!path.startsWith('/') && path !== '*') return 'target';
  const target = readTarget(path, method, text);
  if (typeof target === 'string') return target;
  if (digits === 'repeated') return 'repeated_content_length';
  const length = digits === null ? null : readLength(digits.value);
  if (digits !== null && length === null) return 'content_length';
  if (said.expectsElse) return 'expectation';
  return {
    method,
    host: authority.host,
    ...target,
    headers: [['host', text], ...withSingletons(said.crumbs > 1 ? withOneCookie(said.others) : said.others)],
    authority: text,
    port: authority.port,
    length,
    expectsContinue: said.expectsContinue,
  };
}

/** The value of a field that may occur only once; null if the field is missing. */
type Once = { readonly value: string } | 'repeated' | null;

type BlockFacts = {
  host: Once;
  length: Once;
  expectsContinue: boolean;
  /** True if an Expect field has a value other than `100-continue`. */
  expectsElse: boolean;
  crumbs: number;
  /** All fields except Host and Expect. */
  readonly others: Header[];
};

function blockFactsOf(fields: readonly Header[]): BlockFacts {
  const said: BlockFacts = {
    host: null,
    length: null,
    expectsContinue: false,
    expectsElse: false,
    crumbs: 0,
    others: [],
  };
  for (const field of fields) {
    const [name, value] = field;
    if (name === 'host') said.host = said.host === null ? { value } : 'repeated';
    else if (name === 'expect') {
      said.expectsContinue = true;
      if (value.toLowerCase() !== '100-continue') said.expectsElse = true;
    } else {
      if (name === 'content-length') said.length = said.length === null ? { value } : 'repeated';
      else if (name === 'cookie') said.crumbs++;
      said.others.push(field);
    }
  }
  return said;
}

/** Joins all cookie fields into one cookie field (RFC 9113, 8.2.3). */
function withOneCookie(headers: readonly Header[]): readonly Header[] {
  const cookie = valuesOf(headers, 'cookie').join('; ');
  return [...headers.filter(([name]) => name !== 'cookie'), ['cookie', cookie]];
}
