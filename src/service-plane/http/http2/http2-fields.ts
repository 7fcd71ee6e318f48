import type { Header, Headers } from '#contracts/service-plane/http-facts.js';
import type { HttpFault, Refusal } from '#service-plane/http/fault.js';
import { areAmbiguousBehind, isForbiddenTrailer } from '#service-plane/http/http1/trailers.js';
import { isFieldValue, isLowerToken } from '#service-plane/http/octets.js';

/** The connection-specific fields. HTTP/2 forbids these fields (RFC 9113, 8.2.2). */
const OF_CONNECTION: ReadonlySet<string> = new Set([
  'connection',
  'http2-settings',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
]);

/**
 * An HTTP/2 header block. A pseudo-header occurs at most once. The other fields are in the order received.
 */
export type Block = { readonly pseudo: Readonly<Pseudo>; readonly fields: readonly Header[] };
type Pseudo = Record<':method' | ':scheme' | ':authority' | ':path' | ':status', string | undefined>;
const NO_PSEUDO: Readonly<Pseudo> = {
  ':method': undefined,
  ':scheme': undefined,
  ':authority': undefined,
  ':path': undefined,
  ':status': undefined,
};

/**
 * Reads an HTTP/2 header block (RFC 9113, 8.2 and 8.3). `raw` contains names and values alternately; `known`
 * contains the permitted pseudo-headers.
 */
export function readHttp2Block(raw: readonly string[], known: ReadonlySet<string>): Block | HttpFault {
  const pseudo: Pseudo = { ...NO_PSEUDO };
  const fields: Header[] = [];
  for (let index = 0; index < raw.length; index += 2) {
    const name = raw[index] ?? '';
    const value = raw[index + 1] ?? '';
    if (value !== '' && !isFieldValue(value)) return value.includes('\0') ? 'nul' : 'control_character';
    if (name.startsWith(':')) {
      if (fields.length > 0 || !known.has(name) || pseudo[name as keyof Pseudo] !== undefined) return 'pseudo_header';
      pseudo[name as keyof Pseudo] = value;
    } else {
      if (!isLowerToken(name)) return 'field_name';
      if (OF_CONNECTION.has(name) || (name === 'te' && value !== 'trailers')) return 'connection_field';
      fields.push([name, value]);
    }
  }
  return { pseudo, fields };
}

const NONE: ReadonlySet<string> = new Set();

/**
 * Reads the trailers of an HTTP/2 request or response (RFC 9113, 8.1). `head`: the fields of the request; a
 * trailer name that differs from one of these field names only in `_` and `-` is a fault. For a response,
 * `head` is empty.
 */
export function readHttp2Trailers(raw: readonly string[], head: Headers): Headers | Refusal {
  const block = readHttp2Block(raw, NONE);
  if (typeof block === 'string') return { fault: block };
  if (areAmbiguousBehind(head, block.fields)) return { fault: 'ambiguous_names' };
  return block.fields.some(([name]) => isForbiddenTrailer(name))
    ? { fault: 'forbidden_trailer' }
    : withSingletons(block.fields);
}

export function valuesOf(headers: Headers, name: string): readonly string[] {
  return headers.filter((header) => header[0] === name).map((header) => header[1]);
}

/**
 * Fields that Node's HTTP/2 API can send only once per message. Host and Content-Length are not in the set,
 * because a message that repeats them is refused.
 */
const SINGLETONS: ReadonlySet<string> = new Set([
  'access-control-allow-credentials',
  'access-control-max-age',
  'access-control-request-method',
  'age',
  'authorization',
  'content-encoding',
  'content-language',
  'content-location',
  'content-md5',
  'content-range',
  'content-type',
  'date',
  'dnt',
  'etag',
  'expires',
  'from',
  'if-match',
  'if-modified-since',
  'if-none-match',
  'if-range',
  'if-unmodified-since',
  'last-modified',
  'location',
  'max-forwards',
  'proxy-authorization',
  'range',
  'referer',
  'retry-after',
  'te',
  'tk',
  'upgrade-insecure-requests',
  'user-agent',
  'x-content-type-options',
]);

/**
 * Joins the different values of a repeated singleton field into one list (RFC 9110, 5.3), at the position of
 * its first value. Node would otherwise refuse to send the repeated field.
 */
export function withSingletons(fields: readonly Header[]): readonly Header[] {
  if (!fields.some(([name], index) => SINGLETONS.has(name) && hasFieldBefore(fields, name, index))) return fields;
  const once: Header[] = [];
  for (const [index, field] of fields.entries()) {
    const [name] = field;
    if (!SINGLETONS.has(name)) once.push(field);
    else if (!hasFieldBefore(fields, name, index)) once.push([name, [...new Set(valuesOf(fields, name))].join(', ')]);
  }
  return once;
}

/** Returns true if `fields` contains a field with this name before index `end`. */
function hasFieldBefore(fields: readonly Header[], name: string, end: number): boolean {
  for (let index = 0; index < end; index++) if (fields[index]?.[0] === name) return true;
  return false;
}
