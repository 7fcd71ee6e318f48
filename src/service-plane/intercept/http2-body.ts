import { constants, type Http2Stream, type IncomingHttpHeaders, sensitiveHeaders } from 'node:http2';
import type { Headers } from '#contracts/http-facts.js';
import type { HttpFault } from '../http/fault.js';
import { readHttp2Trailers } from '../http/http2-fields.js';
import { type Http2Lines, writeHttp2Trailers } from '../http/write-http2.js';

/** What comes behind a head: nothing, a body, or a body with what may stand behind it. */
export type Following = { readonly endStream: boolean; readonly waitForTrailers: boolean };

export type Http2BodyPorts = {
  /** The fields of a request, with which its trailers are compared; none of a response. */
  readonly head: Headers;
  /** Whether trailers go on. */
  readonly trails: boolean;
  /** Sends the head; null where it goes nowhere any more. */
  open(following: Following): Http2Stream | null;
  moved(): void;
  /** The trailers cannot be read. */
  broken(fault: HttpFault): void;
  /** All of it has been handed over. */
  over(): void;
};

/** A body goes on with its head if it is no longer than this, and comes within one turn of the loop. */
const JOINED = 16_384;

/**
 * A body of one stream and its trailers, on their way to another, which is sent no more than it takes. The head waits for what
 * comes in the same turn: a body that is whole by then is told its end with its last frame, where one that may still have
 * trailers ends in a frame, a record of TLS and a system call of its own.
 */
export class Http2Body {
  #to: Http2Stream | null = null;
  #held: Buffer[] = [];
  #heldBytes = 0;
  #trailers: Http2Lines | null = null;
  #isWhole = false;
  /** It goes nowhere. */
  #isLost = false;
  readonly #turn: NodeJS.Immediate;

  constructor(
    private readonly from: Http2Stream,
    private readonly ports: Http2BodyPorts,
  ) {
    from.on('data', (chunk: Buffer) => this.#take(chunk));
    from.on('trailers', (its: IncomingHttpHeaders, _flags: number, raw: readonly string[]) =>
      this.#readTrailers(its, raw),
    );
    from.on('end', () => this.#end());
    this.#turn = setImmediate(() => this.#begin());
  }

  #take(chunk: Buffer): void {
    const { from, ports } = this;
    const to = this.#to;
    ports.moved();
    if (to !== null) {
      if (isOpen(to) && !to.write(chunk)) from.pause();
      return;
    }
    if (this.#isLost) return;
    this.#held.push(chunk);
    this.#heldBytes += chunk.length;
    if (this.#heldBytes > JOINED) this.#begin();
  }

  /** Sends the head, with what has come behind it. */
  #begin(): void {
    const { from, ports } = this;
    clearImmediate(this.#turn);
    const held = this.#held;
    const waitForTrailers = !this.#isWhole || this.#trailers !== null;
    const endStream = held.length === 0 && !waitForTrailers;
    const to = isCut(from) ? null : ports.open({ endStream, waitForTrailers });
    this.#held = [];
    if (to === null) {
      this.#isLost = true;
      return;
    }
    this.#to = to;
    if (waitForTrailers) to.on('wantTrailers', () => to.sendTrailers(this.#trailers ?? {}));
    if (this.#isWhole) {
      ports.over();
      if (!endStream) to.end(joined(held));
      return;
    }
    to.on('drain', () => {
      ports.moved();
      from.resume();
    });
    if (held.length > 0 && !to.write(joined(held))) from.pause();
  }

  #readTrailers(its: IncomingHttpHeaders, raw: readonly string[]): void {
    const read = readHttp2Trailers(raw, this.ports.head);
    if ('fault' in read) this.ports.broken(read.fault);
    else if (this.ports.trails) this.#trailers = withSecrets(writeHttp2Trailers(read), its);
  }

  #end(): void {
    if (isCut(this.from)) return;
    const to = this.#to;
    if (to === null) {
      this.#isWhole = true;
      this.#begin();
      return;
    }
    if (!isOpen(to)) return;
    this.ports.over();
    to.end();
  }
}

/** In one piece: each write is a frame. */
function joined(chunks: readonly Buffer[]): Buffer | undefined {
  return chunks.length > 1 ? Buffer.concat(chunks) : chunks[0];
}

export function isOpen(stream: Http2Stream): boolean {
  return !stream.closed && !stream.destroyed;
}

/** A stream that is reset ends as well. */
function isCut(stream: Http2Stream): boolean {
  return stream.rstCode !== constants.NGHTTP2_NO_ERROR || stream.aborted;
}

/** What one side keeps out of the compression goes on so (RFC 7541, 7.1.3). */
export function withSecrets(lines: Http2Lines, headers: IncomingHttpHeaders): Http2Lines {
  const names: unknown = Reflect.get(headers, sensitiveHeaders);
  return Array.isArray(names) && names.length > 0 ? Object.assign(lines, { [sensitiveHeaders]: names }) : lines;
}
