import { constants, type Http2Stream, type IncomingHttpHeaders, sensitiveHeaders } from 'node:http2';
import type { Headers } from '#contracts/service-plane/http-facts.js';
import type { HttpFault } from '#service-plane/http/fault.js';
import { readHttp2Trailers } from '#service-plane/http/http2/http2-fields.js';
import { type Http2Lines, writeHttp2Trailers } from '#service-plane/http/http2/write-http2.js';
import type { Http2Window } from './http2-window.js';

/**
 * The rest of a stream after a message head. `endStream`: no body and no trailers follow. `waitForTrailers`:
 * trailers can follow the body.
 */
export type Following = { readonly endStream: boolean; readonly waitForTrailers: boolean };

export type Http2BodyPorts = {
  /**
   * The fields of the request; a trailer name that differs from one of these field names only in `_` and `-`
   * is a fault. For a response, `head` is empty.
   */
  readonly head: Headers;
  /**
   * Returns true after the sender has sent the end of the message (END_STREAM). Node emits `end` also for a
   * stream that was reset.
   */
  isWhole(): boolean;
  /** True if the node may forward the trailers of this message. */
  readonly trails: boolean;
  /** The flow-control window of the connection on which the body arrives. */
  readonly window: Http2Window;
  /**
   * Sends the message head on the target stream, and returns the target stream; null if the target stream is
   * closed.
   */
  open(following: Following): Http2Stream | null;
  moved(): void;
  /** Called if the trailers are malformed. */
  broken(fault: HttpFault): void;
  /** Called if Node's HTTP/2 API refuses to send the trailers. */
  unsendable(): void;
  /** Called when the whole body was passed to the target stream. */
  over(): void;
};

/** The maximum number of body bytes that wait to be sent together with the message head. */
const JOINED = 16_384;

/**
 * Forwards a body and its trailers from one HTTP/2 stream to another, at the speed of the receiver. The
 * message head waits for body data until the end of the current event-loop iteration. If the body is complete
 * by then, its last frame also ends the stream. If not, the end of the stream (with or without trailers)
 * costs an additional frame, TLS record and system call.
 */
export class Http2Body {
  #to: Http2Stream | null = null;
  #held: Buffer[] = [];
  #heldBytes = 0;
  #trailers: Http2Lines | null = null;
  #isWhole = false;
  #isOver = false;
  /** True if the target stream could not be opened. Further body data are then dropped. */
  #isLost = false;
  #isPaused = false;
  readonly #immediate: NodeJS.Immediate;

  constructor(
    private readonly from: Http2Stream,
    private readonly ports: Http2BodyPorts,
  ) {
    from.on('data', (chunk: Buffer) => this.#take(chunk));
    from.on('trailers', (its: IncomingHttpHeaders, _flags: number, raw: readonly string[]) =>
      this.#readTrailers(its, raw),
    );
    from.on('end', () => this.#end());
    from.on('close', () => {
      if (this.#isPaused) ports.window.closed();
      this.#isPaused = false;
    });
    this.#immediate = setImmediate(() => this.#begin());
  }

  /**
   * If the message is complete, forwards the data that wait because the receiver is slow, and the end of the
   * message. Returns false if the message is incomplete. Call `finish` before `from` is destroyed.
   */
  finish(): boolean {
    const { from, ports } = this;
    if (!ports.isWhole()) return false;
    // Each call of `read` emits the event `data`, whose listener forwards the chunk.
    while (from.read() !== null);
    this.#end();
    return true;
  }

  #take(chunk: Buffer): void {
    const to = this.#to;
    this.ports.moved();
    if (to !== null) {
      if (isOpen(to) && !to.write(chunk)) this.#pause();
      return;
    }
    if (this.#isLost) return;
    this.#held.push(chunk);
    this.#heldBytes += chunk.length;
    if (this.#heldBytes > JOINED) this.#begin();
  }

  /** Sends the message head, together with the body data received so far. */
  #begin(): void {
    const { from, ports } = this;
    clearImmediate(this.#immediate);
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
    if (waitForTrailers) to.on('wantTrailers', () => this.#sendTrailers(to));
    if (this.#isWhole) {
      ports.over();
      if (!endStream) to.end(concatenated(held));
      return;
    }
    to.on('drain', () => {
      ports.moved();
      this.#resume();
    });
    // Read and drop the remaining body. Otherwise it would stay in memory until `from` is closed.
    to.on('close', () => this.#resume());
    if (held.length > 0 && !to.write(concatenated(held))) this.#pause();
  }

  #pause(): void {
    if (this.#isPaused) return;
    this.#isPaused = true;
    this.from.pause();
    this.ports.window.paused();
  }

  #resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.from.resume();
    this.ports.window.resumed(this.from);
  }

  #readTrailers(its: IncomingHttpHeaders, raw: readonly string[]): void {
    const read = readHttp2Trailers(raw, this.ports.head);
    if ('fault' in read) this.ports.broken(read.fault);
    else if (this.ports.trails) this.#trailers = withSecrets(writeHttp2Trailers(read), its);
  }

  #sendTrailers(to: Http2Stream): void {
    try {
      to.sendTrailers(this.#trailers ?? {});
    } catch {
      this.ports.unsendable();
    }
  }

  #end(): void {
    if (this.#isOver || !this.ports.isWhole() || isCut(this.from)) return;
    this.#isOver = true;
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

/** Concatenates the chunks into one buffer, because each write becomes a separate HTTP/2 frame. */
function concatenated(chunks: readonly Buffer[]): Buffer | undefined {
  return chunks.length > 1 ? Buffer.concat(chunks) : chunks[0];
}

export function isOpen(stream: Http2Stream): boolean {
  return !stream.closed && !stream.destroyed;
}

/** Returns true if the stream was reset, possibly after the end of its message. */
function isCut(stream: Http2Stream): boolean {
  return stream.rstCode !== constants.NGHTTP2_NO_ERROR || stream.aborted;
}

/**
 * Marks fields as sensitive that the sender excluded from header compression. HPACK requires that a proxy
 * also excludes these fields (RFC 7541, 7.1.3).
 */
export function withSecrets(lines: Http2Lines, headers: IncomingHttpHeaders): Http2Lines {
  const names: unknown = Reflect.get(headers, sensitiveHeaders);
  return Array.isArray(names) && names.length > 0 ? Object.assign(lines, { [sensitiveHeaders]: names }) : lines;
}
