// Measures what the page Traffic of the console costs a browser, with a stand-in for the node: `node
// dist/bench/console/traffic-page-process.js [--rates 0,5000,20000] [--seconds 30] [--heap-seconds 600]`.
// Build the console and the benchmarks first. `--serve PORT` only serves the stand-in, to look at the page.
import { parseArgs } from 'node:util';
import { type CDPSession, chromium, type Page } from 'playwright-core';
import { type StandIn, startStandIn } from './stand-in.js';

const { values } = parseArgs({
  options: {
    rates: { type: 'string', default: '0,5000,20000' },
    seconds: { type: 'string', default: '30' },
    'heap-seconds': { type: 'string', default: '0' },
    path: { type: 'string', default: 'traffic' },
    serve: { type: 'string' },
  },
});
const CHROMIUM = '/usr/bin/chromium';
const WARM_UP_MS = 8_000;
const HEAP_EVERY_MS = 60_000;

type Metrics = { readonly TaskDuration: number; readonly ScriptDuration: number; readonly JSHeapUsedSize: number };

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

async function metricsOf(cdp: CDPSession): Promise<Metrics> {
  const { metrics } = await cdp.send('Performance.getMetrics');
  return Object.fromEntries(metrics.map(({ name, value }) => [name, value])) as Metrics;
}

/** Counts the frames of the page, and the longest time between two of them, from now on. */
const watchFrames = (page: Page) =>
  page.evaluate(() => {
    const { requestAnimationFrame } = globalThis as unknown as {
      requestAnimationFrame: (callback: (at: number) => void) => void;
    };
    const frames = { count: 0, longest: 0, last: performance.now() };
    const note = (at: number) => {
      frames.count++;
      frames.longest = Math.max(frames.longest, at - frames.last);
      frames.last = at;
      requestAnimationFrame(note);
    };
    requestAnimationFrame(note);
    (globalThis as unknown as { frames: typeof frames }).frames = frames;
  });

async function measure(page: Page, cdp: CDPSession, standIn: StandIn, rate: number, seconds: number): Promise<void> {
  standIn.rate = rate;
  await pause(WARM_UP_MS);
  await watchFrames(page);
  const [before, sentBefore, began] = [await metricsOf(cdp), standIn.sent, performance.now()];
  await pause(seconds * 1_000);
  const [after, sentAfter] = [await metricsOf(cdp), standIn.sent];
  const lasted = (performance.now() - began) / 1_000;
  const frames = await page.evaluate(
    () => (globalThis as unknown as { frames: { count: number; longest: number } }).frames,
  );
  const share = (name: 'TaskDuration' | 'ScriptDuration') =>
    `${(((after[name] - before[name]) / lasted) * 100).toFixed(1)} %`;
  const row = {
    wanted: rate,
    sent: Math.round((sentAfter - sentBefore) / lasted),
    'main thread': share('TaskDuration'),
    script: share('ScriptDuration'),
    'frames a second': Math.round(frames.count / lasted),
    'longest frame ms': Math.round(frames.longest),
    shown: (await page.locator('.stream-state').textContent())?.trim(),
  };
  process.stdout.write(`${JSON.stringify(row)}\n`);
}

async function watchHeap(cdp: CDPSession, standIn: StandIn, seconds: number): Promise<void> {
  standIn.rate = 5_000;
  for (let passed = 0; passed <= seconds * 1_000; passed += HEAP_EVERY_MS) {
    await pause(HEAP_EVERY_MS);
    await cdp.send('HeapProfiler.collectGarbage');
    const { JSHeapUsedSize: used } = await metricsOf(cdp);
    process.stdout.write(`${JSON.stringify({ sent: standIn.sent, 'heap MB': Number((used / 1e6).toFixed(1)) })}\n`);
  }
}

const standIn = await startStandIn(values.serve === undefined ? 0 : 5_000, Number(values.serve ?? 0));
if (values.serve !== undefined) process.stdout.write(`${standIn.url}/console/traffic\n`);
else {
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });
  try {
    const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
    page.on('pageerror', (error) => process.stderr.write(`${String(error)}\n`));
    const cdp = await page.context().newCDPSession(page);
    // The time of the thread alone, so that other work of the machine does not count.
    await cdp.send('Performance.setTimeDomain', { timeDomain: 'threadTicks' });
    await cdp.send('Performance.enable');
    await page.goto(`${standIn.url}/console/${values.path}`);
    await page.locator('.stream-mark.live').waitFor();
    for (const rate of values.rates.split(',').map(Number))
      await measure(page, cdp, standIn, rate, Number(values.seconds));
    if (Number(values['heap-seconds']) > 0) await watchHeap(cdp, standIn, Number(values['heap-seconds']));
  } finally {
    await browser.close();
    await standIn.close();
  }
}
