import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { DEFAULT_TIMEOUTS_MS } from '#contracts/datapath/datapath-options.js';
import { VITALS_BYTES, VITALS_OFFSETS } from '#dataplane/abi/hit.js';
import { builtObject } from '#dataplane/loader/bpf-object.js';
import { mapSetsIn } from '#dataplane/object/map-set.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { compile } from '#policy/compile/compile.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { ALLOWED, DENIED, policyOf } from './policies.js';
import { createProbedNode, NOTHING_LOST, type ProbedNode, traffic } from './probed-node.js';
import { claimOtherLayout, compileVariants, type Variants } from './variants.js';

const small = policyOf(0);
const medium = policyOf(4_000);
const NOTHING_HAPPENED = { ...NOTHING_LOST, miscounted: 0, unaccounted: 0 };

let node: ProbedNode;
let variants: Variants;
beforeAll(async () => {
  variants = compileVariants();
  node = await createProbedNode('suc');
});
afterEach(() => node.clear());
afterAll(async () => {
  await node?.remove();
  variants?.remove();
});

async function startWith(policy = small): Promise<void> {
  node.start().attach();
  node.putInForce(policy, 1);
  await node.startProbes();
}

/** Returns a policy whose rule `wanted` comes after `others` other rules. */
function ranked(others: number) {
  const other = Array.from({ length: others }, (_, index) => rule({ id: `other${index}`, to: [`198.18.0.${index}`] }));
  return policy([group([ADDRESSES.client], [...other, rule({ id: 'wanted', ports: [String(ALLOWED)] })])]);
}

test('a restart with other time-outs reuses the BPF maps and loses no packet', async () => {
  await startWith();
  for (let round = 1; round <= 4; round++) {
    await traffic(100);
    node.datapath().close();
    await traffic(50);
    node.start({ timeoutsMs: { ...DEFAULT_TIMEOUTS_MS, udp_replied: 180_000 + round } }).attach();
  }
  expect(node.mapSets()).toEqual(['maps-1']);
  expect(await node.endProbes()).toEqual(NOTHING_HAPPENED);
});

test('after a restart with other mark bits, the guard (nftables rules of Weir) drops no allowed packet', async () => {
  await startWith();
  for (const markMask of [0x000f_0000, 0x00f0_0000, 0x0f00_0000]) {
    await traffic(100);
    node.datapath().close();
    node.start({ markMask }).attach();
  }
  expect(node.mapSets()).toEqual(['maps-1']);
  expect(await node.endProbes()).toEqual(NOTHING_HAPPENED);
});

test('a policy that needs larger maps is put in force in larger maps without packet loss', async () => {
  await startWith();
  const before = node.datapath().stats().maps.program;
  node.putInForce(medium, 2);
  await traffic(300);
  node.putInForce(small, 3);
  const after = node.datapath().stats().maps.program;
  expect([before, after].map((map) => map?.capacity)).toEqual([8_192, 65_536]);
  expect(node.mapSets()).toEqual(['maps-2']);
  expect(await node.endProbes()).toEqual(NOTHING_HAPPENED);
});

test('a policy that exceeds the capacity for compiled policies is refused, and the earlier policy stays in force', async () => {
  node.start({ programCapacity: 10_000 }).attach();
  node.putInForce(small, 1);
  await node.startProbes();
  expect(() => node.datapath().stage(compile(medium), 2)).toThrow(
    expect.objectContaining({ code: 'capacity_exceeded', table: 'program', limit: 10_000 }),
  );
  expect(node.datapath().stats()).toEqual(
    expect.objectContaining({
      generation: 1,
      maps: expect.objectContaining({ program: { entries: 7, capacity: 8_192 } }) as object,
    }),
  );
  expect(node.mapSets()).toEqual(['maps-1']);
  expect(await node.endProbes()).toEqual(NOTHING_HAPPENED);
});

