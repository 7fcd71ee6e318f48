import { type EventObject, fromCallback, fromPromise } from 'xstate';
import type { SupervisedPart } from '#contracts/supervised-part.js';
import { supervisedPartChart } from '#statecharts/supervised-part.chart.js';

/** Binds the chart of a supervised part to the part. `part` is null if the node does not have this part. */
export function supervisedPartActor(part: SupervisedPart | null) {
  return supervisedPartChart.provide({
    actors: {
      start: fromPromise(async () => part?.begin()),
      watch: fromCallback<EventObject>(({ sendBack }) =>
        part?.watch((reason) =>
          sendBack(reason === null ? { type: 'part.recovered' } : { type: 'part.failed', reason }),
        ),
      ),
    },
  });
}
