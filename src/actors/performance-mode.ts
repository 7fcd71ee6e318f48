import { type AnyActorRef, type AnyMachineSnapshot, waitFor } from 'xstate';
import { ask } from '#bus/ask.js';
import type { Bus } from '#bus/bus.js';
import type { Message } from '#bus/bus-messages.js';
import { isRefusal } from '#bus/refused.js';
import type { PerformanceModeContext } from '#statecharts/performance-mode.chart.js';
import type { SettingsStore } from '#store/store-types.js';
import type { Operations } from './operations.js';

/** The time limit of a write in milliseconds. */
const WRITE_TIMEOUT_MS = 10_000;
/** The time limit in milliseconds of the first read of the setting, which the start of the node includes. */
const READ_TIMEOUT_MS = 2_000;

/**
 * Returns the operations on performance mode. `actor`: returns the actor that keeps the setting; undefined
 * while the actor is restarted.
 */
export function performanceModeOver(
  bus: Bus<Message>,
  source: SettingsStore['source'],
  actor: () => AnyActorRef | undefined,
): Operations['performanceMode'] {
  return {
    source,
    read: async () => {
      const keeper = actor();
      if (keeper === undefined) throw new Error('read the performance mode: the actor failed and is being restarted');
      const isKnown = (snapshot: AnyMachineSnapshot) => !snapshot.matches('reading');
      const snapshot = (await waitFor(keeper, isKnown, { timeout: READ_TIMEOUT_MS })) as AnyMachineSnapshot;
      return (snapshot.context as PerformanceModeContext).mode;
    },
    write: async (write) => {
      const outcome = await ask(bus, 'performance_mode.write', { write }, WRITE_TIMEOUT_MS);
      return isRefusal(outcome) ? outcome : outcome.mode;
    },
  };
}
