const ALL = 20_000;
const OF_A_CLIENT = 2_000;
const KEPT_CLIENTS = 1_024;

/**
 * Limits the number of lookups that wait for upstreams. The limit for all clients together bounds memory. The
 * limit per client keeps capacity free for other clients.
 */
export class InFlight {
  #all = 0;
  readonly #ofClients = new Map<number, number>();

  constructor(
    private readonly most = ALL,
    private readonly mostOfAClient = OF_A_CLIENT,
  ) {}

  /** Counts a lookup of the client `source`. At a limit, returns false and does not count the lookup. */
  enter(source: number): boolean {
    const own = this.#ofClients.get(source) ?? 0;
    if (own >= this.mostOfAClient || this.#all >= this.most) return false;
    this.#all++;
    this.#ofClients.set(source, own + 1);
    return true;
  }

  leave(source: number): void {
    this.#all--;
    const left = (this.#ofClients.get(source) ?? 1) - 1;
    // While the map has at most `KEPT_CLIENTS` clients, keep a client whose count is 0. Frequent deletes and
    // inserts would make V8 allocate a new hash table every few lookups.
    if (left > 0 || this.#ofClients.size <= KEPT_CLIENTS) this.#ofClients.set(source, left);
    else this.#ofClients.delete(source);
  }
}
