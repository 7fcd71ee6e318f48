import { limitedPart } from '#addresses/ip-address.js';
import type { Address } from '#contracts/policy/policy-model.js';

const ALL = 20_000;
const OF_A_CLIENT = 2_000;
const KEPT_CLIENTS = 1_024;

/**
 * Limits the number of lookups that wait for upstreams. The limit for all clients together bounds memory. The
 * limit per client keeps capacity free for other clients. All addresses of an IPv6 /64 prefix are one client.
 */
export class InFlight {
  #all = 0;
  readonly #ofClients = new Map<Address, number>();

  constructor(
    private readonly most = ALL,
    private readonly mostOfAClient = OF_A_CLIENT,
  ) {}

  /** Counts a lookup of the client `source`. At a limit, returns false and does not count the lookup. */
  enter(source: Address): boolean {
    const client = limitedPart(source);
    const own = this.#ofClients.get(client) ?? 0;
    if (own >= this.mostOfAClient || this.#all >= this.most) return false;
    this.#all++;
    this.#ofClients.set(client, own + 1);
    return true;
  }

  leave(source: Address): void {
    this.#all--;
    const client = limitedPart(source);
    const left = (this.#ofClients.get(client) ?? 1) - 1;
    // While the map has at most `KEPT_CLIENTS` clients, keep a client whose count is 0. Frequent deletes and
    // inserts would make V8 allocate a new hash table every few lookups.
    if (left > 0 || this.#ofClients.size <= KEPT_CLIENTS) this.#ofClients.set(client, left);
    else this.#ofClients.delete(client);
  }
}
