import type { NodeProcess } from '#cli/tour/node-process.js';
import type { Bench, Row } from './bench.js';
import { quantile } from './forward/comparison.js';
import { type Competitor, type ProxyUnderTest, startCompetitors } from './inspection/competitors.js';
import { type Load, multiplexed, paced, wrk } from './inspection/load.js';
import { processorTimeUs } from './inspection/processor-time.js';
import { createSite, PORTS } from './inspection/site.js';
import { startWeir } from './inspection/weir.js';

const SECONDS = 2;
const ROUNDS = 5;
const CONNECTIONS = 32;
const COMPETITORS: readonly Competitor[] = ['squid', 'haproxy', 'mitmproxy'];
const STREAMS = 8;
/**
 * The proxies that accept HTTP/2 from the client. haproxy uses HTTP/1.1 towards the server in this setup.
 * squid does not support HTTP/2.
 */
const SPEAK_HTTP2: ReadonlySet<string> = new Set(['weir', 'haproxy', 'mitmproxy']);

type Figures = { readonly perSecond: number; readonly cpuUs: number };

/**
 * Measures requests, new connections, processor time and latency of the intercept mode with one thread,
 * compared with squid, haproxy and mitmproxy.
 */
export const inspectionBench: Bench = { name: 'inspection', run: measure };

async function measure(): Promise<readonly Row[]> {
  const own = await createSite('inspected');
  const others = await createSite('others');
  let node: NodeProcess | undefined;
  try {
    node = await startWeir(own, 1);
    const weir: ProxyUnderTest = { name: 'weir', site: own, port: PORTS.direct, pids: () => [node?.pid ?? 0] };
    const proxies = [weir, ...(await startCompetitors(others, COMPETITORS))];
    const rows: Row[] = [];
    const kept = await compare(proxies, ({ site, port }) =>
      wrk(site, port, { seconds: SECONDS, connections: CONNECTIONS, isNew: false }),
    );
    const fresh = await compare(proxies, ({ site, port }) =>
      wrk(site, port, { seconds: SECONDS, connections: CONNECTIONS, isNew: true }),
    );
    const both = proxies.filter(({ name }) => SPEAK_HTTP2.has(name));
    const http2 = await compare(both, ({ site, port }) =>
      multiplexed(site, port, { seconds: SECONDS, connections: CONNECTIONS / STREAMS, streams: STREAMS }),
    );
    for (const [what, found] of [
      ['requests', kept],
      ['new connections', fresh],
      ['requests of HTTP/2', http2],
    ] as const) {
      for (const [name, { perSecond, cpuUs }] of found) {
        rows.push({ what: `${name}: ${what} a second`, value: perSecond, unit: '/s' });
        rows.push({ what: `${name}: ${what}, processor time of each`, value: cpuUs, unit: 'µs' });
      }
    }
    rows.push({ what: 'requests, relative to squid', value: ratio(kept, 'squid'), unit: '×', atLeast: 1.3 });
    rows.push({ what: 'new connections, relative to squid', value: ratio(fresh, 'squid'), unit: '×', atLeast: 1.3 });
    rows.push({ what: 'requests of HTTP/2, relative to haproxy', value: ratio(http2, 'haproxy'), unit: '×' });
    for (const proxy of both) {
      const half = (http2.get(proxy.name)?.perSecond ?? 0) / 2;
      const load = { seconds: 4, connections: CONNECTIONS / STREAMS, perSecond: half, isHttp2: true };
      const value = quantile(await paced(proxy.site, proxy.port, load), 0.99);
      rows.push({ what: `${proxy.name}: requests of HTTP/2, p99 at half of its rate`, value, unit: 'ms' });
    }
    for (const proxy of proxies) {
      const half = (kept.get(proxy.name)?.perSecond ?? 0) / 2;
      const latencies = await paced(proxy.site, proxy.port, { seconds: 4, connections: 8, perSecond: half });
      const bound = proxy.name === 'weir' ? { atMost: 10 } : {};
      rows.push({
        what: `${proxy.name}: requests, p99 at half of its rate`,
        value: quantile(latencies, 0.99),
        unit: 'ms',
        ...bound,
      });
    }
    return rows;
  } finally {
    await node?.remove();
    await own.remove();
    await others.remove();
  }
}

function ratio(found: ReadonlyMap<string, Figures>, competitor: Competitor): number {
  return (found.get('weir')?.perSecond ?? 0) / (found.get(competitor)?.perSecond ?? Number.POSITIVE_INFINITY);
}

/** Measures the proxies one after another in each round, and returns the median of each figure. */
async function compare(
  proxies: readonly ProxyUnderTest[],
  run: (proxy: ProxyUnderTest) => Promise<Load>,
): Promise<ReadonlyMap<string, Figures>> {
  const found = new Map<string, Figures[]>(proxies.map(({ name }) => [name, []]));
  for (let round = 0; round < ROUNDS; round++) {
    for (const proxy of proxies) {
      const pids = proxy.pids();
      const before = processorTimeUs(pids);
      const load = await run(proxy);
      if (load.failed > 0 && proxy.name === 'weir')
        throw new Error(`${load.failed} HTTPS requests through Weir failed`);
      const taken = processorTimeUs(pids) - before;
      found.get(proxy.name)?.push({
        perSecond: load.perSecond,
        cpuUs: taken / Math.max(1, load.requests),
      });
    }
  }
  return new Map(
    [...found].map(([name, all]) => [
      name,
      {
        perSecond: quantile(
          all.map(({ perSecond }) => perSecond),
          0.5,
        ),
        cpuUs: quantile(
          all.map(({ cpuUs }) => cpuUs),
          0.5,
        ),
      },
    ]),
  );
}
