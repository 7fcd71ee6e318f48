import { compile } from '#policy/compile.js';
import { IPPROTO } from '#policy/model.js';
import type { Bench, Row } from '../bench.js';
import { Comparison } from './comparison.js';
import type { FiveTuple } from './frames.js';
import { judge } from './judged.js';
import { load } from './load.js';
import * as peers from './peers.js';
import { exactTriples, flowsOf, groupsOfTen, oneGroup, type Permits, policyOf } from './policies.js';
import { Rig } from './rig.js';

const LIVE = 4_096;
const MANY = 65_536;
const SIZES = [10, 10_000, 100_000];
/** Frames of one round, and how long a round of a slow peer may take. */
const ROUND = 20_000;
const ROUND_MS = 15;
const UDP = { protocol: IPPROTO.udp };
const SHARE = '× unfiltered';

const EXACT = 'single source, destination and port each';
const TO_PREFIXES = 'one group, to /24 and longer';
const TO_ADDRESSES = 'one group, to addresses';

/** The same traffic through a node without a filter, and through one with. */
class Pair {
  readonly rows: Row[] = [];
  readonly #comparison = new Comparison();

  private constructor(
    readonly plain: Rig,
    readonly filtered: Rig,
  ) {
    plain.sink();
    filtered.sink();
  }

  static async open(tag: string): Promise<Pair> {
    const plain = await Rig.open(`${tag}-plain`, MANY);
    try {
      return new Pair(plain, await Rig.open(tag, MANY));
    } catch (failure) {
      await plain.remove();
      throw failure;
    }
  }

  use(flows: readonly FiveTuple[]): void {
    this.plain.use(flows);
    this.filtered.use(flows);
  }

  /** Every flow has been answered: what keeps state has seen both of its directions. */
  establish(flows: readonly FiveTuple[]): void {
    this.filtered.send(flows.length, UDP);
    this.filtered.send(flows.length, { ...UDP, from: 'server' });
    this.filtered.frames.rewind();
  }

  /** Packets a second of the filtered node, in parts of the unfiltered one's. */
  async measure(): Promise<number> {
    const { plain, filtered } = this;
    const first = filtered.send(200, UDP);
    const count = Math.max(100, Math.min(ROUND, Math.floor((ROUND_MS * 1e6) / first)));
    const cost = await this.#comparison.cost({
      plain: () => plain.send(ROUND, UDP),
      other: () => filtered.send(count, UDP),
    });
    return 1 / cost;
  }

  /** What making the frames and bringing them to the node costs: they end at its door. */
  async delivery(): Promise<number> {
    const stop = this.filtered.attach('node', 'lan0', 'stop', 'xdp');
    const cost = await this.#comparison.cost({
      plain: () => this.plain.send(ROUND, UDP),
      other: () => this.filtered.send(ROUND, UDP, null),
    });
    stop();
    return cost;
  }

  get plainNs(): number {
    return this.#comparison.plainNs;
  }

  async remove(): Promise<void> {
    await this.plain.remove();
    await this.filtered.remove();
  }
}

const label = (rules: number): string => `${rules.toLocaleString('en')} rules`;

async function weir(pair: Pair): Promise<Row[]> {
  const rows: Row[] = [];
  const measure = async (what: string, permits: Permits, count: number, bound: Partial<Row>): Promise<void> => {
    const flows = flowsOf(permits, count);
    pair.use(flows);
    const datapath = await judge(pair.filtered, compile(policyOf(permits)));
    try {
      pair.establish(flows);
      const value = await pair.measure();
      rows.push({ what: `Weir, ${what}, ${count.toLocaleString('en')} flows`, value, unit: SHARE, ...bound });
    } finally {
      await datapath.detach();
    }
  };
  for (const rules of SIZES) {
    const bounded = rules > SIZES[0]!;
    await measure(`${label(rules)}`, groupsOfTen(rules), LIVE, bounded ? { atLeast: 0.8 } : {});
    await measure(`${label(rules)}`, groupsOfTen(rules), MANY, bounded ? { atLeast: 0.7 } : {});
  }
  for (const [what, permits] of [
    [EXACT, exactTriples(10_000)],
    [TO_PREFIXES, oneGroup(10_000, 24)],
    [TO_ADDRESSES, oneGroup(10_000, 32)],
  ] as const) {
    await measure(`${label(10_000)}, ${what}`, permits, LIVE, {});
  }
  return rows;
}

