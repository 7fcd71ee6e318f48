import { COUNTED_VERDICTS } from '#contracts/datapath/datapath.js';
import { GroupCounters } from '#dataplane/flows/hits/group-counters.js';
import { TrafficStatistics } from '#dataplane/flows/traffic-statistics.js';
import { flipProgram, stageProgram } from '#dataplane/thread/staging.js';
import { createMetrics } from '#observe/metrics/metrics.js';
import { compile } from '#policy/compile/compile.js';
import type { Bench, Row } from './bench.js';
import { policyOf } from './classifier.js';
import { loadForBench } from './lookups.js';

const GROUPS = 10_000;
const RULES = 100_000;
const ROUNDS = 15;

async function median(before: () => void, work: () => unknown): Promise<number> {
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    before();
    const started = performance.now();
    await work();
    times.push(performance.now() - started);
  }
  return times.sort((a, b) => a - b)[ROUNDS >> 1] ?? 0;
}

/**
 * Measures one scrape of the metrics, in which at most `limit` source groups have counters of their own.
 * Before each scrape, every rule of the policy gets a new hit.
 */
async function measure(limit: number): Promise<readonly Row[]> {
  const loaded = loadForBench(1);
  const trafficStatistics = new TrafficStatistics(
    loaded,
    undefined,
    limit === 0 ? undefined : new GroupCounters(limit),
  );
  try {
    const program = compile(policyOf(RULES, RULES / GROUPS));
    stageProgram({ ...loaded, trafficStatistics }, program, 1);
    flipProgram({ ...loaded, trafficStatistics });
    const hits = Array.from({ length: program.ranks }, (_, by) => ({ generation: 1, by, count: 1, lastNs: 1n }));
    const hit = (): void => trafficStatistics.addHits(hits);
    const counting = await median(hit, () => trafficStatistics.groupTraffic());
    const traffic = trafficStatistics.groupTraffic();
    const unready = { ready: false, checks: [] };
    const metrics = createMetrics({
      version: '',
      stats: () => Promise.reject(new Error('not measured')),
      readiness: () => unready,
      groupTraffic: async () => traffic,
    });
    const page = await median(hit, () => metrics.scrape());
    const text = await metrics.scrape();
    const series = text.split('\n').filter((line) => line.startsWith('weir_source_group_')).length;
    const label = `${GROUPS.toLocaleString('en')} groups, at most ${limit.toLocaleString('en')} of their own`;
    const expected = limit === 0 ? 1 : 1 + 2 * COUNTED_VERDICTS.length * (limit + 2);
    return [
      { what: `${label}: series`, value: series, unit: '', atMost: expected },
      ...(limit === 0 ? [] : [{ what: `${label}: counted by the datapath thread`, value: counting, unit: 'ms' }]),
      { what: `${label}: a scrape, without this`, value: page, unit: 'ms' },
      { what: `${label}: size of a scrape`, value: text.length / 1024, unit: 'KiB' },
    ];
  } finally {
    trafficStatistics.close();
    loaded.close();
  }
}

async function run(): Promise<readonly Row[]> {
  const rows: Row[] = [];
  for (const limit of [0, 100, 1_000, GROUPS]) rows.push(...(await measure(limit)));
  return rows;
}

export const sourceGroupsBench: Bench = { name: 'source-groups', run };
