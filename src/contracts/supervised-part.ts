/** A part of the node without a chart of its own: a thread, or a file that is followed. */
export type SupervisedPart = {
  /** Resolves when the part runs; rejects with the reason why it does not. */
  begin(): Promise<void>;
  /** Calls back with the reason of each failure, and with null when the part runs again without `begin`. */
  watch(listener: (failure: string | null) => void): () => void;
};
