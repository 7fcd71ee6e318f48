/**
 * Calls `work` with a signal that aborts when one of `sources` aborts, with its reason. Afterwards the signal
 * follows the sources no longer. Replaces `AbortSignal.any`: Node 20 may free its signal while it is in use,
 * and an abort is then lost.
 */
export async function withJoinedSignal<T>(
  sources: readonly AbortSignal[],
  work: (joined: AbortSignal) => Promise<T>,
): Promise<T> {
  const joined = new AbortController();
  const links = sources.map((source) => ({ source, abort: () => joined.abort(source.reason) }));
  for (const { source, abort } of links) {
    source.addEventListener('abort', abort);
    if (source.aborted) abort();
  }
  try {
    return await work(joined.signal);
  } finally {
    for (const { source, abort } of links) source.removeEventListener('abort', abort);
  }
}
