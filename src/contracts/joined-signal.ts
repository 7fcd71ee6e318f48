/**
 * Calls `work` with a signal that aborts when one of `sources` aborts, with the same reason. After `work` has
 * ended, the signal ignores the sources. Use it instead of `AbortSignal.any`: Node.js 20 may free the signal
 * of that function while it is in use, and then an abort is lost.
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
