const UNIT_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;
const DURATION = /^(\d+)(ms|s|m|h|d)$/;

/** Converts a duration such as `500ms`, `60s`, `5m` or `2h` to milliseconds; undefined for another text. */
export function durationMs(value: string): number | undefined {
  const [, digits, unit] = DURATION.exec(value) ?? [];
  if (digits === undefined || unit === undefined) return undefined;
  return Number(digits) * UNIT_MS[unit as keyof typeof UNIT_MS];
}
