/** Returns the message of an error that an invoked actor rejected with. */
export function sentenceOf(failure: unknown): string {
  return failure instanceof Error ? failure.message : String(failure);
}

/**
 * Returns the `code` of an error: the name of an errno, or an error code of Weir. Null if the error has no
 * code.
 */
export function codeOf(failure: unknown): string | null {
  return failure instanceof Error && 'code' in failure && typeof failure.code === 'string' ? failure.code : null;
}

/**
 * Returns the milliseconds to wait before the next attempt: `firstMs`, doubled with each attempt, at most
 * `maxMs`.
 */
export function backoffMs(attempts: number, firstMs: number, maxMs: number): number {
  return Math.min(firstMs * 2 ** Math.min(attempts, 30), maxMs);
}

/**
 * Returns a placeholder for an effect of a chart. The placeholder throws, so that an actor that does not
 * replace the effect is noticed.
 */
export function notProvided(name: string): () => never {
  return () => {
    throw new Error(`actor "${name}" was not provided`);
  };
}
