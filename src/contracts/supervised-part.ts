/**
 * A part of the node without a statechart: a thread, or a follower that re-reads a file when the file
 * changes.
 */
export type SupervisedPart = {
  /** Starts the part. Resolves when the part runs, and rejects with the reason if the part cannot start. */
  begin(): Promise<void>;
  /**
   * Calls the listener with the reason of each failure of the part. Calls it with null when the part recovers
   * without another `begin`.
   */
  watch(listener: (failure: string | null) => void): () => void;
};
