import { describe, expect, test } from 'vitest';
import { createActor, fromCallback, fromPromise, SimulatedClock, waitFor } from 'xstate';
import { dnsProxyChart } from '#statecharts/dns-proxy.chart.js';
import { servicePlaneChart } from '#statecharts/service-plane.chart.js';
import { INSPECTION, LOOKUPS } from './sample.js';

const INPUT = { configured: true, needed: true, enforced: false, lookups: LOOKUPS, inspection: INSPECTION };

/**
 * Starts a chart whose first attempt to listen fails with the given error; an address of the node changes
 * immediately afterwards.
 */
function failingOnce(chart: typeof dnsProxyChart | typeof servicePlaneChart, failure: Error) {
  let attempts = 0;
  const open = fromPromise(async () => {
    if (++attempts === 1) throw failure;
  });
  const actors = {
    open,
    addressChange: fromPromise(async () => {}),
    watch: fromCallback(() => {}),
    settings: fromCallback(() => {}),
    watchCa: fromCallback(() => {}),
  };
  const clock = new SimulatedClock();
  const actor = createActor(chart.provide({ actors }), { input: INPUT, clock }).start();
  return { actor, clock };
}

const sentence = 'listen on 192.0.2.1:53: EADDRNOTAVAIL';

describe.each([
  ['DNS proxy', dnsProxyChart],
  ['service plane', servicePlaneChart],
])('the %s', (_, chart) => {
  test('the DNS proxy or service plane listens again without a back-off when an address is added to the node after EADDRNOTAVAIL', async () => {
    const { actor } = failingOnce(chart, Object.assign(new Error(sentence), { code: 'EADDRNOTAVAIL' }));
    await waitFor(actor, (snapshot) => snapshot.matches({ running: 'serving' }));
    actor.stop();
  });

  test('the DNS proxy or service plane waits for the back-off if listening fails with an error other than EADDRNOTAVAIL', async () => {
    const { actor, clock } = failingOnce(chart, Object.assign(new Error(sentence), { code: 'EADDRINUSE' }));
    await waitFor(actor, (snapshot) => snapshot.matches({ running: 'backing_off' }));
    await new Promise((resolve) => setImmediate(resolve));
    expect(actor.getSnapshot().matches({ running: 'backing_off' })).toBe(true);
    clock.increment(200);
    await waitFor(actor, (snapshot) => snapshot.matches({ running: 'serving' }));
    actor.stop();
  });
});
