import { afterEach, beforeEach, expect, test } from 'vitest';
import { OPENED_SHIFT } from '#contracts/datapath/datapath-numbers.js';
import { IPPROTO, type Policy } from '#contracts/policy/policy-model.js';
import { FLOW_BYTES, FLOW_LAYOUTS, FLOW_OFFSETS, readFlow } from '#dataplane/abi/flow.js';
import { HIT_REF_BYTES } from '#dataplane/abi/hit.js';
import { completeFlow, completionOffsets } from '#dataplane/flows/flow-completion.js';
import { anyFlow } from '#dataplane/flows/listing/flow-filter.js';
import { MappedFlows } from '#dataplane/flows/listing/mapped-flows.js';
import { describeMap, mapShape } from '#dataplane/loader/bpf-fd.js';
import { withTally } from '#dataplane/upgrade/struct-conversion.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { compile } from '#policy/compile/compile.js';
import { group, packet, policy, rule } from '#test/policy/sample.js';
import { type Loaded, loadForTest } from './loaded.js';

const dns = packet({ protocol: IPPROTO.udp, destinationPort: 53 });
const EVERYTHING = { groups: [], rules: [], unused: undefined, from: 0, limit: 100 } as const;

let kernel: Loaded;
beforeEach(() => {
  kernel = loadForTest();
});
afterEach(() => kernel.close());

const ofRules = (...ids: readonly string[]): Policy =>
  policy([
    group(
      ['10.0.0.0/8'],
      ids.map((id) => rule({ id, protocol: IPPROTO.udp })),
      { id: 'lan' },
    ),
  ]);

function activate(...ids: readonly string[]): void {
  kernel.activate(compile(ofRules(...ids)));
}

function hits(): Record<string, number> {
  const items = kernel.trafficStatistics.hits(EVERYTHING)?.items ?? [];
  const rules = items.flatMap(({ decider, packets }) =>
    decider.kind === 'rule' ? [[decider.rule, Number(packets)] as const] : [],
  );
  return Object.fromEntries(rules);
}

test('the rule of a flow is stored in the statistics of the flow by the next sweep of the flow table, not by the first packet, while no reader wants events', () => {
  activate('names');
  kernel.runPacket(dns);
  expect(recordsOf()).toMatchObject([{ hit: 0, hitCheck: 0, openedNs: 0n, packets: [1n, 0n] }]);
  kernel.sweep();
  expect(recordsOf()).toMatchObject([{ hit: 1, packets: [1n, 0n] }]);
});

test('the list of flows returns the same values of a flow before and after the first flush of its counters', () => {
  activate('other', 'names');
  activate('names');
  const [flows, sums, rankHits] = ['flows', 'tallies', 'rank_hits'].map((name) => kernel.object.mapFd(name as 'flows'));
  const lines = new MappedFlows(FLOW_LAYOUTS.ipv4, {
    flows: flows ?? -1,
    tallies: sums ?? -1,
    rankHits: rankHits ?? -1,
  });
  const words = new Uint32Array(FLOW_BYTES / 4);
  const listed = () =>
    Array.from({ length: lines.count }, (_, line) =>
      lines.read(line, words) ? [readFlow(FLOW_LAYOUTS.ipv4, new DataView(words.slice().buffer))] : [],
    ).flat();
  try {
    kernel.runPacket(dns);
    const before = listed();
    kernel.sweep();
    expect(before).toEqual(listed());
    expect(before).toMatchObject([{ packets: [1n, 0n], hit: expect.any(Number) as number }]);
    expect(before[0]?.hit).not.toBe(0);
  } finally {
    lines.unmap();
  }
});

test('the first packet of a flow stores the rule and the exact opening time in the statistics of the flow while a reader wants events', () => {
  activate('names');
  kernel.wantEvents(true);
  kernel.runPacket(dns);
  const [flow] = recordsOf();
  expect(flow?.openedNs).toBeGreaterThan(process.hrtime.bigint() - 1_000_000_000n);
  expect([flow?.hit !== 0, (flow?.openedNs ?? 0n) % (1n << BigInt(OPENED_SHIFT)) === 0n]).toEqual([true, false]);
});

test('packets whose counters are not flushed yet count for the rule that allowed them, even after another policy is in force', () => {
  activate('first', 'second');
  kernel.runPacket(dns);
  activate('between');
  activate('other', 'first', 'second');
  expect(hits()).toEqual({ other: 0, first: 1, second: 0 });
});

