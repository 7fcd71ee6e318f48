import { u8At } from '#arrays/read.js';
import type { Headers } from '#contracts/service-plane/http-facts.js';
import type { HttpFault } from '#service-plane/http/fault.js';
import { CR, isTextOctet, isTokenOctet, LF, SEMICOLON } from '#service-plane/http/octets.js';
import { TrailerReader } from './trailers.js';

const EQUALS = 0x3d;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

const PLACE = { nameStart: 0, name: 1, valueStart: 2, value: 3, quoted: 4, escaped: 5, afterQuoted: 6 };

/**
 * Checks the extensions of a chunk (RFC 9112, 7.1.1) octet by octet, from the octet after the first `;`.
 * White space around `;` and `=` is a fault.
 */
class ChunkExtension {
  #place = PLACE.nameStart;

  restart(): void {
    this.#place = PLACE.nameStart;
  }

  /** Returns true if `octet` is valid at the current position. A CR is valid where the extensions may end. */
  accepts(octet: number): boolean {
    switch (this.#place) {
      case PLACE.nameStart:
        return this.#go(isTokenOctet(octet), PLACE.name);
      case PLACE.name:
        if (isTokenOctet(octet)) return true;
        if (octet === EQUALS) return this.#go(true, PLACE.valueStart);
        return this.#end(octet);
      case PLACE.valueStart:
        if (octet === QUOTE) return this.#go(true, PLACE.quoted);
        return this.#go(isTokenOctet(octet), PLACE.value);
      case PLACE.value:
        return isTokenOctet(octet) || this.#end(octet);
      case PLACE.quoted:
        if (octet === QUOTE) return this.#go(true, PLACE.afterQuoted);
        return this.#go(isTextOctet(octet), octet === BACKSLASH ? PLACE.escaped : PLACE.quoted);
      case PLACE.escaped:
        return this.#go(isTextOctet(octet), PLACE.quoted);
      default:
        return this.#end(octet);
    }
  }

  #end(octet: number): boolean {
    return octet === CR || this.#go(octet === SEMICOLON, PLACE.nameStart);
  }

  #go(can: boolean, place: number): boolean {
    if (can) this.#place = place;
    return can;
  }
}

const MAX_SIZE_DIGITS = 16;
const MAX_EXTENSION_BYTES = 16_384;

const STAGE = { size: 0, extension: 1, sizeLf: 2, data: 3, dataCr: 4, dataLf: 5, trailers: 6, done: 7 };

/** Reads a chunked body (RFC 9112, 7.1). The reader checks chunk extensions, but does not return them. */
export class ChunkReader {
  fault: HttpFault | null = null;
  trailers: Headers = [];
  /**
   * The position in the last pushed bytes where the reader stopped: at the end of the body, at a fault, or at
   * the end of the bytes.
   */
  end = 0;
  #stage = STAGE.size;
  #digits = 0;
  /**
   * While the reader reads the digits of a chunk size: the size so far. After that: the number of bytes of
   * the chunk that have not arrived yet.
   */
  #left = 0;
  #extensionBytes = 0;
  readonly #extensions = new ChunkExtension();
  readonly #trailerReader: TrailerReader;

  /**
   * `head`: the fields of the request. A trailer name that differs from one of these field names only in `_`
   * and `-` is a fault. For a response, `head` is empty.
   */
  constructor(head: Headers) {
    this.#trailerReader = new TrailerReader(head);
  }

  get isComplete(): boolean {
    return this.#stage === STAGE.done;
  }

