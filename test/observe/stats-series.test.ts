import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { type SampledStats, STEP_MS, StatsSeries } from '#observe/metrics/stats-series.js';
import { STATS } from '#test/api/fake-management.js';
import { EVERY_PART } from './every-part.js';

const START = Date.parse('2026-01-31T12:00:00.000Z');

/** Counters of a node whose datapath has allowed `allow` packets and dropped `drops` packets as malformed. */
const counted = (allow: number, drops = 0, activeFlows = 0): SampledStats => ({
  dns: null,
  servicePlane: null,
  dataplane: STATS.dataplane && {
    ...STATS.dataplane,
    activeFlows,
    verdicts: { ...STATS.dataplane.verdicts, allow: { packets: BigInt(allow), bytes: 0n } },
    drops: { malformed: { packets: BigInt(drops), bytes: 0n }, policy_deny: { packets: 9n, bytes: 0n } },
  },
});

/** A series whose clocks and counters a test sets. */
const rig = (stats: SampledStats = counted(0)) => {
  const now = { wallMs: START, monotonicMs: 5_000, stats: stats as SampledStats | Error };
  const series = new StatsSeries(
    async () => {
      if (now.stats instanceof Error) throw now.stats;
      return now.stats;
    },
    { wallMs: () => now.wallMs, monotonicMs: () => now.monotonicMs },
  );
  const pass = (ms: number) => {
    now.wallMs += ms;
    now.monotonicMs += ms;
  };
  /** Lets time pass, and samples the counters. */
  const sampleAfter = async (ms: number, next: SampledStats | Error) => {
    pass(ms);
    now.stats = next;
    await series.sample();
  };
  return { series, now, pass, sampleAfter, allow: (steps: number) => series.view(steps).series.allow };
};

