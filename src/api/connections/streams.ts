import type { WebSocket } from '@fastify/websocket';
import type { FastifyReply } from 'fastify';
import { SECURITY_HEADERS } from '#api/security-headers.js';
import type { Sink } from '#observe/wiretap/readers.js';

export type Stream = {
  /** Starts to send frames to the sink. The returned `close` stops sending. */
  readonly begin: (sink: Sink) => { close(): void };
  /** Returns whether the token of the request that opened the stream is still valid. */
  readonly isAllowed: () => Promise<boolean>;
};

const PING_MS = 30_000;
const LOOK_MS = 15_000;
const GOODBYE_MS = 1_000;
const CLOSES: Readonly<Record<Parameters<Sink['close']>[0], readonly [code: number, reason: string]>> = {
  too_slow: [1008, 'the reader has read nothing for one minute'],
  too_many: [1013, 'too many readers with different filters'],
  going_away: [1001, 'the node ends this stream'],
  performance_mode_disabled: [4503, 'performance mode was disabled'],
  token_ended: [4401, 'the token was revoked or has expired'],
};

type Connection = Pick<Sink, 'close'> & {
  readonly waiting: () => number;
  readonly send: (frame: Parameters<Sink['send']>[0], sent: (failure?: Error | null) => void) => void;
};

/** Returns a sink that counts the frames that the connection has sent. */
function sinkOf({ waiting, send, close }: Connection): Sink {
  let taken = 0;
  return {
    get waiting() {
      return waiting();
    },
    get taken() {
      return taken;
    },
    send: (frame, done) =>
      send(frame, (failure) => {
        if (failure !== undefined && failure !== null) return;
        taken++;
        done?.();
      }),
    close,
  };
}

/**
 * Sends frames as text messages of a WebSocket. If no frame waits to be sent, pings the client every
 * `PING_MS`, and disconnects a client that has not answered the previous ping.
 */
export function webSocketStream(socket: WebSocket, { begin, isAllowed }: Stream): void {
  let isAlive = true;
  const sink = sinkOf({
    waiting: () => socket.bufferedAmount,
    send: (frame, sent) => socket.send(frame, { binary: false }, sent),
    close: (why) => {
      socket.close(...CLOSES[why]);
      // Close the socket after `GOODBYE_MS`: a client that does not read never receives the close frame,
      // which is queued behind waiting frames.
      setTimeout(() => socket.terminate(), GOODBYE_MS).unref();
    },
  });
  const stream = begin(sink);
  closeWithToken(socket, isAllowed);
  const pings = setInterval(() => {
    // While frames wait to be sent, do not disconnect the client for a missing pong: the ping may be queued
    // behind these frames. `STALLED_MS` in readers.ts limits how long frames may wait.
    if (sink.waiting > 0) isAlive = true;
    else if (!isAlive) socket.terminate();
    else {
      isAlive = false;
      socket.ping();
    }
  }, PING_MS);
  socket.on('pong', () => {
    isAlive = true;
  });
  socket.on('error', () => socket.terminate());
  socket.on('close', () => {
    clearInterval(pings);
    stream.close();
  });
}

/** Closes a WebSocket at most about `LOOK_MS` milliseconds after its token has become invalid. */
export function closeWithToken(socket: WebSocket, isAllowed: Stream['isAllowed']): void {
  const looks = setInterval(async () => {
    if (!(await isAllowed())) socket.close(...CLOSES.token_ended);
  }, LOOK_MS);
  socket.on('close', () => clearInterval(looks));
}

/** Sends frames as Server-Sent Events. Each frame is one `data` field. */
export function eventStream(reply: FastifyReply, { begin, isAllowed }: Stream): void {
  reply.hijack();
  const { raw } = reply;
  // If the client disconnected during authentication, there is no stream to start.
  if (raw.destroyed || raw.socket === null || raw.socket.destroyed) return;
  raw.writeHead(200, {
    ...SECURITY_HEADERS,
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store',
    // This header tells a reverse proxy, such as nginx, not to buffer the stream.
    'x-accel-buffering': 'no',
  });
  raw.write('retry: 1000\n\n');
  const sink = sinkOf({
    waiting: () => raw.writableLength,
    send: (frame, sent) => {
      raw.cork();
      raw.write('data: ');
      raw.write(frame);
      raw.write('\n\n', sent);
      raw.uncork();
    },
    close: (why) => {
      raw.end(`event: end\ndata: {"reason":"${CLOSES[why][1]}"}\n\n`);
      setTimeout(() => raw.destroy(), GOODBYE_MS).unref();
    },
  });
  const stream = begin(sink);
  const look = async (): Promise<void> => {
    if (!(await isAllowed())) sink.close('token_ended');
    else if (sink.waiting === 0) raw.write(': still there\n\n');
  };
  const looks = setInterval(() => void look(), LOOK_MS);
  raw.on('error', () => raw.destroy());
  raw.on('close', () => {
    clearInterval(looks);
    stream.close();
  });
}
