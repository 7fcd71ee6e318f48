import { compile } from '#policy/compile/compile.js';
import type { Row } from '../bench.js';
import { attachWeir, BY_STACK } from './attached-weir.js';
import * as competitors from './competitors.js';
import { load } from './load.js';
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

const NFT = ['nft', '-f', '-'];
/**
 * With more rules than this, the benchmark does not measure the form with one nftables rule per permit. The
 * kernel compares a packet with one rule after the other, which would take longer than 0.1 ms.
 */
const LINEAR_LIMIT = 10_000;
const TRACKED = 'ct established first';

type PeerCase = {
  readonly form: competitors.Form;
  readonly permits: Permits;
  readonly shape?: string;
  readonly command?: readonly string[];
};

function nftables(rules: number): PeerCase[] {
  return [
    ...(rules > LINEAR_LIMIT ? [] : [{ form: competitors.linear, permits: groupsOfTen(rules) }]),
    { form: competitors.chainOfGroup, permits: groupsOfTen(rules) },
    { form: competitors.concatenatedRanges, permits: groupsOfTen(rules) },
    { form: competitors.concatenatedHash, permits: exactTriples(rules), shape: SHAPES.exact },
    { form: competitors.intervalSet, permits: oneGroup(rules, 24), shape: SHAPES.prefixes },
    { form: competitors.hashSet, permits: oneGroup(rules, 32), shape: SHAPES.addresses },
  ];
}

/** Measures each form of the policy twice: without and with connection tracking. */
async function shares(pair: Pair, tried: readonly PeerCase[], rules: number): Promise<Row[]> {
  const rows: Row[] = [];
  for (const { form, permits, shape, command = NFT } of tried) {
    const flows = flowsOf(permits, LIVE);
    pair.use(flows);
    for (const tracked of [false, true]) {
      const words = [form.name, tracked ? TRACKED : undefined, rulesAndFlows(rules, LIVE, shape)];
      const what = words.filter((word) => word !== undefined).join(', ');
      if (load(pair.filtered.topology, command, form.text(permits, tracked)) === undefined) {
        console.log(`  ${what}: not measured, loading it took more than 20 s`);
        continue;
      }
      if (tracked) establish(pair.filtered, flows);
      rows.push({ what, value: await pair.share(), unit: SHARE });
    }
  }
  return rows;
}

export async function competitorShares(): Promise<Row[]> {
  const rows = await Pair.with('nft', async (pair) => [
    ...(await shares(pair, nftables(10_000), 10_000)),
    ...(await shares(pair, nftables(100_000), 100_000)),
  ]);
  for (const by of ['iptables-legacy', 'iptables-nft']) {
    // Use new nodes for each variant of iptables, because the netfilter hooks of the previous variant stay
    // registered in its network namespace.
    const measured = await Pair.with(by, async (pair) => {
      const tried = (rules: number): PeerCase => ({
        form: { ...competitors.iptables, name: by },
        permits: groupsOfTen(rules),
        command: [`${by}-restore`],
      });
      return [...(await shares(pair, [tried(1_000)], 1_000)), ...(await shares(pair, [tried(10_000)], 10_000))];
    });
    rows.push(...measured);
  }
  return rows;
}

/**
 * Measures the packet rate of Weir divided by that of nftables with connection tracking. One form of the
 * nftables policy is enough: in each form, the first rule is `ct state established,related accept` and
 * accepts all packets of these flows.
 */
export async function againstTracking(rules: number, flowCount: number): Promise<Row[]> {
  const against = `against nftables with ct, ${rulesAndFlows(rules, flowCount)}`;
  const permits = groupsOfTen(rules);
  return [
    { what: `Weir ${against}`, value: await besideTracking(permits, flowCount), unit: '×', atLeast: 1.2 },
    {
      what: `Weir, forwarding: stack, ${against}`,
      value: await besideTracking(permits, flowCount, BY_STACK),
      unit: '×',
    },
  ];
}

function besideTracking(permits: Permits, flowCount: number, settings = {}): Promise<number> {
  return Pair.with('ct', async (pair) => {
    const flows = flowsOf(permits, flowCount);
    pair.use(flows);
    const weir = await attachWeir(pair.plain, compile(policyOf(permits)), settings);
    try {
      establish(pair.plain, flows);
      const loaded = load(pair.filtered.topology, NFT, competitors.chainOfGroup.text(permits, true));
      if (loaded === undefined) throw new Error('nft did not load the rules within 20 s');
      establish(pair.filtered, flows);
      return 1 / (await pair.share());
    } finally {
      await weir.detach();
    }
  });
}
