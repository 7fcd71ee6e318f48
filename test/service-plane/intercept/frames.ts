import type { TLSSocket, Server as TlsServer } from 'node:tls';
import { SERVER_NAME } from '#test/service-plane/certificates.js';

/** Frame types of HTTP/2 (RFC 9113, 6). */
export const FRAME = {
  data: 0,
  headers: 1,
  priority: 2,
  rst_stream: 3,
  settings: 4,
  push_promise: 5,
  ping: 6,
  goaway: 7,
  window_update: 8,
  continuation: 9,
} as const;
export const END_STREAM = 1;
export const END_HEADERS = 4;

const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n';

export type Frame = { readonly type: number; readonly flags: number; readonly stream: number; readonly body: Buffer };

export function frame(type: number, flags: number, stream: number, body: Buffer = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(body.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, body]);
}

/**
 * Returns an HPACK header block. Each field is a literal without indexing (RFC 7541, 6.2.2), so tests can
 * also use invalid names.
 */
export function block(fields: readonly (readonly [name: string, value: string])[]): Buffer {
  return Buffer.concat(fields.flatMap(([name, value]) => [Buffer.from([0]), text(name), text(value)]));
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value, 'latin1');
  return Buffer.concat([integer(bytes.length, 7), bytes]);
}

/** Encodes an integer for HPACK (RFC 7541, 5.1). */
export function integer(value: number, bits: number, first = 0): Buffer {
  const most = 2 ** bits - 1;
  if (value < most) return Buffer.from([first | value]);
  const octets = [first | most];
  let rest = value - most;
  for (; rest >= 128; rest = Math.floor(rest / 128)) octets.push((rest % 128) | 128);
  return Buffer.from([...octets, rest]);
}

export const GET: readonly (readonly [name: string, value: string])[] = [
  [':method', 'GET'],
  [':scheme', 'https'],
  [':authority', SERVER_NAME],
  [':path', '/'],
];

/** Splits received bytes into frames. */
class FrameReader {
  #held = Buffer.alloc(0);

  constructor(private readonly take: (frame: Frame) => void) {}

  read(chunk: Buffer): void {
    this.#held = Buffer.concat([this.#held, chunk]);
    while (this.#held.length >= 9) {
      const end = 9 + this.#held.readUIntBE(0, 3);
      if (this.#held.length < end) return;
      const held = this.#held;
      this.#held = held.subarray(end);
      this.take({
        type: held.readUInt8(3),
        flags: held.readUInt8(4),
        stream: held.readUInt32BE(5),
        body: held.subarray(9, end),
      });
    }
  }
}

/** An HTTP/2 client that sends the frames that a test writes. */
export class RawClient {
  readonly frames: Frame[] = [];
  isClosed = false;

  constructor(private readonly socket: TLSSocket) {
    const reader = new FrameReader((frame) => this.frames.push(frame));
    socket.on('data', (chunk: Buffer) => reader.read(chunk));
    socket.once('close', () => {
      this.isClosed = true;
    });
    socket.write(PREFACE);
    this.send(frame(FRAME.settings, 0, 0), frame(FRAME.settings, 1, 0));
  }

  send(...frames: readonly Buffer[]): void {
    if (this.socket.writable) this.socket.write(Buffer.concat(frames));
  }

  /** Returns the received frames of one type on one stream. */
  of(type: number, stream: number): readonly Frame[] {
    return this.frames.filter((one) => one.type === type && one.stream === stream);
  }

  /** The error codes of the received GOAWAY frames. */
  get goaways(): readonly number[] {
    return this.of(FRAME.goaway, 0).map(({ body }) => body.readUInt32BE(4));
  }

  /** Returns the error code of the RST_STREAM frame on a stream; null if the stream was not reset. */
  resetOf(stream: number): number | null {
    return this.of(FRAME.rst_stream, stream)[0]?.body.readUInt32BE(0) ?? null;
  }
}

/** Makes a TLS server respond to the last frame of each request with the frames that `answer` returns. */
export function answerFrames(server: TlsServer, answer: (stream: number) => readonly Buffer[]): void {
  server.removeAllListeners('secureConnection');
  server.on('secureConnection', (socket: TLSSocket) => {
    const reader = new FrameReader(({ type, flags, stream }) => {
      if (type === FRAME.settings && flags === 0) socket.write(frame(FRAME.settings, 1, 0));
      if (stream !== 0 && type <= FRAME.headers && (flags & END_STREAM) !== 0)
        socket.write(Buffer.concat(answer(stream)));
    });
    let skipped = 0;
    socket.on('error', () => {});
    socket.on('data', (chunk: Buffer) => {
      const rest = chunk.subarray(Math.min(chunk.length, PREFACE.length - skipped));
      skipped += chunk.length - rest.length;
      reader.read(rest);
    });
    socket.write(frame(FRAME.settings, 0, 0));
  });
}