test('the earlier packets of a flow still count for the earlier rule after the flow is classified again', () => {
  activate('first', 'second');
  kernel.stage(compile(ofRules('second', 'first')));
  for (let count = 0; count < 3; count++) kernel.runPacket(dns);
  kernel.flip();
  kernel.runPacket(dns);
  expect(hits()).toEqual({ second: 1, first: 3 });
});

test('`flushIdleSlot` stores the deciding rule in the statistics of flows that were allowed by the policy in the program slot that is not in force', () => {
  activate('first');
  kernel.stage(compile(ofRules('between')));
  kernel.runPacket(dns);
  kernel.flip();
  expect(recordsOf()).toMatchObject([{ hit: 0 }]);
  kernel.trafficStatistics.flushIdleSlot();
  expect(recordsOf()[0]?.hit).not.toBe(0);
});

test('`completeFlow` in user space stores the same rule and opening time in flow statistics as a sweep of the flow table in the kernel', () => {
  activate('other', 'names');
  activate('names', 'other');
  for (let port = 1; port <= 40; port++) kernel.runPacket({ ...dns, sourcePort: port });
  kernel.runPacket({ ...dns, sourcePort: 41 }, {}, 0, 'out_foreign');
  const [flow, tally] = ['flows', 'tallies'].map((name) => describeMap(kernel.object.mapFd(name as 'flows')).value);
  if (flow === undefined || tally === undefined) throw new Error('there is no table of flows');
  const fd = kernel.object.mapFd('rank_hits');
  const ranks = new MappedMemory('rank_hits', fd, mapShape(fd).maxEntries * HIT_REF_BYTES);
  const offsets = completionOffsets(withTally(flow, tally));
  const completed = views().map((view) => {
    if (offsets !== undefined) completeFlow(view, offsets, ranks.words);
    return readFlow(FLOW_LAYOUTS.ipv4, view);
  });
  ranks.unmap();
  kernel.sweep();
  const swept = recordsOf();
  expect(completed.map(({ hit, hitCheck, openedNs }) => ({ hit, hitCheck, openedNs }))).toEqual(
    swept.map(({ hit, hitCheck, openedNs }) => ({ hit, hitCheck, openedNs })),
  );
  expect(swept.map(({ hit }) => hit !== 0).filter(Boolean)).toHaveLength(40);
  expect(swept[0]?.openedNs).toBeGreaterThan(process.hrtime.bigint() - 1_000_000_000n);
});

test('`completeFlow` computes the opening time from its low 16 bits, also after a wrap, and replaces a time in the future by the current time', () => {
  const openedAfter = (openedUnits: number, nowUnits: number): bigint => {
    const view = new DataView(new ArrayBuffer(FLOW_BYTES));
    view.setUint16(FLOW_OFFSETS.opened, openedUnits & 0xffff, true);
    completeFlow(view, FLOW_OFFSETS, new Uint32Array(4), () => BigInt(nowUnits) << BigInt(OPENED_SHIFT));
    return view.getBigUint64(FLOW_OFFSETS.opened_ns, true) >> BigInt(OPENED_SHIFT);
  };
  expect([
    openedAfter(0x5_fff0, 0x6_0010),
    openedAfter(0x6_0011, 0x6_0010),
    openedAfter(0x6_0010, 0x6_0010),
    openedAfter(0x5_5000, 0x6_0010),
  ]).toEqual([0x5_fff0n, 0x6_0010n, 0x6_0010n, 0x5_5000n]);
});

test('the entry of an ended flow in the BPF map `tallies` (flow statistics) contains only zeros', async () => {
  activate('names');
  for (let port = 1; port <= 20; port++) kernel.runPacket({ ...dns, sourcePort: port });
  kernel.sweep();
  const cut = { filter: anyFlow({ sourcePorts: [{ low: 1, high: 19 }] }), after: null, limit: 100 };
  expect(await kernel.trafficStatistics.cutFlows(cut)).toEqual({ cut: 19, next: null });
  expect(kernel.strayTallies()).toBe(0);
  kernel.runPacket({ ...dns, sourcePort: 1 });
  expect(kernel.flowsIn('half_open').map(({ packets }) => packets)).toEqual([
    [1n, 0n],
    [1n, 0n],
  ]);
});

const views = () => kernel.records().map(({ buffer }) => new DataView(buffer));
const recordsOf = () => views().map((view) => readFlow(FLOW_LAYOUTS.ipv4, view));
