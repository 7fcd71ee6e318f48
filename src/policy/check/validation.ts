import type { Form } from '#contracts/policy-document.js';
import type { Damaged } from '#policy/document/intact.js';
import type { ProblemList } from '#policy/document/problem-list.js';

/** What validation asks of the world around the policy. */
export type ValidationContext = {
  readonly form: Form;
  /** Names of the integrations that exist; undefined if that cannot be known here. */
  readonly integrations: ReadonlySet<string> | undefined;
  /** Undefined for a certificate in PEM that parses, else what is wrong with it. */
  readonly parseCertificate: (pem: string) => string | undefined;
  /** The document is one that was stored: the bounds of expressions may be newer than it, and do not keep it from being enforced. */
  readonly isStored?: boolean | undefined;
};

/** What the validation of every part is handed. */
export type Validation = {
  readonly problems: ProblemList;
  readonly context: ValidationContext;
  readonly damaged: Damaged;
  /** Instructions of the expressions that were compiled so far. */
  readonly expressions: { instructions: number };
};
