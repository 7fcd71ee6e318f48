import { Guard, removeGuard } from '#dataplane/guard/nftables-guard.js';
import { compile } from '#policy/compile/compile.js';
import type { Bench, Row } from '../bench.js';
import { attachWeir, BY_STACK } from './attached-weir.js';
import { againstTracking, competitorShares } from './competitor-shares.js';
import { establish, Pair, SHARE } from './pair.js';
import {
  exactTriples,
  flowsOf,
  groupsOfTen,
  LIVE,
  oneGroup,
  type Permits,
  policyOf,
  rulesAndFlows,
  SHAPES,
} from './policies.js';

const MANY = 65_536;
const MARK_MASK = 0x00f0_0000;

/**
 * Measures lower bounds of the cost of any datapath. The first is an empty BPF program at the hook. The
 * second is a BPF program that only marks packets, together with the guard (Weir's nftables rules).
 */
async function minimumCosts(pair: Pair): Promise<Row[]> {
  const { filtered } = pair;
  pair.use(flowsOf(groupsOfTen(10_000), LIVE));
  const deliveryNs = await pair.deliveryNs();
  let detach = filtered.attach('node', 'lan0', 'empty', 'tcx_ingress');
  const empty = await pair.share();
  detach();
  detach = filtered.attach('node', 'lan0', 'mark', 'tcx_ingress');
  const guard = new Guard({
    interfaces: ['lan0', 'wan0'],
    markMask: MARK_MASK,
    reversePath: 'strict',
    policeLocal: false,
    ipv6: 'drop',
  });
  filtered.inside('node', () => guard.make());
  const guarded = await pair.share();
  filtered.inside('node', () => removeGuard());
  detach();
  return [
    { what: 'unfiltered, a packet', value: pair.plainNs, unit: 'ns' },
    { what: 'part of it that makes and delivers the frame', value: deliveryNs, unit: 'ns' },
    { what: 'an empty program', value: empty, unit: SHARE },
    { what: 'a program that only marks, and the guard', value: guarded, unit: SHARE },
  ];
}

async function weirShare(pair: Pair, permits: Permits, flowCount: number, settings = {}): Promise<number> {
  const flows = flowsOf(permits, flowCount);
  pair.use(flows);
  const weir = await attachWeir(pair.filtered, compile(policyOf(permits)), settings);
  try {
    establish(pair.filtered, flows);
    return await pair.share();
  } finally {
    await weir.detach();
  }
}

async function weirShares(pair: Pair): Promise<Row[]> {
  const rows: Row[] = [];
  const measure = async (permits: Permits, flows: number, bound: Partial<Row> = {}, shape?: string): Promise<void> => {
    const what = `Weir, ${rulesAndFlows(permits.flat().length, flows, shape)}`;
    rows.push({ what, value: await weirShare(pair, permits, flows), unit: SHARE, ...bound });
  };
  await measure(groupsOfTen(10), 1);
  await measure(groupsOfTen(10), LIVE);
  await measure(groupsOfTen(10), MANY);
  for (const rules of [10_000, 100_000]) {
    await measure(groupsOfTen(rules), LIVE, { atLeast: 1 });
    await measure(groupsOfTen(rules), MANY, { atLeast: 0.85 });
  }
  await measure(exactTriples(10_000), LIVE, {}, SHAPES.exact);
  await measure(oneGroup(10_000, 24), LIVE, {}, SHAPES.prefixes);
  await measure(oneGroup(10_000, 32), LIVE, {}, SHAPES.addresses);
  for (const flows of [1, LIVE, MANY]) {
    const what = `Weir, forwarding: stack, ${rulesAndFlows(10_000, flows)}`;
    rows.push({ what, value: await weirShare(pair, groupsOfTen(10_000), flows, BY_STACK), unit: SHARE });
  }
  return rows;
}

/**
 * Measures packets a second through a node with Weir, nftables or iptables, relative to the same node without
 * a filter, by the number of rules and flows.
 */
export const forwardingBench: Bench = {
  name: 'forwarding',
  run: async () => [
    ...(await Pair.with('forward', async (pair) => [...(await minimumCosts(pair)), ...(await weirShares(pair))])),
    ...(await competitorShares()),
    ...(await againstTracking(10_000, LIVE)),
    ...(await againstTracking(100_000, LIVE)),
    ...(await againstTracking(10_000, MANY)),
  ],
};