test.each([
  ['larger', { flowCapacity: 131_072 }],
  ['smaller', { flowCapacity: 32_768 }],
])('a restart migrates flows into a flow table of another size (%s) without packet loss', async (_, capacity) => {
  await startWith();
  const flows = node.datapath().stats().activeFlows;
  node.datapath().close();
  const datapath = node.start(capacity);
  datapath.attach();
  expect(datapath.stats()).toEqual(expect.objectContaining({ generation: 1 }));
  expect(datapath.stats().activeFlows).toBeGreaterThanOrEqual(flows);
  expect(node.mapSets()).toEqual(['maps-2']);
  expect(await node.endProbes()).toEqual(NOTHING_HAPPENED);
});

test.each([
  ['the same', {}],
  ['another', { grantCapacity: 4_096 }],
])('a restart migrates DNS grants into a grant table of %s size', (_, capacity) => {
  const named = compile(
    policy([group(['0.0.0.0/0'], [rule({ hostname: { kind: 'exact', labels: ['a', 'test'], text: 'a.test' } })])]),
  );
  const expiresAtNs = process.hrtime.bigint() + 3_600_000_000_000n;
  const first = node.start();
  first.attach();
  first.stage(named, 1);
  first.flip();
  first.grant([{ pattern: 'a.test', addresses: [1, 2, 3], expiresAtNs }]);
  const learned = first.learned();
  first.close();
  const second = node.start({ flowCapacity: 131_072, ...capacity });
  second.attach();
  second.stage(named, 2);
  second.flip();
  const addressesOf = (all: typeof learned) => all.map(({ pattern, addresses }) => [pattern, [...addresses].sort()]);
  expect(addressesOf(second.learned())).toEqual([['a.test', [1, 2, 3]]]);
  expect(second.learned()[0]?.expiresAtNs[0]).toBe(learned[0]?.expiresAtNs[0]);
});

const SIX = 0x2001_0db8_0000_0000_0000_0000_0000_0001n;

test.each([
  ['the same maps', {}],
  ['a flow table of another size', { flowCapacity: 131_072 }],
  ['a grant table of another size', { grantCapacity: 4_096 }],
  ['maps of another layout', 'another layout'],
])('a restart with %s keeps the DNS grants of IPv6 addresses', (_, change) => {
  const named = compile(
    policy([group(['::/0'], [rule({ hostname: { kind: 'exact', labels: ['a', 'test'], text: 'a.test' } })])]),
    { ipv6: true },
  );
  const expiresAtNs = process.hrtime.bigint() + 3_600_000_000_000n;
  const grants = [{ pattern: 'a.test', addresses: [7, SIX, SIX + 1n], expiresAtNs }];
  const first = node.start({ ipv6: 'enforce' });
  first.attach();
  first.stage(named, 1);
  first.flip();
  expect(first.grant(grants)).toEqual({ refused: 0 });
  first.close();
  if (typeof change === 'string') claimOtherLayout(node.topology.pinPath);
  const second = node.start({ ipv6: 'enforce', ...(typeof change === 'string' ? {} : change) });
  second.attach();
  second.stage(named, 2);
  second.flip();
  expect([7, 8, SIX, SIX + 1n, SIX + 2n].map((address) => second.grantedFor(address, false))).toEqual([
    ['a.test'],
    [],
    ['a.test'],
    ['a.test'],
    [],
  ]);
});

test('a build whose IPv6 object has no table of DNS grants is taken over with its IPv6 flows', () => {
  const first = node.start({ ipv6: 'enforce' });
  first.attach();
  first.stage(compile(small, { ipv6: true }), 1);
  first.flip();
  first.close();
  const pins = join(node.topology.pinPath, 'maps-1', 'ipv6');
  rmSync(join(pins, 'grants'));
  const flows = (): number => {
    const set = mapSetsIn(node.topology.pinPath).at(-1);
    try {
      return set?.ipv6.id('flows') ?? 0;
    } finally {
      set?.close();
    }
  };
  const before = flows();
  node.start({ ipv6: 'enforce' }).attach();
  node.datapath().look();
  expect([flows(), existsSync(join(pins, 'grants'))]).toEqual([before, true]);
});

