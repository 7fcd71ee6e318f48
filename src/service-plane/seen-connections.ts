import type { SeenConnection, SeenConnections } from '#contracts/seen-connection.js';

/** What is seen between two takes, of what is allowed and of the rest each; of more only the number is known. */
const ALLOWED = 8_192;
const DENIED = 8_192;
/** Names of the DNS have 253, methods that are passed on 32. */
const PATH_CHARACTERS = 512;

/** What one thread saw since it told the last time. However much is allowed, what is denied has room of its own. */
export class Seen {
  /** Whether what is allowed is of use to anybody. */
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
