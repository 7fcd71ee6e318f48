import { PATTERNS } from './layout.js';

/** How many addresses are granted to each pattern. */
export class Holdings {
  readonly #counts = new Uint32Array(PATTERNS);

  of(pattern: number): number {
    return this.#counts[pattern] ?? 0;
  }

  add(pattern: number): void {
    this.#counts[pattern] = this.of(pattern) + 1;
  }

  remove(pattern: number): void {
    this.#counts[pattern] = this.of(pattern) - 1;
  }
}
