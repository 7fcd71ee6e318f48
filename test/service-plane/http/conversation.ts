import type { Header } from '#contracts/service-plane/http-facts.js';
import type { HttpFault } from '#service-plane/http/fault.js';
import { BodyReader } from '#service-plane/http/http1/body-reader.js';
import { chunked, lastChunk } from '#service-plane/http/http1/chunks.js';
import { type RequestHead, RequestHeadReader } from '#service-plane/http/http1/request-head.js';
import { writeRequestHead } from '#service-plane/http/http1/write-head.js';

/** A request that the service plane has read from a connection, with the body bytes that have arrived. */
export type Exchange = {
  readonly head: RequestHead;
  readonly body: string;
  readonly trailers: readonly Header[];
  readonly isComplete: boolean;
};

export type Conversation = { readonly exchanges: readonly Exchange[]; readonly fault: HttpFault | null };

/**
 * Parses the bytes that a client sends on a connection with the parsers of the service plane. Stops at a
 * fault, and after a request that upgrades or closes the connection.
 */
export function converse(pieces: readonly Buffer[]): Conversation {
  const heads = new RequestHeadReader();
  const exchanges: Exchange[] = [];
  let current: { readonly head: RequestHead; readonly reader: BodyReader; body: string } | null = null;
  let fault: HttpFault | null = null;

  const settle = (): void => {
    if (current === null) return;
    const { head, reader, body } = current;
    exchanges.push({ head, body, trailers: reader.trailers, isComplete: reader.isComplete });
    current = null;
  };

  for (const piece of pieces) {
    let at = 0;
    while (at < piece.length || current?.reader.isComplete === true) {
      if (current === null) {
        const last = exchanges.at(-1)?.head;
        if (last !== undefined && (last.isWebSocket || !last.keepsAlive)) return { exchanges, fault };
        const head = heads.push(piece, at);
        if (head === null) break;
        if ('fault' in head) return { exchanges, fault: head.fault };
        current = { head, reader: new BodyReader(head.framing, head.headers), body: '' };
        at = heads.end;
      } else if (current.reader.isComplete) {
        settle();
      } else {
        for (const slice of current.reader.push(piece, at)) current.body += slice.toString('latin1');
        at = current.reader.end;
        fault = current.reader.fault;
        if (fault !== null) break;
      }
    }
    if (fault !== null) break;
  }
  settle();
  return { exchanges, fault };
}

/** Returns the bytes that the service plane sends to the server for a complete request. */
export function passedOn({ head, body, trailers }: Exchange): Buffer {
  const written = Buffer.from(writeRequestHead(head, { closes: false }), 'latin1');
  const data = Buffer.from(body, 'latin1');
  if (head.framing !== 'chunked') return Buffer.concat([written, data]);
  return Buffer.concat([written, ...chunked([data]), lastChunk(trailers)]);
}
