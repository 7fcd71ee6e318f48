const UNITS = [
  ['d', 86_400],
  ['h', 3_600],
  ['min', 60],
  ['s', 1],
] as const;

/**
 * Converts a time in ISO 8601 to a relative time such as `3 min ago` or `in 23 h`. Returns any other text
 * unchanged.
 */
export function relativeTime(time: string): string {
  const at = Date.parse(time);
  if (Number.isNaN(at)) return time;
  const seconds = Math.floor(Math.abs(Date.now() - at) / 1_000);
  const [unit, size] = UNITS.find(([, length]) => seconds >= length) ?? ['s', 1];
  const span = `${Math.floor(seconds / size)} ${unit}`;
  return at > Date.now() ? `in ${span}` : `${span} ago`;
}
