import type { ClientHttp2Session, ClientHttp2Stream, OutgoingHttpHeaders } from 'node:http2';
import { SERVER_NAME } from '#test/service-plane/certificates.js';

/** The response to a request. `code`: the error code with which the stream was closed. */
export type Answer = {
  readonly status: number | null;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: string;
  readonly trailers: Readonly<Record<string, unknown>>;
  readonly interim: readonly number[];
  readonly code: number;
  readonly isWhole: boolean;
};

export function open(
  client: ClientHttp2Session,
  headers: OutgoingHttpHeaders,
  options: { readonly endStream?: boolean; readonly waitForTrailers?: boolean } = {},
): ClientHttp2Stream {
  return client.request({ ':authority': SERVER_NAME, ...headers }, options);
}

/** Resolves with the response when the stream is closed. */
export function answerOf(stream: ClientHttp2Stream): Promise<Answer> {
  let status: number | null = null;
  let headers: Record<string, unknown> = {};
  let trailers: Record<string, unknown> = {};
  const interim: number[] = [];
  const chunks: Buffer[] = [];
  let ended = false;
  stream.on('error', () => {});
  stream.on('headers', (its) => interim.push(Number(its[':status'])));
  stream.on('response', (its) => {
    status = Number(its[':status']);
    headers = Object.fromEntries(Object.entries(its));
  });
  stream.on('trailers', (its) => {
    trailers = Object.fromEntries(Object.entries(its));
  });
  stream.on('data', (chunk: Buffer) => chunks.push(chunk));
  stream.on('end', () => {
    ended = true;
  });
  return new Promise((resolve) => {
    stream.once('close', () => {
      const body = Buffer.concat(chunks).toString();
      const { rstCode: code } = stream;
      resolve({ status, headers, body, trailers, interim, code, isWhole: ended && code === 0 });
    });
  });
}

export function fetch(
  client: ClientHttp2Session,
  headers: OutgoingHttpHeaders = { ':path': '/' },
  body?: string | Buffer,
): Promise<Answer> {
  const stream = open(client, headers, { endStream: body === undefined });
  const answer = answerOf(stream);
  if (body !== undefined) stream.end(body);
  return answer;
}
