/** The bounds of a policy document (D2). */
export const LIMITS = {
  groups: 100_000,
  rules: 100_000,
  priority: 4_294_967_295,
  nameLength: 253,
} as const;
