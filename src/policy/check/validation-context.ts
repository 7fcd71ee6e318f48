import type { Form } from '#contracts/policy-document.js';
import type { Damaged } from '#policy/document/intact.js';
import type { ProblemList } from '#policy/document/problem-list.js';

/** Facts that validation needs and that the policy document does not contain. */
export type ValidationContext = {
  readonly form: Form;
  /**
   * Names of the existing integrations. Undefined if the caller does not know them; validation then accepts
   * every name.
   */
  readonly integrations: ReadonlySet<string> | undefined;
  /** Returns undefined for a valid PEM certificate, and otherwise a sentence about the fault. */
  readonly parseCertificate: (pem: string) => string | undefined;
  /**
   * Whether the document is from the store. A stored document may be older than the present limits of
   * expressions, and must still be enforced.
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
