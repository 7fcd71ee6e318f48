import { expect, onTestFinished } from 'vitest';
import { hasNetfilterPrograms } from '#dataplane/loader/kernel-functions.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { LeakTest } from './nat-leak.js';

/** `npm run trials -- nat-leak` sends a million packets, during all events. */
const EVENTS = [
  'another policy',
  'flush of conntrack',
  'flush of nftables that leaves NAT',
  'upgrade from another layout',
  'SIGKILL during a takeover',
];

skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test.each(['stack', 'auto'] as const)(
  'with NAT and forwarding: %s, no denied packet passes while the datapath or the rules change',
  async (forwarding) => {
    const leaks = await LeakTest.create('nat-leak', forwarding);
    onTestFinished(() => leaks.remove());
    await leaks.begin(1_000_000, 5_000);
    const found: Record<string, number> = {};
    for (const name of EVENTS) {
      await leaks.events[name]?.();
      found[name] = await leaks.leaked();
    }
    expect(await leaks.end()).toBeGreaterThan(5_000);
    expect(found).toEqual(Object.fromEntries(EVENTS.map((name) => [name, 0])));
    await leaks.passes();
  },
);
