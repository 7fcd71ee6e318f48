import type { Header, RequestFacts } from '#policy/http-facts.js';
import { readAuthority } from './authority.js';
import type { HttpFault, Refusal } from './fault.js';
import { readLength } from './fields.js';
import { type Block, readHttp2Block, valuesOf, withSingletons } from './http2-fields.js';
import { methodFault } from './request-head.js';
import { readTarget } from './target.js';

/**
 * A request of HTTP/2 as it is judged, and as it is sent on: `headers` are those that go on, with a Host field that says
 * what `:authority` does, and the crumbs of a cookie in one (RFC 9113, 8.2.3).
 */
export type Http2Request = RequestFacts & {
  /** The `:authority`, or the Host field where that is all there is. */
  readonly authority: string;
  readonly port: number | null;
  /** What the request says of its body; null: nothing. */
  readonly length: number | null;
  readonly expectsContinue: boolean;
};

const PSEUDO: ReadonlySet<string> = new Set([':method', ':scheme', ':authority', ':path']);

/** Reads a header block of HTTP/2 (RFC 9113, 8.3): names and values in turn, in the order in which they came. */
export function readHttp2Request(raw: readonly string[]): Http2Request | Refusal {
  const request = readBlock(raw);
  return typeof request === 'string' ? { fault: request } : request;
}

function readBlock(raw: readonly string[]): Http2Request | HttpFault {
  const block = readHttp2Block(raw, PSEUDO);
  return typeof block === 'string' ? block : understood(block);
}

function understood({ pseudo, fields: all }: Block): Http2Request | HttpFault {
  const method = pseudo.get(':method');
  const path = pseudo.get(':path');
  if (method === undefined) return 'pseudo_header';
  const fault = methodFault(method);
  if (fault !== null) return fault;
  if (path === undefined || pseudo.get(':scheme') !== 'https') return 'pseudo_header';
  const text = authorityText(pseudo.get(':authority'), valuesOf(all, 'host'));
  if ('fault' in text) return text.fault;
  const authority = readAuthority(text.authority);
  if (typeof authority === 'string') return authority;
  if (!path.startsWith('/') && path !== '*') return 'target';
  const target = readTarget(path, method, text.authority);
  if (typeof target === 'string') return target;
  const lengths = valuesOf(all, 'content-length');
  if (lengths.length > 1) return 'repeated_content_length';
  const length = lengths[0] === undefined ? null : readLength(lengths[0]);
  if (lengths.length === 1 && length === null) return 'content_length';
  const expectations = valuesOf(all, 'expect').map((value) => value.toLowerCase());
  if (expectations.some((expectation) => expectation !== '100-continue')) return 'expectation';
  return {
    method,
    host: authority.host,
    ...target,
    headers: [
      ['host', text.authority],
      ...withSingletons(withOneCookie(all.filter(([name]) => name !== 'host' && name !== 'expect'))),
    ],
    authority: text.authority,
    port: authority.port,
    length,
    expectsContinue: expectations.length > 0,
  };
}

/** RFC 9113, 8.3.1: they name the same, if both are there. */
function authorityText(
  authority: string | undefined,
  hosts: readonly string[],
): { readonly authority: string } | Refusal {
  if (hosts.length > 1) return { fault: 'two_hosts' };
  const [host] = hosts;
  const text = authority ?? host;
  if (text === undefined) return { fault: 'no_host' };
  const same = host === undefined || host.toLowerCase() === text.toLowerCase();
  return same ? { authority: text } : { fault: 'two_hosts' };
}

function withOneCookie(headers: readonly Header[]): readonly Header[] {
  const crumbs = valuesOf(headers, 'cookie');
  if (crumbs.length < 2) return headers;
  return [...headers.filter(([name]) => name !== 'cookie'), ['cookie', crumbs.join('; ')]];
}
