import type { ServerLink } from './server-link.js';

/** The time after which an unused connection to a server is closed, in ticks of five seconds. */
const IDLE_TICKS = 2;
const OF_A_KEY = 64;
const LINKS = 8_192;

type Idle = { readonly link: ServerLink; readonly since: number };

/**
 * A pool of connections to servers that no session uses. A session gets only connections that were opened
 * from the address of its client.
 */
export class ServerPool {
  readonly #idle = new Map<string, Idle[]>();
  #count = 0;

  constructor(private readonly clock: { readonly tick: number }) {}

  /**
   * Removes the most recently used connection with this key from the pool, and returns it; null if there is
   * none.
   */
  take(key: string): ServerLink | null {
    // Skip connections that have ended: Node may not have emitted the event of the end yet.
    const link = this.#idle.get(key)?.findLast((idle) => !idle.link.hasEnded)?.link;
    if (link === undefined) return null;
    this.#remove(link);
    link.detach();
    return link;
  }

  give(link: ServerLink): void {
    const { socket, key, hasEnded } = link;
    const known = this.#idle.get(key);
    if ((known?.length ?? 0) >= OF_A_KEY || this.#count >= LINKS || hasEnded || socket.readableLength > 0) {
      socket.destroy();
      return;
    }
    const idle = { link, since: this.clock.tick };
    if (known === undefined) this.#idle.set(key, [idle]);
    else known.push(idle);
    this.#count++;
    const drop = (): void => this.#drop(link);
    link.listen({ onData: drop, drained: () => {}, gone: drop });
  }

  /** Closes connections that were unused for too long. The interceptor calls this at every tick. */
  checkTimeouts(): void {
    const { tick } = this.clock;
    for (const { link, since } of [...this.#idle.values()].flat()) if (tick - since > IDLE_TICKS) this.#drop(link);
  }

  close(): void {
    for (const { link } of [...this.#idle.values()].flat()) this.#drop(link);
  }

  #drop(link: ServerLink): void {
    this.#remove(link);
    link.detach();
    link.socket.destroy();
  }

  #remove(link: ServerLink): void {
    const idle = this.#idle.get(link.key) ?? [];
    const at = idle.findLastIndex((other) => other.link === link);
    if (at < 0) return;
    this.#count--;
    if (idle.length === 1) this.#idle.delete(link.key);
    else idle.splice(at, 1);
  }
}
