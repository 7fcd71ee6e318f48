import { ask } from '#bus/ask.js';
import type { Bus } from '#bus/bus.js';
import type { Message } from '#bus/bus-messages.js';
import type { LastReload } from '#contracts/config/config-reload.js';
import { refusal } from '#contracts/refusal.js';
import type { Operations } from './operations.js';

/** The time limit of a reload in milliseconds, in addition to the activation timeout of a policy file. */
const TIMEOUT_MS = 120_000;

type Ports = {
  /** Whether the node has a configuration file, and does not stop. */
  readonly canReload: () => boolean;
  readonly activationTimeoutMs: number;
  readonly now: () => Date;
};

/** Returns the operations on the configuration file. Must be called before the first reload. */
export function configurationOver(
  bus: Bus<Message>,
  { canReload, activationTimeoutMs, now }: Ports,
): Operations['configuration'] {
  let lastReload: LastReload | null = null;
  bus.messages.subscribe((message) => {
    if (message.type !== 'config.reloaded') return;
    const { type: _, failure, ...reload } = message;
    lastReload = { ...reload, at: now().toISOString(), detail: failure?.detail ?? null };
  });
  return {
    reload: async (request) => {
      if (!canReload()) return refusal('feature_unavailable', 'the node is shut down, or has no configuration file');
      const timeoutMs = activationTimeoutMs + TIMEOUT_MS;
      return ask(bus, 'config.reload', { request, until: performance.now() + timeoutMs }, timeoutMs);
    },
    lastReload: () => lastReload,
  };
}
