/**
 * A map with at most `most` values. When the map is full, a new value replaces the least recently used value.
 */
export class LatestFew<T> {
  readonly #values = new Map<string, T>();

  constructor(private readonly most: number) {}

  get(key: string): T | undefined {
    const value = this.#values.get(key);
    if (value !== undefined) this.keep(key, value);
    return value;
  }

  /** Stores a value, and removes all other values except the one with the key `other`. */
  keepOnly(key: string, value: T, other?: string): void {
    const kept = other === undefined ? undefined : this.#values.get(other);
    this.#values.clear();
    if (other !== undefined && kept !== undefined) this.#values.set(other, kept);
    this.#values.set(key, value);
  }

  keep(key: string, value: T): void {
    this.#values.delete(key);
    this.#values.set(key, value);
    const [oldest] = this.#values.keys();
    if (this.#values.size > this.most && oldest !== undefined) this.#values.delete(oldest);
  }
}
