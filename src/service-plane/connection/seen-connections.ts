import type { SeenConnection, SeenConnections } from '#contracts/service-plane/seen-connection.js';

/**
 * Limits for the records that `SeenConnectionRecorder` collects between two calls of `drain`: `ALLOWED` for
 * allowed connections and requests, `DENIED` for all others. Above a limit, the recorder only counts events.
 */
const ALLOWED = 8_192;
const DENIED = 8_192;
/**
 * The maximum length of a recorded path; a longer path is truncated. Other fields are short already: DNS
 * names have at most 253 characters, and forwarded methods 32.
 */
const PATH_CHARACTERS = 512;

/**
 * Records the connections and requests of one thread since the last `drain`. Denied connections have their
 * own limit, so many allowed connections do not displace them.
 */
export class SeenConnectionRecorder {
  /** If true, `add` also records allowed connections and requests. */
  allowedWanted = false;
  #connections: SeenConnection[] = [];
  #allowed = 0;
  #denied = 0;
  #lost = 0;
  #lostDenied = 0;

  add(seen: Omit<SeenConnection, 'atMs'>, atMs: number): void {
    const isAllowed = seen.verdict === 'allow';
    if (isAllowed && !this.allowedWanted) return;
    if (isAllowed ? this.#allowed >= ALLOWED : this.#denied >= DENIED) {
      this.#lost++;
      if (!isAllowed) this.#lostDenied++;
      return;
    }
    if (isAllowed) this.#allowed++;
    else this.#denied++;
    this.#connections.push({ ...seen, http: shortened(seen.http), atMs });
  }

  /** Returns the records since the last call, and removes them from this object. */
  drain(): SeenConnections {
    const drained = { connections: this.#connections, lost: this.#lost, lostDenied: this.#lostDenied };
    this.#connections = [];
    this.#allowed = this.#denied = this.#lost = this.#lostDenied = 0;
    return drained;
  }
}

function shortened(http: SeenConnection['http']): SeenConnection['http'] {
  if (http === null || http.path.length <= PATH_CHARACTERS) return http;
  return { ...http, path: `${http.path.slice(0, PATH_CHARACTERS - 1)}…` };
}
