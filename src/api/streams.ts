import type { WebSocket } from '@fastify/websocket';
import type { FastifyReply } from 'fastify';
import type { Sink } from '#observe/wiretap/readers.js';
import { SECURITY_HEADERS } from './security-headers.js';

/** Begins to send to a sink; `close` ends it. */
type Begin = (sink: Sink) => { close(): void };

const PING_MS = 30_000;
const COMMENT_MS = 15_000;
const CLOSES: Readonly<Record<Parameters<Sink['close']>[0], readonly [code: number, reason: string]>> = {
  too_slow: [1008, 'nothing was read for a minute'],
  going_away: [1001, 'the node ends this stream'],
  performance_mode_disabled: [4503, 'performance mode was disabled'],
};

/** Frames as text messages of a WebSocket. One whose peer answers no ping is cut off. */
export function webSocketStream(socket: WebSocket, begin: Begin): void {
  let isAlive = true;
  const stream = begin({
    get waiting() {
      return socket.bufferedAmount;
    },
    send: (frame, done) => {
      socket.send(frame, { binary: false }, (failure) => {
        if (failure === undefined || failure === null) done?.();
      });
    },
    close: (why) => socket.close(...CLOSES[why]),
  });
  const pings = setInterval(() => {
    if (!isAlive) return socket.terminate();
    isAlive = false;
    socket.ping();
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

/** Frames as Server-Sent Events, one `data` line each. */
export function eventStream(reply: FastifyReply, begin: Begin): void {
  reply.hijack();
  const { raw } = reply;
  raw.writeHead(200, {
    ...SECURITY_HEADERS,
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store',
    // A proxy in between is not to collect it.
    'x-accel-buffering': 'no',
  });
  raw.write('retry: 1000\n\n');
  const stream = begin({
    get waiting() {
      return raw.writableLength;
    },
    send: (frame, done) => {
      raw.cork();
      raw.write('data: ');
      raw.write(frame);
      raw.write('\n\n', (failure) => {
        if (failure === undefined || failure === null) done?.();
      });
      raw.uncork();
    },
    close: (why) => raw.end(`event: end\ndata: {"reason":"${CLOSES[why][1]}"}\n\n`),
  });
  const comments = setInterval(() => {
    if (raw.writableLength === 0) raw.write(': still there\n\n');
  }, COMMENT_MS);
  raw.on('close', () => {
    clearInterval(comments);
    stream.close();
  });
}
