const NONE: readonly string[] = [];

/** Hostname patterns for which an address was granted, the newest grant first. */
export class AddressNames {
  readonly #names = new Map<number, readonly string[]>();

  constructor(
    readonly capacity = 200_000,
    readonly namesEach = 4,
  ) {}

  /** Names of an address in host order. */
  of(address: number): readonly string[] {
    return this.#names.get(address) ?? NONE;
  }

  add(address: number, name: string): void {
    const known = this.of(address);
    if (known[0] === name) return;
    this.#names.delete(address);
    this.#names.set(address, [name, ...known.filter((other) => other !== name)].slice(0, this.namesEach));
    if (this.#names.size <= this.capacity) return;
    // A map iterates in insertion order: its first key is the oldest address.
    const [oldest] = this.#names.keys();
    if (oldest !== undefined) this.#names.delete(oldest);
  }
}
