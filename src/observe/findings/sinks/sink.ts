import type { ShownFinding } from '#observe/findings/finding-json.js';

/** A finding as a sink receives it. `position` rises, and is the same when a finding is delivered twice. */
export type Told = ShownFinding & { position: number; new_count: number };

export type Sink = {
  readonly name: SinkName;
  /** Rejects with the reason of the failure. The message must not contain a secret. */
  deliver(told: readonly Told[], signal: AbortSignal): Promise<void>;
};
export type SinkName = 'file' | 'webhook';
