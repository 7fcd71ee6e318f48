import type { Form } from '#contracts/policy/policy-document.js';
import type { Problem, ProblemCode } from '#contracts/policy/policy-problem.js';
import type { Damaged } from '#policy/document/shape.js';
import { type Path, pointerOf } from '#policy/model/pointer.js';

/** A response lists at most this many problems. One more entry then tells the number of omitted problems. */
export const MAX_PROBLEMS = 1000;

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

/** Information that validation needs and that the policy document does not contain. */
export type ValidationContext = {
  readonly form: Form;
  /**
   * The names of the existing integrations. If undefined, validation accepts every name that is not empty.
   */
  readonly integrations: ReadonlySet<string> | undefined;
  /**
   * Parses a PEM certificate. Returns undefined for a valid certificate, and otherwise a sentence about the
   * fault.
   */
  readonly parseCertificate: (pem: string) => string | undefined;
  /** Whether the node enforces IPv6 policies. If not, a document with IPv6 addresses is not valid. */
  readonly ipv6?: boolean | undefined;
  /**
   * Whether the document comes from the store. The limits of regular expressions, and the check of paths that
   * no request has, do not apply to a stored document: an older version of Weir may have accepted it, and the
   * node must enforce it.
   */
  readonly isStored?: boolean | undefined;
};

/** The state that all validation functions share. */
export type Validation = {
  readonly problems: ProblemList;
  readonly context: ValidationContext;
  readonly damaged: Damaged;
  /** The total number of instructions of all regular expressions that validation has compiled. */
  readonly expressions: { instructions: number };
};
