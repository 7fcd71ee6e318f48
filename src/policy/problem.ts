/** Something wrong with a document. `pointer` is an RFC 6901 JSON pointer into the body that was sent. */
export type Problem = { readonly pointer: string; readonly code: ProblemCode; readonly message: string };
/** Something valid that is probably not meant (D16). Never blocks a write. */
export type Warning = { readonly pointer: string; readonly code: WarningCode; readonly message: string };

export type ProblemCode = (typeof PROBLEM_CODES)[number];
export type WarningCode = (typeof WARNING_CODES)[number];

/** Every problem code, with what it means; `docs/errors.md` is written from this table. */
export const PROBLEM_CODES = ['invalid_type'] as const;
export const WARNING_CODES = ['host_bits'] as const;
