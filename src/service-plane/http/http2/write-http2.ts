import type { Headers } from '#contracts/service-plane/http-facts.js';
import type { Http2Request } from './http2-request.js';
import type { Http2Response } from './http2-response.js';

/**
 * A header block for Node's HTTP/2 API: names with values, pseudo-headers first. The object has no prototype,
 * because a peer chooses the field names.
 */
export type Http2Lines = { [name: string]: string | string[] };

/** Returns the header block of a request. `:authority` replaces the Host field. */
export function writeHttp2Request({ method, authority, path, query, headers }: Http2Request): Http2Lines {
  const lines = Object.create(null) as Http2Lines;
  lines[':method'] = method;
  lines[':scheme'] = 'https';
  lines[':authority'] = authority;
  lines[':path'] = query === null ? path : `${path}?${query}`;
  for (const [name, value] of headers) if (name !== 'host') add(lines, name, value);
  return lines;
}

export function writeHttp2Response({ status, headers }: Http2Response): Http2Lines {
  const lines = Object.create(null) as Http2Lines;
  lines[':status'] = String(status);
  for (const [name, value] of headers) add(lines, name, value);
  return lines;
}

export function writeHttp2Trailers(trailers: Headers): Http2Lines {
  const lines = Object.create(null) as Http2Lines;
  for (const [name, value] of trailers) add(lines, name, value);
  return lines;
}

function add(lines: Http2Lines, name: string, value: string): void {
  const before = lines[name];
  lines[name] = before === undefined ? value : typeof before === 'string' ? [before, value] : [...before, value];
}
