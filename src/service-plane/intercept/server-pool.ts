import type { ServerLink } from './server-link.js';

/** Ticks of the clock, of five seconds. */
const IDLE_TICKS = 2;
const OF_A_KEY = 64;
const LINKS = 8_192;

type Idle = { readonly link: ServerLink; readonly since: number };

/** Links that nobody uses now; each serves again the client address in whose name it was made, and nobody else. */
export class ServerPool {
  readonly #idle = new Map<string, Idle[]>();
  #count = 0;

  constructor(private readonly clock: { readonly tick: number }) {}

  /** The one that was used last. */
  take(key: string): ServerLink | null {
    // One that broke just now has not told so yet.
    const link = this.#idle.get(key)?.findLast((idle) => !idle.link.socket.destroyed)?.link;
    if (link === undefined) return null;
    this.#remove(link);
    link.leave();
    return link;
  }

  give(link: ServerLink): void {
    const { socket, key } = link;
    const known = this.#idle.get(key);
    if ((known?.length ?? 0) >= OF_A_KEY || this.#count >= LINKS || socket.destroyed || socket.readableLength > 0) {
      socket.destroy();
      return;
    }
    const idle = { link, since: this.clock.tick };
    if (known === undefined) this.#idle.set(key, [idle]);
    else known.push(idle);
    this.#count++;
    const drop = (): void => this.#drop(link);
    link.hear({ said: drop, drained: () => {}, gone: drop });
  }

  /** Gives up what nobody has needed for too long. */
  lookAtClock(): void {
    const { tick } = this.clock;
    for (const { link, since } of [...this.#idle.values()].flat()) if (tick - since > IDLE_TICKS) this.#drop(link);
  }

  close(): void {
    for (const { link } of [...this.#idle.values()].flat()) this.#drop(link);
  }

  #drop(link: ServerLink): void {
    this.#remove(link);
    link.leave();
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
