import { withJoinedSignal } from '#contracts/joined-signal.js';
import { redactedBytes } from '#observe/log/redaction.js';
import { type Chunk, type Collector, MAX_BYTES, TIMEOUT_MS } from './collector.js';

/**
 * How a collector, which produces one file of a support dump, ended. `cut`: the file exceeded its size limit
 * and was truncated. `failed`, `timed_out`: the file contains only the bytes that the collector produced
 * before it failed or reached its time limit.
 */
type Outcome = 'complete' | 'cut' | 'failed' | 'timed_out';

export type Collected = {
  readonly outcome: Outcome;
  /** The error message of a failed collector; null if the collector did not fail. */
  readonly error: string | null;
  readonly bytes: Buffer;
  readonly ms: number;
};

/**
 * Runs one collector within its time limit and size limit. Never rejects. Resolves at the time limit even if
 * the collector does not stop.
 */
export async function collect(collector: Collector, signal: AbortSignal): Promise<Collected> {
  const { timeoutMs = TIMEOUT_MS, maxBytes = MAX_BYTES } = collector;
  const began = performance.now();
  const ended = new AbortController();
  const chunks: Buffer[] = [];
  let size = 0;
  const run = async (joined: AbortSignal): Promise<Outcome> => {
    for await (const chunk of collector.collect(joined)) {
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
  const running = withJoinedSignal([signal, ended.signal], run).catch((failure: unknown): Outcome => {
    error = sentenceOf(failure);
    return 'failed';
  });
  const outcome = await Promise.race([running, end(timeoutMs, signal, ended.signal)]);
  const kept = Buffer.concat(chunks);
  ended.abort();
  return { outcome, error, bytes: redactedBytes(kept), ms: Math.round(performance.now() - began) };
}

/**
 * Resolves with `timed_out` after `timeoutMs`, or when `signal` cancels the dump. `over` aborts when the
 * result of the collector is known; the timer is then cleared.
 */
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
