import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  type Address,
  type AddressOf,
  type Family,
  ICMP,
  type Packet,
  type Rule,
} from '#contracts/policy/policy-model.js';
import type { Program } from '#contracts/policy/program.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { compile } from '#policy/compile/compile.js';
import { group, icmp, policy, rule } from '#test/policy/sample.js';
import { Random } from '#test/seed.js';
import { FAMILY_FRAMES } from './family-frames.js';
import { MAX_FRAME } from './frame.js';
import { type Loaded, loadForTest } from './loaded.js';

const ROUNDS = 150;
const CAPACITY = 128;
const NEIGHBOURS = 96;
const HOUR_NS = 3_600_000_000_000n;

/** An ICMP error opens no flow, so the datapath classifies every packet of the load by the policy. */
const PACKETS: { readonly [F in Family]: Packet<AddressOf<F>> } = {
  ipv4: icmp(3),
  ipv6: {
    ...icmp(1),
    protocol: ICMP.ipv6,
    source: 0x2001_0db8_0000_0001_0000_0000_0000_0001n,
    destination: 0x2001_0db8_0000_0002_0000_0000_0000_0001n,
  },
};
/**
 * Addresses whose grants share the few cache lines of the grant table with the grant of the destination. Half
 * of those of IPv6 have one half of their bits in common with it or are otherwise 0, as an address that is
 * stored in part.
 */
const NEIGHBOURS_OF: { readonly [F in Family]: readonly AddressOf<F>[] } = {
  ipv4: Array.from({ length: NEIGHBOURS }, (_, index) => PACKETS.ipv4.destination + 1 + index),
  ipv6: Array.from({ length: NEIGHBOURS }, (_, index) => {
    const { destination } = PACKETS.ipv6;
    if (index % 2 === 0) return destination + 1n + BigInt(index);
    return index % 4 === 1
      ? ((destination >> 64n) << 64n) + BigInt(index + 1)
      : BigInt.asUintN(64, destination) + (BigInt(index) << 64n);
  }),
};

describe.each(['ipv4', 'ipv6'] as const)('grants of %s under load', (family) => {
  const packet = PACKETS[family];
  const neighbours: readonly Address[] = NEIGHBOURS_OF[family];

  function named(text: string, action: Rule['action'] = 'allow'): Rule {
    return rule({
      id: text,
      action,
      protocol: ICMP[family],
      hostname: { kind: 'exact', labels: text.split('.'), text },
    });
  }

  function ofNames(...rules: readonly Rule[]): Program {
    return compile(policy([group(['10.0.0.0/8', '2001:db8:0:1::/64'], rules)]), { ipv6: true });
  }

  let kernel: Loaded<Family>;
  beforeEach(() => {
    kernel = loadForTest<Family>({ family, slotLines: 64, grantCapacity: CAPACITY });
  });
  afterEach(() => kernel.close());

  function grant(pattern: string, addresses: readonly Address[]): void {
    const now = process.hrtime.bigint();
    kernel.grants.add([{ pattern, addresses, expiresAtNs: now + HOUR_NS }], now);
  }

  /**
   * Runs the packet through the ingress hook in another thread until `stop` is called. `stop` returns the
   * number of packets.
   */
  function load(): { stop(): Promise<number> } {
    const frame = new Uint8Array(MAX_FRAME);
    const length =
      family === 'ipv4' ? FAMILY_FRAMES.ipv4.write(frame, PACKETS.ipv4) : FAMILY_FRAMES.ipv6.write(frame, PACKETS.ipv6);
    const run = new TestRun(kernel.object.programFd('weir_ingress'), frame, new Uint8Array(192), undefined);
    const batch = 20_000;
    let stopped = false;
    const ended = (async () => {
      let count = 0;
      for (; !stopped; count += batch) await run.runBeside(length, batch);
      return count;
    })();
    return {
      stop: () => {
        stopped = true;
        return ended;
      },
    };
  }

  /**
   * Adds and removes grants of the neighbour addresses, so that entries of the grant table change from one
   * address to another. Calls `between` after each round.
   */
  async function churn(patterns: readonly string[], between: (round: number) => void, grace = awaitGracePeriod) {
    const random = new Random(5);
    for (let round = 0; round < ROUNDS; round++) {
      for (let count = 0; count < 60; count++) {
        const addresses = [random.pick(neighbours), random.pick(neighbours)];
        const pattern = random.pick(patterns);
        if (random.chance(0.6)) grant(pattern, addresses);
        else kernel.grants.remove([{ pattern, addresses }]);
      }
      between(round);
      grace();
      kernel.grants.afterGrace();
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
  }

  test('every packet to an address that DNS lookups granted passes while policies replace each other and grants of other addresses change', async () => {
    const programs = [
      ofNames(named('held.test'), named('a.test', 'deny')),
      ofNames(named('b.test', 'deny'), named('c.test'), named('a.test', 'deny'), named('held.test')),
    ] as const;
    kernel.activate(programs[0]);
    grant('held.test', [packet.destination]);
    const running = load();
    await churn(['a.test', 'b.test', 'held.test'], (round) => {
      grant('c.test', [packet.destination]);
      kernel.activate(programs[round % 2 === 0 ? 1 : 0]);
      kernel.grants.sweep(process.hrtime.bigint());
    });
    const judged = await running.stop();
    expect(kernel.counted()).toEqual({ allow: judged });
    console.log(`${ROUNDS} swaps, ${judged} packets, all passed`);
  });

  test('no packet passes because DNS lookups granted another address, or granted the address for a pattern that denies the packet', async () => {
    const programs = [
      ofNames(named('a.test'), named('b.test'), named('never.test', 'deny')),
      ofNames(named('never.test', 'deny'), named('b.test'), named('a.test'), named('d.test')),
    ] as const;
    kernel.activate(programs[0]);
    const running = load();
    await churn(['a.test', 'b.test', 'd.test'], (round) => {
      // The test adds and removes the grant of the destination repeatedly, so that this grant reuses table
      // entries that other addresses had before.
      if (round % 3 === 0) kernel.grants.remove([{ pattern: 'never.test', addresses: [packet.destination] }]);
      else grant('never.test', [packet.destination]);
      if (round % 2 === 0) kernel.activate(programs[(round >> 1) % 2 === 0 ? 1 : 0]);
      kernel.grants.sweep(process.hrtime.bigint());
    });
    const judged = await running.stop();
    expect(kernel.counted()).toEqual({ drop_policy_deny: judged });
    console.log(`${ROUNDS} rounds, ${judged} packets, none passed`);
  });
});