test.each([
  ['a grown policy table', {}, 4_000],
  ['a flow table of another size', { flowCapacity: 131_072 }, 0],
])(
  'a restart with larger or smaller BPF maps (%s) keeps the time since which the policy is in force',
  (_, more, destinations) => {
    node.start().attach();
    const { sinceMs } = node.putInForce(small, 1);
    node.datapath().close();
    vi.useFakeTimers({ toFake: ['Date'], now: sinceMs + 60_000 });
    try {
      node.start(more).attach();
      expect(node.putInForce(policyOf(destinations), 1).sinceMs).toBe(sinceMs);
    } finally {
      vi.useRealTimers();
    }
  },
);

test('a restart converts flows for a build with another layout of struct flow, and back, without packet loss', async () => {
  await startWith(medium);
  for (const objectPath of [variants.shiftedFlows, builtObject]) {
    node.datapath().close();
    node.start({ objectPath }).attach();
    await traffic(300);
  }
  expect(node.datapath().stats()).toEqual(expect.objectContaining({ generation: 1 }));
  expect(node.mapSets()).toEqual(['maps-4']);
  expect(await node.endProbes()).toEqual(NOTHING_HAPPENED);
});

test.each([
  ['flows are migrated and the policy is compiled again', { anotherLayout: true }],
  ['flows are migrated and the policy stays', { capacities: [131_072, 65_536] }],
  ['the maps are reused', {}],
])('packets in counters never flushed count as hits of their rule after a restart: %s', async (_, how) => {
  const { anotherLayout = false, capacities = [65_536] } = how as { anotherLayout?: boolean; capacities?: number[] };
  node.start().attach();
  node.putInForce(ranked(0), 1);
  let sent = 0;
  for (let round = 0; round < 6; round++) {
    expect(await node.answers(ALLOWED, 10_000)).toBe(true);
    sent += 2;
    node.datapath().close();
    if (anotherLayout) claimOtherLayout(node.topology.pinPath);
    node.start({ flowCapacity: capacities[round % capacities.length] ?? 65_536 }).attach();
    node.putInForce(ranked(round + 1), 2 + round);
  }
  const report = node.datapath().hits({ groups: [], rules: ['wanted'], unused: undefined, from: 0, limit: 10 });
  expect(report?.items.map(({ packets }) => Number(packets))).toEqual([sent]);
});

test('the datapath of a build that did not pin its struct layouts is not taken over by a new process, and continues to enforce its policy', async () => {
  node.start().attach();
  node.putInForce(small, 1);
  node.datapath().close();
  const [set = ''] = node.mapSets();
  rmSync(join(node.topology.pinPath, set, 'layouts'));
  expect(() => node.start().attach()).toThrow(/cannot take over.* run weir dataplane detach/);
  expect([await node.answers(ALLOWED), await node.answers(DENIED)]).toEqual([true, false]);
});

test('the datapath tries again to start the timer of the flow table sweep while the kernel has no memory for it, and the sweep then runs', async () => {
  node.start({ objectPath: variants.scarceTimer }).attach();
  node.putInForce(small, 1);
  const set = mapSetsIn(node.topology.pinPath).at(-1);
  if (set === undefined) throw new Error('nothing is pinned');
  const flowSweep = new MappedMemory('vitals', set.fd('vitals'), VITALS_BYTES);
  const sweptNs = () => flowSweep.words[VITALS_OFFSETS.swept_ns / 4];
  try {
    const before = sweptNs();
    await expect.poll(sweptNs).not.toBe(before);
  } finally {
    flowSweep.unmap();
    set.close();
  }
});

test('if the kernel refuses the BPF programs of a new build, the earlier build stays in force without packet loss', async () => {
  await startWith();
  node.datapath().close();
  expect(() => node.start({ objectPath: variants.refused })).toThrow(/^load .*EACCES/);
  await traffic(300);
  expect(node.mapSets()).toEqual(['maps-1']);
  node.start().attach();
  expect(await node.endProbes()).toEqual(NOTHING_HAPPENED);
});