describe('stats series', () => {
  test('a step has the increase of each counter, and the value of each gauge at its end', async () => {
    const { series, sampleAfter } = rig();
    await sampleAfter(0, counted(100, 1, 4));
    await sampleAfter(STEP_MS, counted(130, 1, 5));
    await sampleAfter(STEP_MS, counted(130, 3, 6));
    const { fromMs, toMs, series: of, drops } = series.view(3);
    expect([fromMs, toMs]).toEqual([START - STEP_MS, START + 2 * STEP_MS]);
    expect([of.allow, of.activeFlows, drops]).toEqual([[null, 30, 0], [4, 5, 6], { malformed: [null, 0, 2] }]);
  });

  test('each value of the stats series comes from its own counter', async () => {
    const { series, sampleAfter } = rig();
    const { dataplane, dns, servicePlane } = EVERY_PART;
    await sampleAfter(0, {
      dataplane: dataplane && zeros(dataplane),
      dns: dns && zeros(dns),
      servicePlane: servicePlane && zeros(servicePlane),
    });
    await sampleAfter(STEP_MS, EVERY_PART);
    const { series: of } = series.view(1);
    expect(Object.fromEntries(Object.entries(of).map(([name, [value]]) => [name, value]))).toEqual({
      allow: 10,
      deny: 3,
      audit: 1,
      flowsOpened: 5,
      activeFlows: 2,
      queriesAllow: 1,
      queriesDeny: 2,
      tlsAllow: 20,
      tlsDeny: 21,
      tlsAudit: 22,
      intercepted: 23,
      connections: 29,
      requestsAllow: 24,
      requestsDeny: 25,
      requestsAudit: 26,
    });
  });

  test('the steps before the first sample, and the counters of a part that does not run, are null', async () => {
    const { series, sampleAfter, allow } = rig();
    expect(allow(3)).toEqual([null, null, null]);
    await sampleAfter(0, counted(1));
    await sampleAfter(STEP_MS, counted(2));
    expect(series.view().series.allow).toEqual([...Array<null>(359).fill(null), 1]);
    expect([series.view(2).series.queriesAllow, series.view(2).series.connections]).toEqual([
      [null, null],
      [null, null],
    ]);
  });

  test('the stats series omits a time step that has not ended, and has null for a time step whose sample is missing', async () => {
    const { sampleAfter, pass, allow } = rig();
    await sampleAfter(0, counted(1));
    await sampleAfter(STEP_MS, counted(2));
    pass(STEP_MS - 1);
    expect(allow(1)).toEqual([1]);
    pass(1);
    expect(allow(2)).toEqual([1, null]);
  });

  test.each([
    ['the machine is suspended for half an hour', 1_807_000, 0],
    ['the machine is suspended for 7 s', 7_000, 0],
    ['the wall clock is set forward by 25 s', 25_000, 0],
    ['the process is stopped for 25 s', 25_000, 25_000],
  ])(
    'while %s, the time steps of the stats series are null, and the next complete step has its own count',
    async (_, wallMs, monotonicMs) => {
      const { now, sampleAfter, allow } = rig();
      await sampleAfter(0, counted(1));
      await sampleAfter(STEP_MS, counted(2));
      now.wallMs += wallMs;
      now.monotonicMs += monotonicMs;
      await sampleAfter(0, counted(1_000));
      await sampleAfter(STEP_MS - (now.wallMs % STEP_MS), counted(2_000));
      await sampleAfter(STEP_MS, counted(2_003));
      const missing = Math.ceil(wallMs / STEP_MS);
      expect(allow(missing + 2)).toEqual([1, ...Array<null>(missing).fill(null), 3]);
    },
  );

  test('if the wall clock goes forward by the length of a step while the monotonic clock stands still, the step is null', async () => {
    const { now, sampleAfter, allow } = rig();
    await sampleAfter(0, counted(1));
    now.wallMs += STEP_MS;
    await sampleAfter(0, counted(500));
    expect(allow(1)).toEqual([null]);
  });

  test('a sample of the counters that is more than a second late gives no value for the time step before or after it', async () => {
    const { sampleAfter, allow } = rig();
    await sampleAfter(0, counted(1));
    await sampleAfter(STEP_MS + 1_500, counted(2));
    await sampleAfter(STEP_MS - 1_500, counted(3));
    await sampleAfter(STEP_MS, counted(5));
    expect(allow(3)).toEqual([null, null, 2]);
  });

  test('a time step of the stats series is null if a counter restarted at 0 or cannot be read', async () => {
    const { sampleAfter, allow } = rig();
    await sampleAfter(0, counted(100));
    await sampleAfter(STEP_MS, counted(7));
    await sampleAfter(STEP_MS, counted(8));
    await sampleAfter(STEP_MS, new Error('the thread ended'));
    await sampleAfter(STEP_MS, counted(9));
    await sampleAfter(STEP_MS, counted(11));
    expect(allow(5)).toEqual([null, 1, null, null, 2]);
  });

  test('values that are an hour old are not shown again', async () => {
    const { sampleAfter, allow } = rig();
    await sampleAfter(0, counted(0));
    for (let step = 1; step <= 400; step++) await sampleAfter(STEP_MS, counted(step * step));
    const shown = allow(360);
    expect([shown[0], shown[359]]).toEqual([41 * 41 - 40 * 40, 400 * 400 - 399 * 399]);
    await sampleAfter(100 * STEP_MS, counted(400 * 400));
    expect([allow(360)[259], allow(360)[260], allow(360)[359]]).toEqual([400 * 400 - 399 * 399, null, null]);
  });

  test('if the wall clock is set back, the values of steps that have not begun yet are forgotten', async () => {
    const { now, sampleAfter, allow } = rig();
    await sampleAfter(0, counted(1));
    await sampleAfter(STEP_MS, counted(3));
    now.wallMs -= 4 * STEP_MS;
    await sampleAfter(0, counted(4));
    await sampleAfter(STEP_MS, counted(9));
    expect(allow(3)).toEqual([null, null, 5]);
    await sampleAfter(3 * STEP_MS, counted(20));
    expect(allow(4)).toEqual([5, null, null, null]);
  });
});

describe('sampling of the stats series', () => {
  beforeEach(() => void vi.useFakeTimers({ now: START + 3_000 }));
  afterEach(() => void vi.useRealTimers());

  test('the counters are read at the end of each step until the series is closed', async () => {
    const read: number[] = [];
    const series = new StatsSeries(async () => {
      read.push(Date.now() - START);
      return counted(read.length ** 2);
    });
    series.start();
    await vi.advanceTimersByTimeAsync(3 * STEP_MS);
    expect(read).toEqual([STEP_MS, 2 * STEP_MS, 3 * STEP_MS]);
    expect(series.view(3).series.allow).toEqual([null, 3, 5]);
    series.close();
    await vi.advanceTimersByTimeAsync(3 * STEP_MS);
    expect(read.length).toBe(3);
  });
});

/** Returns the counters with 0 in the place of each number. */
function zeros<T extends object>(counters: T): T {
  return JSON.parse(
    JSON.stringify(counters, (_, value: unknown) =>
      typeof value === 'number' || typeof value === 'bigint' ? 0 : value,
    ),
  ) as T;
}
