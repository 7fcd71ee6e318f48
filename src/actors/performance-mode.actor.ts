import { type EventObject, fromCallback, fromPromise } from 'xstate';
import type { Bus } from '#bus/bus.js';
import type { Message, PerformanceMode, PerformanceModeWrite } from '#bus/bus-messages.js';
import { accepted, Refused } from '#bus/refused.js';
import { refusal } from '#contracts/refusal.js';
import { performanceModeChart } from '#statecharts/performance-mode.chart.js';
import { orRefusal } from '#store/or-refusal.js';
import { type PerformanceSetting, RECORDS } from '#store/records/records.js';
import type { SettingsStore } from '#store/store-types.js';
import type { EventSwitch } from './event-switch.js';

const SETTING = RECORDS.performanceMode;

export type PerformanceModePorts = {
  readonly settings: SettingsStore;
  /**
   * The switch for datapath events. This actor turns it on if performance mode is enabled, and off otherwise.
   */
  readonly events: Pick<EventSwitch, 'setEnabled'>;
  readonly now: () => Date;
};

export function performanceModeActor(bus: Bus<Message>, { settings, events, now }: PerformanceModePorts) {
  const modeOf = ({ enabled, revision }: PerformanceSetting): PerformanceMode => ({
    enabled,
    source: settings.source,
    revision,
  });
  return performanceModeChart.provide({
    actions: { publish: (_, { message }) => bus.publish(message) },
    actors: {
      read: fromPromise(async () => {
        // Enable events before the setting is read: until then, the default applies, and performance mode is
        // enabled by default.
        await events.setEnabled(true);
        const setting = await settings.get(SETTING);
        if (setting === null) return null;
        await events.setEnabled(setting.enabled);
        return modeOf(setting);
      }),
      write: fromPromise<PerformanceMode, { write: PerformanceModeWrite }>(async ({ input: { write } }) => {
        const { enabled, author, expectedRevision } = write;
        const outcome = await orRefusal(async () => {
          const setting = await settings.update(SETTING, expectedRevision, (stored): PerformanceSetting => {
            const revision = stored?.revision ?? 0;
            if (expectedRevision !== undefined && expectedRevision !== revision)
              throw new Refused(refusal('precondition_failed', `the stored revision is ${revision}`));
            return { enabled, revision: revision + 1, updated_at: now().toISOString(), updated_by: author };
          });
          return { kind: 'stored' as const, setting };
        });
        const { setting } = accepted(outcome);
        await events.setEnabled(setting.enabled);
        return modeOf(setting);
      }),
      follow: fromPromise<PerformanceMode, { mode: PerformanceMode }>(async ({ input: { mode } }) => {
        await events.setEnabled(mode.enabled);
        return mode;
      }),
      watch: fromCallback<EventObject>(({ sendBack }) => {
        const watching = settings
          .changed(SETTING)
          .subscribe((setting) =>
            sendBack({ type: 'setting.changed', mode: setting === null ? null : modeOf(setting) }),
          );
        return () => watching.unsubscribe();
      }),
    },
  });
}
