import { expect, onTestFinished, test } from 'vitest';
import { LeakTest } from '#test/kernel/nat-leak.js';

/** The number of packets, all denied by the policy, that each of the two hosts sends. */
const PACKETS = 500_000;
/** The packets a second of each host. Sending then lasts for two rounds of events, of up to 30 s each. */
const PER_SECOND = 5_000;

test.each(['stack', 'auto'] as const)(
  'a node with forwarding: %s passes none of a million denied packets through NAT while the datapath and the rules change',
  async (forwarding) => {
    const leaks = await LeakTest.create('trial-leak', forwarding);
    onTestFinished(() => leaks.remove());
    await leaks.begin(PACKETS, PER_SECOND);
    const found: Record<string, number> = {};
    let rounds = 0;
    while (leaks.isSending) {
      for (const [name, event] of Object.entries(leaks.events)) {
        await event();
        found[name] = (found[name] ?? 0) + (await leaks.leaked());
      }
      if (leaks.isSending) rounds++;
    }
    const sent = await leaks.end();
    console.log(JSON.stringify({ sent, rounds, found }));
    expect({ sent, found }).toEqual({
      sent: 2 * PACKETS,
      found: Object.fromEntries(Object.keys(leaks.events).map((name) => [name, 0])),
    });
    expect(rounds).toBeGreaterThanOrEqual(2);
    await leaks.passes();
  },
);
