/** Returns the message of the error with which an invoked actor ended. */
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
 * Returns a placeholder for the implementation of an actor in a chart. The placeholder throws, so that an
 * error shows if the implementation was not provided.
 */
export function notProvided(name: string): () => never {
  return () => {
    throw new Error(`the statechart has no implementation of its actor "${name}"`);
  };
}
