import { itemAt } from '#arrays/read.js';
import type { Headers } from '#contracts/service-plane/http-facts.js';
import type { Framing } from '#service-plane/http/fields.js';
import type { RequestHead } from './request-head.js';
import type { ResponseHead } from './response-head.js';

/** Options for the message to write. `closes`: the sender closes the connection after it. */
export type Outgoing = { readonly closes: boolean };

/** Returns the text of a request head, with the Host field first. The caller must send the text in latin1. */
export function writeRequestHead(request: RequestHead, { closes }: Outgoing): string {
  const { method, path, query, authority, headers, framing, isWebSocket } = request;
  const target = query === null ? path : `${path}?${query}`;
  let text = `${method} ${target} HTTP/1.1\r\nHost: ${authority}\r\n`;
  for (let index = 0; index < headers.length; index++) {
    const field = itemAt(headers, index);
    if (field[0] !== 'host') text += `${field[2] ?? field[0]}: ${field[1]}\r\n`;
  }
  return `${text}${framed(framing)}${connection(closes, isWebSocket, headers)}\r\n`;
}

/**
 * Returns the text of a response head. The caller must send the text in latin1. `framing`: how the client
 * finds the end of the body. For a chunked body and an HTTP/1.0 client, `framing` is `until_close`.
 */
export function writeResponseHead(response: ResponseHead, framing: Framing, { closes }: Outgoing): string {
  const { status, reason, headers } = response;
  let text = `HTTP/1.1 ${status} ${reason}\r\n`;
  for (let index = 0; index < headers.length; index++) {
    const field = itemAt(headers, index);
    text += `${field[2] ?? field[0]}: ${field[1]}\r\n`;
  }
  const interim = status < 200 && status !== 101;
  return `${text}${framed(framing)}${interim ? '' : connection(closes, status === 101, headers)}\r\n`;
}

function framed(framing: Framing): string {
  return framing === 'chunked' ? 'Transfer-Encoding: chunked\r\n' : '';
}

function connection(closes: boolean, upgrades: boolean, headers: Headers): string {
  if (upgrades) return 'Connection: Upgrade\r\n';
  const te = headers.some(([name]) => name === 'te') ? 'TE' : '';
  if (closes) return te === '' ? 'Connection: close\r\n' : 'Connection: close, TE\r\n';
  return te === '' ? '' : 'Connection: TE\r\n';
}
