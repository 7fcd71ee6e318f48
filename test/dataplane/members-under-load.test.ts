import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { MembershipChange, SelectorSet } from '#contracts/kubernetes/membership.js';
import { type Address, type Family, ICMP } from '#contracts/policy/policy-model.js';
import { homeOf } from '#dataplane/grants/address-hash.js';
import { MEMBER_LAYOUTS, MEMBER_LINE, memberLines } from '#dataplane/members/member-layout.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { compile } from '#policy/compile/compile.js';
import { group, icmp, policy, rule, selector } from '#test/policy/sample.js';
import { Random } from '#test/seed.js';
import { FAMILY_FRAMES } from './family-frames.js';
import { MAX_FRAME } from './frame.js';
import { type Loaded, loadForTest } from './loaded.js';

const ROUNDS = 120;
const WEB: SelectorSet = { number: 1, keys: [selector('web').key] };
const DB: SelectorSet = { number: 2, keys: [selector('db').key] };

/** An ICMP error opens no flow, so the datapath classifies every packet of the load by the policy. */
const IPV4_PACKET = icmp(3);
const IPV6_PACKET = {
  ...icmp(1),
  protocol: ICMP.ipv6,
  source: 0x2001_0db8_0000_0001_0000_0000_0000_0001n,
  destination: 0x2001_0db8_0000_0002_0000_0000_0000_0001n,
};

const change = (members: readonly (readonly [Address, SelectorSet | null])[]): MembershipChange => ({
  added: [WEB, DB],
  addresses: members.map(([address]) => address),
  sets: Uint32Array.from(members, ([, set]) => set?.number ?? 0),
  dropped: [],
});

describe.each(['ipv4', 'ipv6'] as const)('members of %s under load', (family) => {
  const pod: Address = family === 'ipv4' ? IPV4_PACKET.source : IPV6_PACKET.source;
  let kernel: Loaded<Family>;
  let neighbours: readonly Address[];
  beforeEach(() => {
    kernel = loadForTest<Family>({ family, slotLines: 64 });
    neighbours = neighboursOf();
  });
  afterEach(() => kernel.close());

  /**
   * Returns twice as many addresses as have room in the cache lines that a search for the pod reads first.
   * Those of IPv6 have one half of their bits in common with the pod, as an address that is stored in part.
   */
  function neighboursOf(): readonly Address[] {
    const object = family === 'ipv4' ? kernel.object : kernel.ipv6?.object;
    if (object === undefined) throw new Error('the object of IPv6 is not loaded');
    const memory = new MappedMemory('members', object.mapFd('members'), memberLines(family) * MEMBER_LINE.words * 4);
    const home = homeOf(memory.words, pod);
    const found: Address[] = [];
    const wanted = 4 * MEMBER_LAYOUTS[family].places;
    for (let one = 1; found.length < wanted; one++) {
      const other =
        typeof pod === 'number' ? pod + one : one % 2 === 0 ? pod + BigInt(one) : pod + (BigInt(one) << 64n);
      if (Math.abs(homeOf(memory.words, other) - home) <= 1) found.push(other);
    }
    memory.unmap();
    return found;
  }

  /** Puts a policy in force in which pods of these apps may send the packet. The pod is the only member. */
  function activate(apps: readonly ('web' | 'db')[], set: SelectorSet): void {
    const judged = policy(
      (['web', 'db'] as const).map((app) =>
        group([], [rule({ id: app, protocol: apps.includes(app) ? ICMP[family] : 17 })], {
          selectors: [selector(app)],
        }),
      ),
    );
    const scope = { resolved: new Set([...WEB.keys, ...DB.keys]), podNetworks: [], networks: new Map() };
    // The policy has the rules of both sets.
    const list = change([[pod, WEB], ...(neighbours[0] === undefined ? [] : [[neighbours[0], DB] as const])]);
    kernel.activate(compile(judged, { ipv6: true, membership: { scope, list } }));
    kernel.members.replace(change([[pod, set]]));
    kernel.forget();
  }

  /** Runs the packet of the pod in another thread until `stop`, which returns the number of packets. */
  function load(): () => Promise<number> {
    const frame = new Uint8Array(MAX_FRAME);
    const length =
      family === 'ipv4' ? FAMILY_FRAMES.ipv4.write(frame, IPV4_PACKET) : FAMILY_FRAMES.ipv6.write(frame, IPV6_PACKET);
    const run = new TestRun(kernel.object.programFd('weir_ingress'), frame, new Uint8Array(192), undefined);
    const batch = 20_000;
    let isStopped = false;
    const ended = (async () => {
      let count = 0;
      for (; !isStopped; count += batch) await run.runBeside(length, batch);
      return count;
    })();
    return () => {
      isStopped = true;
      return ended;
    };
  }

  /** Gives places of the table from one address to another. Calls `also` with the changes of each round. */
  async function churn(setsOf: readonly SelectorSet[], also: (random: Random) => void = () => {}): Promise<void> {
    const random = new Random(5);
    for (let round = 0; round < ROUNDS; round++) {
      for (let count = 0; count < 20; count++)
        kernel.members.change(change([[random.pick(neighbours), random.chance(0.5) ? random.pick(setsOf) : null]]));
      also(random);
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
  }

  test('every packet of a Kubernetes member passes while it moves between two sets of selectors that allow it, and the members at neighbouring places of the table change', async () => {
    activate(['web', 'db'], WEB);
    const stop = load();
    await churn([WEB, DB], () => {
      for (let count = 0; count < 100; count++) kernel.members.change(change([[pod, count % 2 === 0 ? DB : WEB]]));
    });
    const packets = await stop();
    expect(kernel.counted()).toEqual({ allow: packets });
    console.log(`${family}: ${packets} packets, all passed`);
  });

  test('no packet of a Kubernetes member passes by the set of selectors of another address that had its place, or gets its place', async () => {
    activate(['web'], DB);
    const stop = load();
    await churn([WEB], (random) => {
      kernel.members.change(change([[pod, random.chance(0.7) ? DB : null]]));
    });
    const packets = await stop();
    expect(kernel.counted()).toEqual({ drop_policy_deny: packets });
    console.log(`${family}: ${packets} packets, none passed`);
  });
});
