import type { Warning, WarningCode } from '#contracts/policy/policy-problem.js';

/**
 * A response lists at most this many warnings with the same code. One more entry then tells the number of
 * omitted warnings.
 */
export const MAX_WARNINGS_OF_A_CODE = 100;

/** Keeps the first `MAX_WARNINGS_OF_A_CODE` warnings and the total number for each code. */
export class WarningList {
  readonly #warnings: Warning[] = [];
  readonly #counts = new Map<WarningCode, number>();
  readonly #first: { readonly pointer: string; readonly warnings: WarningList } | undefined;

  /**
   * `all` lists the warnings at or below the JSON pointer `first` before all other warnings. These first
   * warnings do not count toward the limits of the other warnings.
   */
  constructor(first?: string) {
    this.#first = first === undefined ? undefined : { pointer: first, warnings: new WarningList() };
  }

  get isEmpty(): boolean {
    return this.#warnings.length === 0;
  }

  add(pointer: string, code: WarningCode, message: string): void {
    const first = this.#first;
    if (first !== undefined && `${pointer}/`.startsWith(`${first.pointer}/`)) {
      first.warnings.add(pointer, code, message);
      return;
    }
    const count = (this.#counts.get(code) ?? 0) + 1;
    this.#counts.set(code, count);
    if (count <= MAX_WARNINGS_OF_A_CODE) this.#warnings.push({ pointer, code, message });
  }

  /** Adds the warnings of `part`, which are about the element with the JSON pointer `base`. */
  addAll(base: string, part: WarningList): void {
    if (part.isEmpty) return;
    for (const { pointer, code, message } of part.#warnings) this.add(base + pointer, code, message);
    for (const [code, count] of part.#counts) {
      const more = count - MAX_WARNINGS_OF_A_CODE;
      if (more > 0) this.#counts.set(code, (this.#counts.get(code) ?? 0) + more);
    }
  }

  all(): Warning[] {
    const found = [...(this.#first?.warnings.all() ?? []), ...this.#warnings];
    for (const [code, count] of this.#counts) {
      if (count <= MAX_WARNINGS_OF_A_CODE) continue;
      const message = `There are ${count - MAX_WARNINGS_OF_A_CODE} more warnings of this kind.`;
      found.push({ pointer: '', code, message });
    }
    return found;
  }
}
