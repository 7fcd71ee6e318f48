/** The bounds of a policy document (D2, D13). */
export const LIMITS = {
  groups: 100_000,
  rules: 100_000,
  priority: 4_294_967_295,
  nameLength: 253,
  /**
   * The bound for one expression, and for the sum over all expressions of a policy. An expression that is
   * used twice counts twice.
   */
  regexInstructions: 1_000,
  policyInstructions: 100_000,
} as const;
