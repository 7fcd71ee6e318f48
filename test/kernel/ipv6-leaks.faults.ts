import { expect, onTestFinished, test } from 'vitest';
import { Ipv6LeakTest } from './ipv6-leaks.js';

/** Number of denied packets for each kind of forwarding. `WEIR_PACKETS` replaces the default. */
const PACKETS = Number(process.env.WEIR_PACKETS ?? 1_000_000);

test.each(['stack', 'direct'] as const)(
  'with ipv6: enforce and forwarding: %s, none of a million denied packets arrives while policies, processes and nftables change',
  async (forwarding) => {
    const leaks = await Ipv6LeakTest.create('v6leaks', forwarding);
    onTestFinished(() => leaks.remove());
    leaks.begin(20_000);
    const found = await leaks.runEvents(PACKETS);
    expect(await leaks.end()).toBeGreaterThan(0.9 * PACKETS);
    expect(found).toEqual(Object.fromEntries(Object.keys(leaks.events).map((name) => [name, 0])));
    await leaks.arriveIfAllowed();
  },
);
