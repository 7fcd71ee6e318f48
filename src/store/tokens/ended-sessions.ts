import { createMutex } from '#store/mutex.js';

/**
 * The maximum number of ended sessions that the node stores. It then removes the session that ended first.
 */
const MOST = 10_000;

/** Replaces the lines of the file. Throws a `StoreError` if the disk fails. */
type Write = (lines: readonly string[]) => Promise<void>;

/**
 * The sessions that a sign-out has ended, until their expiry. A copy of the cookie of such a session is
 * refused, also after a restart of the node. The file has a line `ID SECONDS` for each session, with the Unix
 * time of its expiry.
 */
export class EndedSessions {
  readonly #write: Write;
  readonly #now: () => Date;
  readonly #runExclusive = createMutex();
  readonly #expiresS = new Map<string, number>();

  /** `lines`: the present lines of the file. */
  constructor(lines: readonly string[], write: Write, now: () => Date) {
    this.#write = write;
    this.#now = now;
    for (const line of lines) {
      const [id = '', expiresS] = line.split(' ');
      this.#expiresS.set(id, Number(expiresS));
    }
  }

  has(id: string): boolean {
    return this.#expiresS.has(id);
  }

  /** Adds a session before it writes the file, so that the session has ended also if the disk fails. */
  async add({ id, expiresAt }: { readonly id: string; readonly expiresAt: Date }): Promise<void> {
    this.#expiresS.set(id, expiresAt.getTime() / 1000);
    const nowS = this.#now().getTime() / 1000;
    for (const [other, expiresS] of this.#expiresS) if (expiresS <= nowS) this.#expiresS.delete(other);
    const [first] = this.#expiresS.keys();
    if (this.#expiresS.size > MOST && first !== undefined) this.#expiresS.delete(first);
    await this.#runExclusive(() => this.#write([...this.#expiresS].map(([ended, expiresS]) => `${ended} ${expiresS}`)));
  }
}
