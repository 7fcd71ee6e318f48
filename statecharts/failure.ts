/** The error of an invoked actor, as a sentence. */
export function sentenceOf(failure: unknown): string {
  return failure instanceof Error ? failure.message : String(failure);
}

/** The name of an errno, or a code of Weir; null where the failure has none. */
export function codeOf(failure: unknown): string | null {
  return failure instanceof Error && 'code' in failure && typeof failure.code === 'string' ? failure.code : null;
}

/** Exponential back-off: `firstMs`, doubled with every attempt, never above `maxMs`. */
export function backoffMs(attempts: number, firstMs: number, maxMs: number): number {
  return Math.min(firstMs * 2 ** Math.min(attempts, 30), maxMs);
}

/** Default implementation of an effect that an actor must bind. */
export function notProvided(name: string): () => never {
  return () => {
    throw new Error(`actor "${name}" was not provided`);
  };
}
