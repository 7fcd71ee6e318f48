import type { LinkListener, ServerLink } from './server-link.js';
import { WriteBatch } from './write-batch.js';

export type ServerEndEvents = LinkListener & {
  /** Nobody here needs it any more. */
  give(link: ServerLink): void;
};

/** A session's way to its server: one link at a time, or none. */
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

  /** Of what is to be sent: it goes with the next `flush`. */
  add(part: string | Buffer): void {
    this.#out.add(part);
  }

  /** Whether more is taken at once. */
  flush(): boolean {
    return this.#link === null || this.#out.flush(this.#link.socket);
  }

  pause(): void {
    this.#link?.socket.pause();
  }

  resume(): void {
    this.#link?.socket.resume();
  }

  /** It is nobody's here from now on. */
  release(): ServerLink | null {
    const link = this.#link;
    link?.leave();
    this.#link = null;
    return link;
  }

  /** Gives it to whoever may need it, or ends it. */
  drop(mayServe: boolean): void {
    const link = this.release();
    if (link === null) return;
    if (mayServe && !link.isBound) this.events.give(link);
    else link.socket.destroy();
  }
}
