const ALL = 20_000;
const OF_A_CLIENT = 2_000;
const KEPT_CLIENTS = 1_024;

/**
 * Limits the lookups that wait for upstreams: in all, which bounds memory, and for each client, which leaves
 * room for the others.
 */
export class InFlight {
  #all = 0;
  readonly #ofClients = new Map<number, number>();

  constructor(
    private readonly most = ALL,
    private readonly mostOfAClient = OF_A_CLIENT,
  ) {}

  /** Returns false and counts nothing if a limit is reached. */
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
    // An active client keeps its entry.
    if (left > 0 || this.#ofClients.size <= KEPT_CLIENTS) this.#ofClients.set(source, left);
    else this.#ofClients.delete(source);
  }
}
