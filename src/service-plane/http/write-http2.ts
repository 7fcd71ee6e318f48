import type { Headers } from '#policy/http-facts.js';
import type { Http2Request } from './http2-request.js';
import type { Http2Response } from './http2-response.js';

/** Names with their values, pseudo-headers first; without a prototype, as a field may have any name. */
export type Http2Lines = { [name: string]: string | string[] };

/** The header block of a request, made from the model. Its `:authority` says what a Host field would. */
export function writeHttp2Request({ method, authority, path, query, headers }: Http2Request): Http2Lines {
  const target = query === null ? path : `${path}?${query}`;
  const pseudo = { ':method': method, ':scheme': 'https', ':authority': authority, ':path': target };
  return linesOf(
    headers.filter(([name]) => name !== 'host'),
    pseudo,
  );
}

/** The header block of a response, made from the model. */
export function writeHttp2Response({ status, headers }: Http2Response): Http2Lines {
  return linesOf(headers, { ':status': String(status) });
}

export function writeHttp2Trailers(trailers: Headers): Http2Lines {
  return linesOf(trailers, {});
}

function linesOf(headers: Headers, pseudo: Readonly<Record<string, string>>): Http2Lines {
  const lines: Http2Lines = Object.assign(Object.create(null) as Http2Lines, pseudo);
  for (const [name, value] of headers) {
    const before = lines[name];
    lines[name] = before === undefined ? value : typeof before === 'string' ? [before, value] : [...before, value];
  }
  return lines;
}
