import { redactedBytes } from '../redaction.js';
import { type Chunk, type Collector, MAX_BYTES, TIMEOUT_MS } from './collector.js';

/**
 * `cut`: the file exceeded its limit. A file that failed or timed out contains the bytes collected until
 * then.
 */
type Outcome = 'complete' | 'cut' | 'failed' | 'timed_out';

export type Collected = {
  readonly outcome: Outcome;
  /** The reason of a failure; null without one. */
  readonly error: string | null;
  readonly bytes: Buffer;
  readonly ms: number;
};

/**
 * Runs one collector within its limits of time and size. Never rejects, and does not wait for a collector
 * that hangs.
 */
export async function collect(collector: Collector, signal: AbortSignal): Promise<Collected> {
  const { timeoutMs = TIMEOUT_MS, maxBytes = MAX_BYTES } = collector;
  const began = performance.now();
  const ended = new AbortController();
  const chunks: Buffer[] = [];
  let size = 0;
  const run = async (): Promise<Outcome> => {
    for await (const chunk of collector.collect(AbortSignal.any([signal, ended.signal]))) {
      if (ended.signal.aborted) return 'timed_out';
      const whole = bufferOf(chunk);
      const bytes = whole.subarray(0, maxBytes - size);
      chunks.push(bytes);
      size += bytes.length;
      if (bytes.length < whole.length) return 'cut';
    }
    return 'complete';
  };
  let error: string | null = null;
  const running = run().catch((failure: unknown): Outcome => {
    error = sentenceOf(failure);
    return 'failed';
  });
  const outcome = await Promise.race([running, end(timeoutMs, signal, ended.signal)]);
  const kept = Buffer.concat(chunks);
  ended.abort();
  return { outcome, error, bytes: redactedBytes(kept), ms: Math.round(performance.now() - began) };
}

/** Resolves at the timeout, or when the dump is cancelled. */
function end(timeoutMs: number, signal: AbortSignal, over: AbortSignal): Promise<Outcome> {
  return new Promise((resolve) => {
    const give = (): void => resolve('timed_out');
    const timer = setTimeout(give, timeoutMs);
    over.addEventListener('abort', () => clearTimeout(timer), { once: true });
    signal.addEventListener('abort', give, { once: true, signal: over });
    if (signal.aborted) give();
  });
}

function bufferOf(chunk: Chunk): Buffer {
  return typeof chunk === 'string' ? Buffer.from(chunk) : Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
}

function sentenceOf(failure: unknown): string {
  return failure instanceof Error ? failure.message : String(failure);
}
