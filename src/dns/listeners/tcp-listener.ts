import { createServer, type Server, type Socket } from 'node:net';
import { parseAddress } from '#addresses/ip-address.js';
import type { Address } from '#contracts/policy/policy-model.js';
import { FrameReader, framed } from '#dns/wire/message/framing.js';
import { connectionLimit } from '#sockets/listening/connection-limit.js';
import { listenOnDuplicate } from '#sockets/socket-options.js';
import type { ListenerParts } from './udp-listener.js';

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
function serveTcp(socket: Socket, source: Address, parts: ListenerParts, idleMs: number): void {
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

const IDLE_MS = 10_000;
const CONNECTIONS_OF_A_SOURCE = 256;
const CONNECTIONS = 16_384;

/** Accepts DNS connections on one TCP address, with a limit of connections per source and in total. */
export class TcpListener {
  readonly #server: Server;
  readonly #connections = new Set<Socket>();
  #closed: Promise<void> | null = null;
  readonly #refuses = connectionLimit(() => CONNECTIONS_OF_A_SOURCE, 'connection');

  constructor(
    private readonly parts: ListenerParts,
    private readonly idleMs = IDLE_MS,
  ) {
    this.#server = createServer({ allowHalfOpen: true }, (socket) => this.#accept(socket));
  }

  /** Begins to accept connections on a duplicate of the listening socket `fd`. */
  open(fd: number): Promise<void> {
    return listenOnDuplicate(this.#server, fd);
  }

  /**
   * Stops accepting connections. Open connections stay open, and further connections wait in the listening
   * socket.
   */
  pause(): void {
    this.#closed ??= new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  async close(): Promise<void> {
    for (const socket of this.#connections) socket.destroy();
    this.pause();
    await this.#closed;
  }

  #accept(socket: Socket): void {
    // A link-local address has a zone here, and is refused.
    const source = parseAddress(socket.remoteAddress ?? '');
    if (source === undefined || this.#connections.size >= CONNECTIONS || this.#refuses(socket)) {
      this.parts.counts.refuse('connection');
      socket.destroy();
      return;
    }
    this.#connections.add(socket);
    socket.on('close', () => this.#connections.delete(socket));
    serveTcp(socket, source, this.parts, this.idleMs);
  }
}
