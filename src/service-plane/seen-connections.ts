import type { SeenConnection, SeenConnections } from '#contracts/seen-connection.js';

/**
 * The limits of recorded connections between two takes, for allowed and for other ones; beyond them only the
 * number is kept.
 */
const ALLOWED = 8_192;
const DENIED = 8_192;
/** Only the path needs a limit: DNS names have at most 253 characters, and forwarded methods 32. */
const PATH_CHARACTERS = 512;

/**
 * Connections of one thread since the last report. Denied ones have their own room, however many are allowed.
 */
export class SeenConnectionRecorder {
  /** Whether allowed connections are recorded. */
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

  take(): SeenConnections {
    const taken = { connections: this.#connections, lost: this.#lost, lostDenied: this.#lostDenied };
    this.#connections = [];
    this.#allowed = this.#denied = this.#lost = this.#lostDenied = 0;
    return taken;
  }
}

function shortened(http: SeenConnection['http']): SeenConnection['http'] {
  if (http === null || http.path.length <= PATH_CHARACTERS) return http;
  return { ...http, path: `${http.path.slice(0, PATH_CHARACTERS - 1)}…` };
}
