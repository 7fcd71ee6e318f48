import type { LinkListener, ServerLink } from '#service-plane/intercept/server-link.js';
import { destroyWithReset } from '#sockets/socket-options.js';
import { WriteBatch } from './write-batch.js';

export type ServerEndEvents = LinkListener & {
  /** Returns a connection to a server, which the session no longer needs, to the pool. */
  give(link: ServerLink): void;
};

/**
 * The server side of an HTTP/1.1 session, with at most one connection to the server (`ServerLink`) at a time.
 */
export class ServerEnd {
  readonly #out = new WriteBatch();
  #link: ServerLink | null = null;

  constructor(private readonly events: ServerEndEvents) {}

  get link(): ServerLink | null {
    return this.#link;
  }

  /** Sends requests over the connection `link` from now on, and receives its events. */
  use(link: ServerLink): void {
    this.#link = link;
    link.listen(this.events);
  }

  /** Queues a text or buffer that the next `flush` sends to the server. */
  add(part: string | Buffer): void {
    this.#out.add(part);
  }

  /** Sends the queued data. Returns false if the socket's write buffer is full. */
  flush(): boolean {
    return this.#link === null || this.#out.flush(this.#link.socket);
  }

  pause(): void {
    this.#link?.socket.pause();
  }

  resume(): void {
    this.#link?.socket.resume();
  }

  /** Detaches the connection to the server from the session, and returns it; null if there is none. */
  release(): ServerLink | null {
    const link = this.#link;
    link?.detach();
    this.#link = null;
    return link;
  }

  /**
   * Detaches the connection to the server from the session. Returns it to the pool if `mayServe` is true and
   * the connection is not bound to a user; otherwise closes it.
   */
  drop(mayServe: boolean): void {
    const link = this.release();
    if (link === null) return;
    if (mayServe && !link.isBound) this.events.give(link);
    else link.socket.destroy();
  }

  /** Detaches the connection to the server from the session, and resets it. */
  reset(): void {
    const link = this.release();
    if (link !== null) destroyWithReset(link.socket);
  }
}
