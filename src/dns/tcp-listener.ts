import { createServer, type Server, type Socket } from 'node:net';
import { parseAddress } from '#policy/model/ipv4.js';
import { connectionLimit } from '#sockets/connection-limit.js';
import { BACKLOG, duplicateSocket } from '#sockets/socket-options.js';
import { serveTcp } from './tcp-service.js';
import type { ListenerParts } from './udp-listener.js';

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

  /** Begins to accept on a duplicate of the listening socket `fd`. */
  open(fd: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen({ fd: duplicateSocket(fd) }, BACKLOG, () => {
        this.#server.off('error', reject);
        this.#server.on('error', () => {});
        resolve();
      });
    });
  }

  /** Stops to accept. Open connections stay open, and further connections stay in the socket. */
  pause(): void {
    this.#closed ??= new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  async close(): Promise<void> {
    for (const socket of this.#connections) socket.destroy();
    this.pause();
    await this.#closed;
  }

  #accept(socket: Socket): void {
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
