import type { LinkListener, ServerLink } from './server-link.js';
import { WriteBatch } from './write-batch.js';

export type ServerEndEvents = LinkListener & {
  /** Returns a link that this session no longer needs. */
  give(link: ServerLink): void;
};

/** The server side of a session: one link at a time, or none. */
export class ServerEnd {
  readonly #out = new WriteBatch();
  #link: ServerLink | null = null;

  constructor(private readonly events: ServerEndEvents) {}

  get link(): ServerLink | null {
    return this.#link;
  }

  take(link: ServerLink): void {
    this.#link = link;
    link.hear(this.events);
  }

  /** Queues a part; it is sent with the next `flush`. */
  add(part: string | Buffer): void {
    this.#out.add(part);
  }

  /** Returns whether the link accepts more without a wait. */
  flush(): boolean {
    return this.#link === null || this.#out.flush(this.#link.socket);
  }

  pause(): void {
    this.#link?.socket.pause();
  }

  resume(): void {
    this.#link?.socket.resume();
  }

  /** Detaches the link from this session, and returns it. */
  release(): ServerLink | null {
    const link = this.#link;
    link?.leave();
    this.#link = null;
    return link;
  }

  /** Gives the link back for reuse, or closes it. */
  drop(mayServe: boolean): void {
    const link = this.release();
    if (link === null) return;
    if (mayServe && !link.isBound) this.events.give(link);
    else link.socket.destroy();
  }
}
