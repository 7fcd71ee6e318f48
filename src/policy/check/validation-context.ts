import type { Form } from '#contracts/policy-document.js';
import type { Damaged } from '#policy/document/intact.js';
import type { ProblemList } from '#policy/document/problem-list.js';

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
