/**
 * Returns a test whether a name matches one of the patterns, which are names, or `*.` before a name. Null
 * without patterns.
 */
export function nameTest(patterns: readonly string[]): ((name: string) => boolean) | null {
  if (patterns.length === 0) return null;
  const exact = new Set(patterns.filter((pattern) => !pattern.startsWith('*.')));
  const suffixes = patterns.filter((pattern) => pattern.startsWith('*.')).map((pattern) => pattern.slice(1));
  return (name) => exact.has(name) || suffixes.some((suffix) => name.endsWith(suffix));
}
