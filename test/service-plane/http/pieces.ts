import type { Refusal } from '#service-plane/http/fault.js';
import { type RequestHead, RequestHeadReader } from '#service-plane/http/http1/request-head.js';
import {
  type RequestOfResponse,
  type ResponseHead,
  ResponseHeadReader,
} from '#service-plane/http/http1/response-head.js';

export const bytesOf = (text: string): Buffer => Buffer.from(text, 'latin1');

/**
 * The result of a new reader for some bytes. `end` is the number of bytes that the reader has used for the
 * result.
 */
export type Read<Head> = { readonly result: Head | Refusal | null; readonly end: number };

type Reader<Head> = { push(chunk: Buffer, from?: number): Head | Refusal | null; readonly end: number };

/**
 * Pushes `pieces` into `reader` until the reader returns a result. `end` counts from the start of the first
 * piece, and is 0 for a fault.
 */
function readPieces<Head>(reader: Reader<Head>, pieces: readonly Buffer[]): Read<Head> {
  let before = 0;
  for (const piece of pieces) {
    const result = reader.push(piece);
    if (result !== null) return { result, end: isRefusal(result) ? 0 : before + reader.end };
    before += piece.length;
  }
  return { result: null, end: 0 };
}

function isRefusal(result: unknown): result is Refusal {
  return typeof result === 'object' && result !== null && 'fault' in result;
}

export const readRequest = (...pieces: readonly Buffer[]): Read<RequestHead> =>
  readPieces(new RequestHeadReader(), pieces);

export function readResponse(asked: RequestOfResponse, ...pieces: readonly Buffer[]): Read<ResponseHead> {
  const reader = new ResponseHeadReader();
  reader.asked = asked;
  return readPieces(reader, pieces);
}

/** Yields every division of the bytes into two chunks, and the division into single bytes. */
export function* cutsOf(bytes: Buffer): Generator<readonly Buffer[]> {
  for (let at = 0; at <= bytes.length; at++) yield [bytes.subarray(0, at), bytes.subarray(at)];
  yield Array.from(bytes, (octet) => Buffer.of(octet));
}
