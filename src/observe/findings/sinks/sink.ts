import type { ShownFinding } from '../shown.js';

/** A finding as a sink is told of it. `position` rises from one to the next, and is the same where it is told twice. */
export type Told = ShownFinding & { position: number; new_count: number };

export type Sink = {
  readonly name: SinkName;
  /** Rejects with why it was not delivered, without any secret in the message. */
  deliver(told: readonly Told[], signal: AbortSignal): Promise<void>;
};
export type SinkName = 'file' | 'webhook';
