/**
 * A part of the node that has no statechart of its own: a thread, or an object that reads a file again
 * whenever the file changes.
 */
export type SupervisedPart = {
  /** Starts the part. Resolves when the part runs, and rejects with the reason if the part cannot start. */
  begin(): Promise<void>;
  /**
   * Calls the listener with the reason of each failure of the part. Calls it with null if the part recovers
   * without another call of `begin`. Returns a function that removes the listener.
   */
  watch(listener: (failure: string | null) => void): () => void;
};
