import type { Header, Headers } from '#contracts/service-plane/http-facts.js';
import type { Refusal } from '#service-plane/http/fault.js';
import { areAmbiguous, fieldAt } from '#service-plane/http/fields.js';
import { HeadReader, type RawHead } from './head.js';

const MAX_TRAILER_BYTES = 8192;

/**
 * Fields that must not be trailers (RFC 9110, 6.5.1): fields for framing, routing, authentication or content
 * description.
 */
const FORBIDDEN: ReadonlySet<string> = new Set([
  'age',
  'authorization',
  'cache-control',
  'connection',
  'content-encoding',
  'content-length',
  'content-range',
  'content-type',
  'cookie',
  'date',
  'expect',
  'expires',
  'host',
  'http2-settings',
  'keep-alive',
  'location',
  'max-forwards',
  'pragma',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'range',
  'retry-after',
  'set-cookie',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'vary',
  'warning',
  'www-authenticate',
]);

/**
 * Returns true if a field must not be a trailer. `_` in the name counts as `-`, because gateways such as CGI
 * replace `-` by `_`.
 */
export function isForbiddenTrailer(name: string): boolean {
  const folded = name.includes('_') ? name.replaceAll('_', '-') : name;
  return FORBIDDEN.has(folded) || folded.startsWith('if-');
}

/** Returns true if two names in `head` and `trailers` differ only in `_` and `-`. */
export function areAmbiguousBehind(head: Headers, trailers: Headers): boolean {
  return areAmbiguous([...head, ...trailers].map(([name]) => name));
}

/**
 * Reads the trailer section after the last chunk, by the same rules as a head. `head`: the fields of the
 * request; a trailer name that differs from one of these field names only in `_` and `-` is a fault. For a
 * response, `head` is empty.
 */
export class TrailerReader extends HeadReader<Headers> {
  constructor(private readonly head: Headers) {
    super('trailers', MAX_TRAILER_BYTES);
  }

  protected finish(head: RawHead): Headers | Refusal {
    const trailers: Header[] = [];
    for (let index = 0; index < head.lines.marks.length; index += 3) {
      const field = fieldAt(head, index);
      if (isForbiddenTrailer(field[0])) return { fault: 'forbidden_trailer' };
      trailers.push(field);
    }
    return areAmbiguousBehind(this.head, trailers) ? { fault: 'ambiguous_names' } : trailers;
  }
}
