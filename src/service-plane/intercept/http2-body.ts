import { constants, type Http2Stream, type IncomingHttpHeaders, sensitiveHeaders } from 'node:http2';
import type { HttpFault } from '../http/fault.js';
import { readHttp2Trailers } from '../http/http2-fields.js';
import { type Http2Lines, writeHttp2Trailers } from '../http/write-http2.js';

/** What comes behind a head: nothing, a body, or a body with what may stand behind it. */
export type Following = { readonly endStream: boolean; readonly waitForTrailers: boolean };

export type Http2BodyPorts = {
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

/**
 * A body of one stream and its trailers, on their way to another, which is sent no more than it takes. What has come with the
 * head goes on with it: only what comes in parts is sent in parts, since a stream that waits for trailers ends in a frame,
 * a record and a system call of its own.
 */
export class Http2Body {
  #to: Http2Stream | null = null;
  #trailers: Http2Lines | null = null;
  #isWhole = false;

  constructor(
    private readonly from: Http2Stream,
    private readonly ports: Http2BodyPorts,
  ) {
    from.on('trailers', (its: IncomingHttpHeaders, _flags: number, raw: readonly string[]) =>
      this.#readTrailers(its, raw),
    );
    from.on('end', () => this.#end());
    const first = from.read() as Buffer | null;
    // Behind the end of what was read, where it has come.
    process.nextTick(() => this.#begin(first));
  }

  #begin(first: Buffer | null): void {
    const { from, ports } = this;
    if (isCut(from)) return;
    const waitForTrailers = !this.#isWhole || this.#trailers !== null;
    const endStream = first === null && !waitForTrailers;
    const to = ports.open({ endStream, waitForTrailers });
    if (to === null) return;
    if (waitForTrailers) to.on('wantTrailers', () => to.sendTrailers(this.#trailers ?? {}));
    if (this.#isWhole) {
      ports.over();
      if (!endStream) to.end(first ?? undefined);
      return;
    }
    this.#to = to;
    const takes = first === null || to.write(first);
    from.on('data', (chunk: Buffer) => this.#carry(to, chunk));
    to.on('drain', () => {
      ports.moved();
      from.resume();
    });
    if (!takes) from.pause();
  }

  #carry(to: Http2Stream, chunk: Buffer): void {
    this.ports.moved();
    if (isOpen(to) && !to.write(chunk)) this.from.pause();
  }

  #readTrailers(its: IncomingHttpHeaders, raw: readonly string[]): void {
    const read = readHttp2Trailers(raw);
    if ('fault' in read) this.ports.broken(read.fault);
    else if (this.ports.trails) this.#trailers = withSecrets(writeHttp2Trailers(read), its);
  }

  #end(): void {
    if (isCut(this.from)) return;
    const to = this.#to;
    if (to === null) {
      this.#isWhole = true;
      return;
    }
    if (!isOpen(to)) return;
    this.ports.over();
    to.end();
  }
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
