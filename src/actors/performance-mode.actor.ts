import { fromPromise } from 'xstate';
import type { Bus } from '#bus/bus.js';
import type { Message, PerformanceMode, PerformanceModeWrite } from '#bus/bus-messages.js';
import { performanceModeChart } from '#statecharts/performance-mode.chart.js';
import type { SettingsStore } from '#store/store-types.js';
import type { EventSwitch } from './event-switch.js';

const KEY = 'performance_mode';

/** The stored setting of performance mode, with the time and author of its last write. */
type Setting = {
  readonly enabled: boolean;
  readonly revision: number;
  readonly updated_at: string;
  readonly updated_by: string;
};

export type PerformanceModePorts = {
  readonly settings: SettingsStore;
  /**
   * The switch for events of the BPF program. This actor enables the switch if and only if performance mode
   * is enabled.
   */
  readonly events: Pick<EventSwitch, 'setEnabled'>;
  readonly now: () => Date;
};

export function performanceModeActor(bus: Bus<Message>, { settings, events, now }: PerformanceModePorts) {
  return performanceModeChart.provide({
    actions: { publish: (_, { message }) => bus.publish(message) },
    actors: {
      read: fromPromise(async () => {
        // Enable events before the store returns the setting: until then, the default of performance mode
        // applies, which is enabled.
        await events.setEnabled(true);
        const setting = (await settings.get(KEY)) as Setting | null;
        if (setting === null) return null;
        await events.setEnabled(setting.enabled);
        return modeOf(setting);
      }),
      write: fromPromise<PerformanceMode, { write: PerformanceModeWrite; revision: number }>(async ({ input }) => {
        const { write, revision } = input;
        const { enabled, author } = write;
        const setting: Setting = { enabled, revision, updated_at: now().toISOString(), updated_by: author };
        await settings.put(KEY, setting);
        await events.setEnabled(enabled);
        return modeOf(setting);
      }),
    },
  });
}

const modeOf = ({ enabled, revision }: Setting): PerformanceMode => ({ enabled, source: 'local', revision });
