/** The bounds of a policy document (D2, D13). */
export const LIMITS = {
  groups: 100_000,
  rules: 100_000,
  priority: 4_294_967_295,
  nameLength: 253,
  /** Of one expression, and of all expressions of a policy, each counted where it stands. */
  regexInstructions: 1_000,
  policyInstructions: 100_000,
} as const;
