import type { Problem, ProblemCode } from '#contracts/policy-problem.js';
import { type Path, pointerOf } from '#policy/model/pointer.js';

/** A response lists at most this many problems. One more entry then tells the number of omitted problems. */
export const MAX_PROBLEMS = 1000;

/** Collects the problems of one policy document. */
export class ProblemList {
  readonly #problems: Problem[] = [];
  #more = 0;

  add(pointer: string, code: ProblemCode, message: string): void {
    if (this.#problems.length < MAX_PROBLEMS) this.#problems.push({ pointer, code, message });
    else this.#more++;
  }

  addAt(path: Path, code: ProblemCode, message: string): void {
    this.add(pointerOf(path), code, message);
  }

  all(): Problem[] {
    if (this.#more === 0) return this.#problems;
    const message = `There are ${this.#more} more problems.`;
    return [...this.#problems, { pointer: '', code: 'more_problems', message }];
  }
}