  push(bytes: Buffer, from: number, data: Buffer[]): void {
    let at = from;
    while (at < bytes.length && this.fault === null && this.#stage !== STAGE.done) at = this.#step(bytes, at, data);
    this.end = at;
  }

  #step(bytes: Buffer, at: number, data: Buffer[]): number {
    switch (this.#stage) {
      case STAGE.size:
        return this.#size(bytes, at);
      case STAGE.extension:
        return this.#extension(bytes, at);
      case STAGE.sizeLf:
        if (bytes[at] !== LF) return this.#refuse('bare_cr', at);
        this.#stage = this.#left === 0 ? STAGE.trailers : STAGE.data;
        return at + 1;
      case STAGE.data: {
        const end = Math.min(bytes.length, at + this.#left);
        data.push(bytes.subarray(at, end));
        this.#left -= end - at;
        if (this.#left === 0) this.#stage = STAGE.dataCr;
        return end;
      }
      case STAGE.dataCr:
        if (bytes[at] !== CR) return this.#refuse('chunk_end', at);
        this.#stage = STAGE.dataLf;
        return at + 1;
      case STAGE.dataLf:
        if (bytes[at] !== LF) return this.#refuse('chunk_end', at);
        this.#stage = STAGE.size;
        this.#digits = 0;
        return at + 1;
      default:
        return this.#trailers(bytes, at);
    }
  }

  #size(bytes: Buffer, from: number): number {
    let at = from;
    for (; at < bytes.length; at++) {
      const digit = hexDigit(u8At(bytes, at));
      if (digit === -1) break;
      this.#left = this.#left * 16 + digit;
      if (++this.#digits > MAX_SIZE_DIGITS || !Number.isSafeInteger(this.#left)) return this.#refuse('chunk_size', at);
    }
    if (at === bytes.length) return at;
    if (this.#digits === 0) return this.#refuse('chunk_size', at);
    if (bytes[at] === CR) this.#stage = STAGE.sizeLf;
    else if (bytes[at] !== SEMICOLON) return this.#refuse(bytes[at] === LF ? 'bare_lf' : 'chunk_size', at);
    else {
      this.#stage = STAGE.extension;
      this.#extensions.restart();
    }
    return at + 1;
  }

  #extension(bytes: Buffer, from: number): number {
    let at = from;
    for (; at < bytes.length && bytes[at] !== CR; at++) {
      if (bytes[at] === LF) return this.#refuse('bare_lf', at);
      const isTooLong = ++this.#extensionBytes > MAX_EXTENSION_BYTES;
      if (isTooLong || !this.#extensions.accepts(u8At(bytes, at))) return this.#refuse('chunk_extension', at);
    }
    if (at === bytes.length) return at;
    if (!this.#extensions.accepts(CR)) return this.#refuse('chunk_extension', at);
    this.#stage = STAGE.sizeLf;
    return at + 1;
  }

  #trailers(bytes: Buffer, at: number): number {
    const trailers = this.#trailerReader.push(bytes, at);
    if (trailers === null) return bytes.length;
    if ('fault' in trailers) return this.#refuse(trailers.fault, at);
    this.trailers = trailers;
    this.#stage = STAGE.done;
    return this.#trailerReader.end;
  }

  #refuse(fault: HttpFault, at: number): number {
    this.fault = fault;
    return at;
  }
}

function hexDigit(octet: number): number {
  if (octet >= 0x30 && octet <= 0x39) return octet - 0x30;
  const lower = octet | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}

const LINE_END = Buffer.from('\r\n', 'latin1');

/**
 * Returns the buffers that encode `data` as one chunk, in the order in which they must be sent. Without data,
 * returns no buffers, because an empty chunk would end the body.
 */
export function chunked(data: readonly Buffer[]): readonly Buffer[] {
  let size = 0;
  for (const slice of data) size += slice.length;
  if (size === 0) return [];
  return [Buffer.from(`${size.toString(16)}\r\n`, 'latin1'), ...data, LINE_END];
}

/** Returns the last chunk and the trailers, which end a chunked body. */
export function lastChunk(trailers: Headers = []): Buffer {
  const lines = trailers.map(([name, value, sent]) => `${sent ?? name}: ${value}\r\n`);
  return Buffer.from(`0\r\n${lines.join('')}\r\n`, 'latin1');
}
