const WHOLE = /^(0|[1-9]\d{0,15})$/;

/**
 * Converts a text of decimal digits, without leading zeros, to a safe integer; undefined for another text.
 * `Number` converts an empty text to 0, and also accepts `1e2`, `0x10`, `+10` and blanks.
 */
export function wholeNumberOf(text: string): number | undefined {
  const number = WHOLE.test(text) ? Number(text) : Number.NaN;
  return Number.isSafeInteger(number) ? number : undefined;
}
