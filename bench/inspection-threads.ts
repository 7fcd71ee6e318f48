import { cpus } from 'node:os';
import type { NodeProcess } from '#cli/tour/node-process.js';
import type { Bench, Row } from './bench.js';
import { quantile } from './forward/comparison.js';
import { wrk } from './inspection/load.js';
import { threadTimesUs } from './inspection/processor-time.js';
import { createSite, PORTS, type Site } from './inspection/site.js';
import { startWeir } from './inspection/weir.js';

const SECONDS = 2;
const ROUNDS = 5;
const CONNECTIONS = 64;
const THREADS = [1, 2] as const;
const LOADS = [
  { what: 'requests', isNew: false },
  { what: 'new connections', isNew: true },
] as const;

/**
 * `cpuUs` is the CPU time for each request. `evenness` is the CPU time of the less busy thread divided by the
 * CPU time of the busier thread.
 */
type Figures = { readonly perSecond: number; readonly cpuUs: number; readonly evenness: number };
type Setup = { readonly threads: number; readonly site: Site; readonly node: NodeProcess };

/**
 * Measures how a second service-plane thread changes the request rate and the CPU time of each request, and
 * how evenly the two threads share the work.
 */
export const inspectionThreadsBench: Bench = { name: 'inspection-threads', run: measure };

async function measure(): Promise<readonly Row[]> {
  const setups: Setup[] = [];
  const sites: Site[] = [];
  try {
    for (const threads of THREADS) {
      const site = await createSite(`threads-${threads}`);
      sites.push(site);
      setups.push({ threads, site, node: await startWeir(site, threads) });
    }
    const rows: Row[] = [];
    for (const { what, isNew } of LOADS) rows.push(...(await compare(setups, what, isNew)));
    return rows;
  } finally {
    for (const { node } of setups) await node.remove();
    for (const site of sites) await site.remove();
  }
}

/** Measures the nodes one after another in each round, and returns the median of each figure. */
async function compare(setups: readonly Setup[], what: string, isNew: boolean): Promise<readonly Row[]> {
  const found = new Map<Setup, Figures[]>(setups.map((setup) => [setup, []]));
  for (let round = 0; round < ROUNDS; round++) {
    for (const [setup, figures] of found) figures.push(await run(setup, isNew));
  }
  const median = (setup: Setup, figure: keyof Figures): number =>
    quantile(
      (found.get(setup) ?? []).map((figures) => figures[figure]),
      0.5,
    );
  const rows: Row[] = setups.flatMap((setup) => {
    const by =
      setup.threads === 1 ? '1 thread on a core of its own' : `${setup.threads} threads on ${cpus().length} cores`;
    return [
      { what: `${by}: ${what} a second`, value: median(setup, 'perSecond'), unit: '/s' },
      { what: `${by}: ${what}, processor time of each`, value: median(setup, 'cpuUs'), unit: 'µs' },
    ];
  });
  const [one, two] = setups as [Setup, Setup];
  const price = median(two, 'cpuUs') / median(one, 'cpuUs');
  rows.push({ what: `${what}: processor time with 2 threads relative to 1`, value: price, unit: '×', atMost: 1.5 });
  // The kernel distributes connections over the threads, and may distribute 64 persistent connections
  // unevenly. Therefore only the measurement with new connections has a bound for `evenness`.
  const bound = isNew ? { atLeast: 0.8 } : {};
  rows.push({
    what: `${what}: less busy thread relative to the other`,
    value: median(two, 'evenness'),
    unit: '×',
    ...bound,
  });
  return rows;
}

async function run({ site, node, threads }: Setup, isNew: boolean): Promise<Figures> {
  const before = threadTimesUs(node.pid);
  const { perSecond, requests } = await wrk(site, PORTS.direct, { seconds: SECONDS, connections: CONNECTIONS, isNew });
  const taken = [...threadTimesUs(node.pid)].map(([id, us]) => us - (before.get(id) ?? 0)).sort((a, b) => b - a);
  const cpuUs = taken.reduce((sum, us) => sum + us, 0) / Math.max(1, requests);
  return { perSecond, cpuUs, evenness: (taken[threads - 1] ?? 0) / (taken[0] ?? 1) };
}
