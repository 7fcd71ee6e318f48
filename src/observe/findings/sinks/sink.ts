import type { ShownFinding } from '#observe/findings/finding-json.js';

/**
 * A finding as a sink (file or webhook) receives it. `position` rises with each change. A finding that is
 * delivered twice has the same `position` both times.
 */
export type DeliveredFinding = ShownFinding & { position: number; new_count: number };

export type Sink = {
  readonly name: SinkName;
  /**
   * Delivers findings. Rejects if the delivery failed. The error message is logged, so it must not contain a
   * secret.
   */
  deliver(findings: readonly DeliveredFinding[], signal: AbortSignal): Promise<void>;
};
export type SinkName = 'file' | 'webhook';
