/** The maximum sizes of a policy document (D2, D13). */
export const LIMITS = {
  assertions: 1_000,
  /** The maximum number of assertions that compare with a former policy. */
  formerPolicies: 16,
  groups: 100_000,
  rules: 100_000,
  priority: 4_294_967_295,
  nameLength: 253,
  /**
   * The maximum number of compiled instructions of one regular expression, and of all regular expressions in
   * a policy together. An expression that appears twice counts twice.
   */
  regexInstructions: 1_000,
  policyInstructions: 100_000,
} as const;
