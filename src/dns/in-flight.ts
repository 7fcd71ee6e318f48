const ALL = 20_000;
const OF_A_CLIENT = 2_000;
const KEPT_CLIENTS = 1_024;

/** How many lookups wait for upstreams: memory has a bound, and one client leaves room for the others. */
export class InFlight {
  #all = 0;
  readonly #ofClients = new Map<number, number>();

  constructor(
    private readonly most = ALL,
    private readonly mostOfAClient = OF_A_CLIENT,
  ) {}

  /** False, and nothing is counted, where it is one too many. */
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
    // A client that is here all the time keeps its place.
    if (left > 0 || this.#ofClients.size <= KEPT_CLIENTS) this.#ofClients.set(source, left);
    else this.#ofClients.delete(source);
  }
}
