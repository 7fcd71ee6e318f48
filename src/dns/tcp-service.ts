import type { Socket } from 'node:net';
import type { ListenerParts } from './udp-listener.js';
import { FrameReader, framed } from './wire/framing.js';

const QUERY_BYTES = 4_096;
/**
 * The limit of unanswered queries per connection. At the limit, the service reads no further queries from the
 * connection.
 */
const IN_FLIGHT = 64;

/**
 * Answers the DNS queries of one TCP connection. Responses are sent in the order in which they become ready
 * (RFC 7766). While the client does not read responses, the service reads no further queries.
 */
export function serveTcp(socket: Socket, source: number, parts: ListenerParts, idleMs: number): void {
  const { resolver, counts, unanswered } = parts;
  const frames = new FrameReader(QUERY_BYTES);
  let queries: readonly Uint8Array[] = [];
  let next = 0;
  let inFlight = 0;
  let hasEnded = false;
  let isStarting = false;

  const answer = (response: Uint8Array): void => {
    inFlight--;
    unanswered.count--;
    if (socket.writable) socket.write(framed(response));
    startQueries();
  };
  const mayStart = (): boolean => inFlight < IN_FLIGHT && !socket.writableNeedDrain && !socket.destroyed;
  const startQueries = (): void => {
    // Prevent recursion: `resolver.answer` may call `answer` before it returns, and `answer` calls
    // `startQueries` again.
    if (isStarting) return;
    isStarting = true;
    for (let query = queries[next]; query !== undefined && mayStart(); query = queries[++next]) {
      inFlight++;
      unanswered.count++;
      if (resolver.answer(query, source, true, answer)) continue;
      unanswered.count--;
      socket.destroy();
    }
    isStarting = false;
    if (next < queries.length) return;
    if (mayStart()) socket.resume();
    if (hasEnded && inFlight === 0) socket.end();
  };

  socket.setTimeout(idleMs, () => socket.destroy());
  socket.on('error', () => {});
  socket.on('data', (chunk) => {
    queries = frames.push(chunk);
    next = 0;
    socket.pause();
    startQueries();
    if (!frames.tooLong) return;
    counts.refuse('too_long');
    socket.destroy();
  });
  socket.on('drain', startQueries);
  socket.on('end', () => {
    hasEnded = true;
    startQueries();
  });
}
