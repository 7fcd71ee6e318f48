import { Out } from './out.js';
import type { ServerLink } from './server-link.js';

export type ServerEndEvents = {
  readonly data: (chunk: Buffer) => void;
  readonly drain: () => void;
  /** It said its end, or broke. */
  readonly gone: () => void;
  /** Nobody here needs it any more. */
  readonly give: (link: ServerLink) => void;
};

/** A session's way to its server: one link at a time, or none. */
export class ServerEnd {
  readonly #out = new Out();
  #link: ServerLink | null = null;
  #unhook: () => void = () => {};

  constructor(private readonly events: ServerEndEvents) {}

  get link(): ServerLink | null {
    return this.#link;
  }

  take(link: ServerLink): void {
    const { socket } = link;
    const { data, drain, gone } = this.events;
    socket.on('data', data);
    socket.on('drain', drain);
    socket.once('end', gone);
    socket.once('close', gone);
    socket.on('error', gone);
    socket.resume();
    this.#link = link;
    this.#unhook = () => {
      socket.off('data', data);
      socket.off('drain', drain);
      socket.off('end', gone);
      socket.off('close', gone);
      socket.off('error', gone);
      this.#unhook = () => {};
    };
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
    this.#unhook();
    this.#link = null;
    return link;
  }

  /** Gives it to whoever may need it, or ends it. */
  drop(mayServe: boolean): void {
    const link = this.release();
    if (link === null) return;
    if (mayServe && !link.isBound) this.events.give(link);
    else {
      link.socket.on('error', () => {});
      link.socket.destroy();
    }
  }
}
