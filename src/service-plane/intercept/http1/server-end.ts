import type { LinkListener, ServerLink } from '#service-plane/intercept/server-link.js';
import { destroyWithReset } from '#sockets/socket-options.js';
import { WriteBatch } from './write-batch.js';

export type ServerEndEvents = LinkListener & {
  /** Gives a server link, which the session no longer needs, back to the pool. */
  give(link: ServerLink): void;
};

/** The server side of an HTTP/1.1 session, with at most one server link at a time. */
export class ServerEnd {
  readonly #out = new WriteBatch();
  #link: ServerLink | null = null;

  constructor(private readonly events: ServerEndEvents) {}

  get link(): ServerLink | null {
    return this.#link;
  }

  /** Uses a link from now on: its events go to this object. */
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

  /** Detaches the link from the session, and returns the link; null if there is no link. */
  release(): ServerLink | null {
    const link = this.#link;
    link?.detach();
    this.#link = null;
    return link;
  }

  /**
   * Detaches the link from the session. If `mayServe` is true and the link is not bound to a user, gives the
   * link back to the pool; if not, closes the link.
   */
  drop(mayServe: boolean): void {
    const link = this.release();
    if (link === null) return;
    if (mayServe && !link.isBound) this.events.give(link);
    else link.socket.destroy();
  }

  /** Detaches the link from the session, and resets the connection to the server. */
  reset(): void {
    const link = this.release();
    if (link !== null) destroyWithReset(link.socket);
  }
}
