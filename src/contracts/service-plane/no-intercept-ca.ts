/**
 * The clause by which readiness, explain, warnings and the API tell that a rule needs the intercept CA, and
 * there is none. It names the remedy.
 */
export const CA_ABSENT = 'there is no intercept CA (`weir ca generate` makes one)';
