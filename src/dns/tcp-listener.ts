import { createServer, type Server, type Socket } from 'node:net';
import { parseAddress } from '#policy/model/ipv4.js';
import { connectionLimit } from '#sockets/connection-limit.js';
import { openListener } from '#sockets/socket-options.js';
import type { Counts } from './dns-counts.js';
import type { ListenAt } from './dns-options.js';
import type { Resolver } from './resolver.js';
import { serveTcp } from './tcp-service.js';

const IDLE_MS = 10_000;
const CONNECTIONS_OF_A_SOURCE = 256;
const CONNECTIONS = 16_384;

/** Accepts DNS connections on one TCP address, with a limit of connections per source and in total. */
export class TcpListener {
  readonly #server: Server;
  readonly #connections = new Set<Socket>();
  readonly #refuses = connectionLimit(() => CONNECTIONS_OF_A_SOURCE, 'connection');

  constructor(
    private readonly at: ListenAt,
    private readonly resolver: Resolver,
    private readonly counts: Counts,
    private readonly idleMs = IDLE_MS,
  ) {
    this.#server = createServer({ allowHalfOpen: true }, (socket) => this.#accept(socket));
  }

  open(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen({ fd: openListener(this.at, this.at) }, () => {
        this.#server.off('error', reject);
        this.#server.on('error', () => {});
        resolve();
      });
    });
  }

  async close(): Promise<void> {
    for (const socket of this.#connections) socket.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  #accept(socket: Socket): void {
    const source = parseAddress(socket.remoteAddress ?? '');
    if (source === undefined || this.#connections.size >= CONNECTIONS || this.#refuses(socket)) {
      this.counts.refuse('connection');
      socket.destroy();
      return;
    }
    this.#connections.add(socket);
    socket.on('close', () => this.#connections.delete(socket));
    serveTcp(socket, source, this.resolver, this.counts, this.idleMs);
  }
}
