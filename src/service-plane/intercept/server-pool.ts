import type { ServerLink } from './server-link.js';

const IDLE_MS = 15_000;
const OF_A_KEY = 64;
const LINKS = 8_192;

type Idle = { readonly link: ServerLink; readonly release: () => void };

/** Links that nobody uses now; each serves again the client address in whose name it was made, and nobody else. */
export class ServerPool {
  readonly #idle = new Map<string, Idle[]>();
  #count = 0;

  /** The one that was used last. */
  take(key: string): ServerLink | null {
    const idle = this.#idle.get(key)?.findLast(({ link }) => !link.socket.destroyed);
    if (idle === undefined) return null;
    idle.release();
    return idle.link;
  }

  give(link: ServerLink): void {
    const known = this.#idle.get(link.key) ?? [];
    const { socket } = link;
    if (known.length >= OF_A_KEY || this.#count >= LINKS || socket.destroyed || socket.readableLength > 0) {
      socket.destroy();
      return;
    }
    // A server that speaks unasked, or has said its end, is of no use any more.
    const drop = (): void => {
      idle.release();
      socket.destroy();
    };
    const idle: Idle = {
      link,
      release: () => {
        socket.off('data', drop);
        socket.off('end', drop);
        socket.off('close', drop);
        socket.off('error', drop);
        socket.setTimeout(0, drop);
        const left = (this.#idle.get(link.key) ?? []).filter((other) => other !== idle);
        if (left.length === 0) this.#idle.delete(link.key);
        else this.#idle.set(link.key, left);
        this.#count--;
      },
    };
    this.#idle.set(link.key, [...known, idle]);
    this.#count++;
    socket.on('data', drop);
    socket.on('end', drop);
    socket.on('close', drop);
    socket.on('error', drop);
    socket.setTimeout(IDLE_MS, drop);
    socket.resume();
  }

  close(): void {
    for (const idle of [...this.#idle.values()].flat()) {
      idle.release();
      idle.link.socket.destroy();
    }
  }
}
