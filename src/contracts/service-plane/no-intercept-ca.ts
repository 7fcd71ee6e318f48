/**
 * The text in readiness, explain, warnings and the API if a rule needs the intercept CA and there is none. It
 * contains the remedy.
 */
export const CA_ABSENT = 'there is no intercept CA (`weir ca generate` makes one)';