type Tried = {
  readonly form: peers.Form;
  readonly command: readonly string[];
  readonly permits: Permits;
  readonly what: string;
};

const NFT = ['nft', '-f', '-'];

function nftables(rules: number): Tried[] {
  const nft = (form: peers.Form, permits: Permits, what = ''): Tried => ({ form, command: NFT, permits, what });
  return [
    ...(rules > 10_000 ? [] : [nft(peers.linear, groupsOfTen(rules))]),
    nft(peers.chainOfGroup, groupsOfTen(rules)),
    nft(peers.concatenatedRanges, groupsOfTen(rules)),
    nft(peers.concatenatedHash, exactTriples(rules), EXACT),
    nft(peers.intervalSet, oneGroup(rules, 24), TO_PREFIXES),
    nft(peers.hashSet, oneGroup(rules, 32), TO_ADDRESSES),
  ];
}

const TRACKED = 'ct established first';

/** Answers the rows, and the best share with connection tracking that the groups of ten had. */
async function peer(pair: Pair, tried: readonly Tried[], rules: number, flowCount = LIVE): Promise<Row[]> {
  const rows: Row[] = [];
  for (const { form, command, permits, what } of tried) {
    const flows = flowsOf(permits, flowCount);
    pair.use(flows);
    for (const tracked of [false, true]) {
      const words = [form.name, label(rules), what, tracked ? TRACKED : '', `${flowCount.toLocaleString('en')} flows`];
      const name = words.filter((word) => word !== '').join(', ');
      const loaded = load(pair.filtered.topology, command, form.text(permits, tracked));
      if (loaded === undefined) {
        console.log(`  ${name}: not measured, loading took more than 20 s`);
        continue;
      }
      if (tracked) pair.establish(flows);
      rows.push({ what: name, value: await pair.measure(), unit: SHARE });
    }
    load(pair.filtered.topology, command, command === NFT ? 'flush ruleset\n' : EMPTY_IPTABLES);
  }
  return rows;
}

const EMPTY_IPTABLES = '*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n';

async function inPair<T>(tag: string, act: (pair: Pair) => Promise<T>): Promise<T> {
  const pair = await Pair.open(tag);
  try {
    return await act(pair);
  } finally {
    await pair.remove();
  }
}

const best = (rows: readonly Row[], filter: (what: string) => boolean): number =>
  Math.max(...rows.filter(({ what }) => filter(what)).map(({ value }) => value));

async function run(): Promise<readonly Row[]> {
  const started = await inPair('fw', async (pair) => {
    pair.use(flowsOf(groupsOfTen(10_000), LIVE));
    const delivery = await pair.delivery();
    const rows = await weir(pair);
    return [
      { what: 'unfiltered, a packet', value: pair.plainNs, unit: 'ns' },
      { what: 'of it making the frame and bringing it to the node', value: delivery * pair.plainNs, unit: 'ns' },
      ...rows,
    ];
  });
  const nft = await inPair('fn', async (pair) => [
    ...(await peer(pair, nftables(10_000), 10_000)),
    ...(await peer(pair, nftables(100_000), 100_000)),
    ...(await peer(
      pair,
      nftables(10_000).filter(({ form }) => form === peers.chainOfGroup),
      10_000,
      MANY,
    )),
  ]);
  const iptables: Row[] = [];
  for (const by of ['iptables-legacy', 'iptables-nft']) {
    const form = { ...peers.iptables, name: by };
    for (const rules of [1_000, 10_000]) {
      const tried = [{ form, command: [`${by}-restore`], permits: groupsOfTen(rules), what: '' }];
      iptables.push(...(await inPair('fi', (pair) => peer(pair, tried, rules))));
    }
  }
  const tracked = (rules: number) => (what: string) => what.includes(TRACKED) && what.includes(label(rules));
  const own = (rules: number) => (what: string) => what === `Weir, ${label(rules)}, ${LIVE.toLocaleString('en')} flows`;
  const against = [10_000, 100_000].map((rules) => ({
    what: `Weir against nftables’ best with ct, ${label(rules)}`,
    value: best(started, own(rules)) / best(nft, tracked(rules)),
    unit: '×',
    atLeast: 1.2,
  }));
  return [...started, ...nft, ...iptables, ...against];
}

export const forwardingBench: Bench = { name: 'forwarding', run };
