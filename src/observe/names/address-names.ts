const NONE: readonly string[] = [];

/**
 * Maps each IPv4 address to the last `namesEach` hostnames for which the DNS proxy granted the address. The
 * most recently granted hostname is first. Above `capacity` addresses, `add` removes the address that was
 * added longest ago.
 */
export class AddressNames {
  readonly #names = new Map<number, readonly string[]>();

  constructor(
    readonly capacity = 200_000,
    readonly namesEach = 4,
  ) {}

  /** Returns the hostnames of an IPv4 address, which is a number in host byte order. */
  of(address: number): readonly string[] {
    return this.#names.get(address) ?? NONE;
  }

  add(address: number, name: string): void {
    const known = this.of(address);
    if (known[0] === name) return;
    this.#names.delete(address);
    this.#names.set(address, [name, ...known.filter((other) => other !== name)].slice(0, this.namesEach));
    if (this.#names.size <= this.capacity) return;
    // Remove the address that was added longest ago: a `Map` iterates over its keys in insertion order.
    const [oldest] = this.#names.keys();
    if (oldest !== undefined) this.#names.delete(oldest);
  }
}
