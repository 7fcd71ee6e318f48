import { fromPromise } from 'xstate';
import type { Bus } from '#bus/bus.js';
import type { Message, PerformanceMode, PerformanceModeWrite } from '#bus/messages.js';
import type { Datapath } from '#dataplane/datapath.js';
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

export type PerformanceModePorts = {
  readonly settings: SettingsStore;
  /** Sends events while the mode is enabled (D34); null without a dataplane. */
  readonly datapath: Pick<Datapath, 'setEventsWanted'> | null;
  readonly now: () => Date;
};

export function performanceModeActor(bus: Bus<Message>, { settings, datapath, now }: PerformanceModePorts) {
  return performanceModeChart.provide({
    actions: { publish: (_, { message }) => bus.publish(message) },
    actors: {
      read: fromPromise(async () => {
        // Until the setting is known, the built-in default applies.
        await datapath?.setEventsWanted(true);
        const setting = (await settings.get(KEY)) as Setting | null;
        if (setting === null) return null;
        await datapath?.setEventsWanted(setting.enabled);
        return modeOf(setting);
      }),
      write: fromPromise<PerformanceMode, { write: PerformanceModeWrite; revision: number }>(async ({ input }) => {
        const { write, revision } = input;
        const { enabled, author } = write;
        const setting: Setting = { enabled, revision, updated_at: now().toISOString(), updated_by: author };
        await settings.put(KEY, setting);
        await datapath?.setEventsWanted(enabled);
        return modeOf(setting);
      }),
    },
  });
}

const modeOf = ({ enabled, revision }: Setting): PerformanceMode => ({ enabled, source: 'local', revision });
