import { fromPromise } from 'xstate';
import type { Bus } from '#bus/bus.js';
import type { Message, PerformanceMode, PerformanceModeWrite } from '#bus/messages.js';
import { performanceModeChart } from '#statecharts/performance-mode.chart.js';
import type { SettingsStore } from '#store/port.js';

const KEY = 'performance_mode';

/** As it is stored. */
type Setting = {
  readonly enabled: boolean;
  readonly revision: number;
  readonly updated_at: string;
  readonly updated_by: string;
};

export function performanceModeActor(bus: Bus<Message>, settings: SettingsStore, now: () => Date) {
  return performanceModeChart.provide({
    actions: { publish: (_, { message }) => bus.publish(message) },
    actors: {
      read: fromPromise(async () => {
        const setting = (await settings.get(KEY)) as Setting | null;
        return setting === null ? null : modeOf(setting);
      }),
      write: fromPromise<PerformanceMode, { write: PerformanceModeWrite; revision: number }>(async ({ input }) => {
        const { write, revision } = input;
        const { enabled, author } = write;
        const setting: Setting = { enabled, revision, updated_at: now().toISOString(), updated_by: author };
        await settings.put(KEY, setting);
        return modeOf(setting);
      }),
    },
  });
}

const modeOf = ({ enabled, revision }: Setting): PerformanceMode => ({ enabled, source: 'local', revision });
