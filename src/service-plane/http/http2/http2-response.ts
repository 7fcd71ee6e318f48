import type { ResponseFacts } from '#contracts/service-plane/http-facts.js';
import type { HttpFault, Refusal } from '#service-plane/http/fault.js';
import { readLength } from '#service-plane/http/fields.js';
import { readHttp2Block, withSingletons } from './http2-fields.js';

/**
 * A final or interim HTTP/2 response as the service plane evaluates and forwards it. `headers`: the forwarded
 * fields.
 */
export type Http2Response = ResponseFacts & { readonly status: number };

const PSEUDO: ReadonlySet<string> = new Set([':status']);

/**
 * Reads the header block of an HTTP/2 response (RFC 9113, 8.3.2). `raw` contains names and values
 * alternately, in the order received.
 */
export function readHttp2Response(raw: readonly string[]): Http2Response | Refusal {
  const response = readResponse(raw);
  return typeof response === 'string' ? { fault: response } : response;
}

function readResponse(raw: readonly string[]): Http2Response | HttpFault {
  const block = readHttp2Block(raw, PSEUDO);
  if (typeof block === 'string') return block;
  const digits = block.pseudo[':status'];
  if (digits === undefined) return 'pseudo_header';
  // RFC 9113, 8.6: HTTP/2 does not use the status 101, because it has no protocol upgrade.
  if (!/^[1-5][0-9]{2}$/.test(digits) || digits === '101') return 'status_line';
  let length: string | null = null;
  let hasHost = false;
  for (const [name, value] of block.fields) {
    if (name === 'host') {
      if (hasHost) return 'two_hosts';
      hasHost = true;
    } else if (name === 'content-length') {
      if (length !== null) return 'repeated_content_length';
      length = value;
    }
  }
  if (length !== null && readLength(length) === null) return 'content_length';
  const status = Number(digits);
  // RFC 9110, 8.6: a response with status 1xx or 204 must not have a Content-Length field. If the server sent
  // this field, remove it.
  const fields =
    length !== null && (status < 200 || status === 204)
      ? block.fields.filter(([name]) => name !== 'content-length')
      : block.fields;
  return { status, headers: withSingletons(fields) };
}
