import { expect, onTestFinished, test } from 'vitest';
import { Ipv6LeakTest } from './ipv6-leaks.js';

/** `npm run faults` sends a million packets with each kind of forwarding. */
test('with ipv6: enforce, none of ten thousand denied packets arrives while policies, processes and nftables change', async () => {
  const leaks = await Ipv6LeakTest.create('v6leak', 'direct');
  onTestFinished(() => leaks.remove());
  leaks.begin(2_000);
  const found = await leaks.runEvents(10_000);
  expect(await leaks.end()).toBeGreaterThan(9_000);
  expect(found).toEqual(Object.fromEntries(Object.keys(leaks.events).map((name) => [name, 0])));
  await leaks.arriveIfAllowed();
});
