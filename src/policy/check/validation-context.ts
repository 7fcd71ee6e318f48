import type { Form } from '#contracts/policy-document.js';
import type { Damaged } from '#policy/document/intact.js';
import type { ProblemList } from '#policy/document/problem-list.js';

/** Facts outside of the policy that validation needs. */
export type ValidationContext = {
  readonly form: Form;
  /** Names of the existing integrations; undefined if they are not known here. */
  readonly integrations: ReadonlySet<string> | undefined;
  /** Undefined for a valid certificate in PEM, else a sentence about the fault. */
  readonly parseCertificate: (pem: string) => string | undefined;
  /**
   * The document is from the store. The bounds of expressions may be newer than the document, and must not
   * prevent its enforcement.
   */
  readonly isStored?: boolean | undefined;
};

/** The state that all validation functions share. */
export type Validation = {
  readonly problems: ProblemList;
  readonly context: ValidationContext;
  readonly damaged: Damaged;
  /** The total of the expressions that were compiled so far. */
  readonly expressions: { instructions: number };
};
