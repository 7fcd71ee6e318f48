/** Counts the open connections of each source address. A source without open connections takes no memory. */
export class SourceCounts<Source extends string | number> {
  readonly #open = new Map<Source, number>();

  of(source: Source): number {
    return this.#open.get(source) ?? 0;
  }

  add(source: Source): void {
    this.#open.set(source, this.of(source) + 1);
  }

  remove(source: Source): void {
    const left = this.of(source) - 1;
    if (left > 0) this.#open.set(source, left);
    else this.#open.delete(source);
  }
}
