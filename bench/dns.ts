import { readFileSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ADDRESSES, createTopology, type Topology, temporaryFolder } from '#cli/tour/topology.js';
import type { Bench, Row } from './bench.js';
import { LOAD_CPU, NAMES, putRules, type Subject, startCompetitor, startUpstream, startWeir } from './dns/proxies.js';
import { quantile } from './forward/comparison.js';

const SECONDS = 2;
const ROUNDS = 6;
const PACED_QPS = 5_000;
const PACED_ROUNDS = 12;
/**
 * The fraction of rounds from which medians are taken: the quarter of rounds in which the hypervisor stole
 * the least CPU time from this machine.
 */
const QUIET_PART = 0.25;
const COMPETITORS = ['dnsdist', 'unbound', 'dnsmasq'] as const;

type Load = {
  readonly qps: number;
  readonly lost: number;
  readonly latenciesMs: readonly number[];
  readonly stolen: number;
};

/**
 * Runs `dnsperf` on the client against UDP port `port`. Without `qps`, `dnsperf` sends the next query as soon
 * as a reply arrives. With `qps`, `dnsperf` sends `qps` queries per second.
 */
async function load(topology: Topology, file: string, port: number, qps?: number): Promise<Load> {
  const words = [
    '-s',
    ADDRESSES.nodeLan,
    '-p',
    String(port),
    '-d',
    file,
    '-l',
    String(SECONDS),
    '-c',
    '8',
    '-q',
    '200',
  ];
  const paced = qps === undefined ? [] : ['-Q', String(qps), '-v'];
  const before = stolenTicks();
  const stdout = await topology.client.must('taskset', '-c', LOAD_CPU, 'dnsperf', ...words, ...paced);
  const number = (label: string): number => Number(new RegExp(`${label}:\\s+([\\d.]+)`).exec(stdout)?.[1]);
  // A line of the output is, for example: > NOERROR n1.example.com A 0.000123
  const latencies = [...stdout.matchAll(/^> \w+ \S+ \S+ ([\d.]+)$/gm)].map((match) => Number(match[1]) * 1_000);
  const stolen = stolenTicks() - before;
  return { qps: number('Queries per second'), lost: number('Queries lost'), latenciesMs: latencies, stolen };
}

/** Returns the CPU time that the hypervisor has stolen from all CPUs since boot, in clock ticks. */
function stolenTicks(): number {
  return Number(/^cpu +(?:\d+ ){7}(\d+)/.exec(readFileSync('/proc/stat', 'utf8'))?.[1] ?? 0);
}

/** Returns the median of a figure over the `QUIET_PART` of rounds with the least stolen CPU time. */
function typical<L extends Load>(loads: readonly L[], figure: (load: L) => number): number {
  const most = quantile(
    loads.map(({ stolen }) => stolen),
    QUIET_PART,
  );
  return quantile(loads.filter(({ stolen }) => stolen <= most).map(figure), 0.5);
}

const latency =
  (part: number) =>
  ({ latenciesMs }: Load): number =>
    quantile(latenciesMs, part);

/**
 * Measures all subjects in each round, one after another, so that slow changes of the machine affect all
 * subjects alike.
 */
async function pacedLoads(topology: Topology, file: string, subjects: readonly Subject[]) {
  const loads = subjects.map(({ name, port }) => ({ name, port, all: [] as Load[] }));
  for (let round = 0; round < PACED_ROUNDS; round++) {
    for (const { port, all } of loads) all.push(await load(topology, file, port, PACED_QPS));
  }
  return loads.map(({ name, all }) => ({
    name,
    median: typical(all, latency(0.5)),
    p99: typical(all, latency(0.99)),
    lost: all.reduce((sum, { lost }) => sum + lost, 0),
  }));
}

async function compare(
  topology: Topology,
  folder: string,
  { count, ttl, atLeast }: { readonly count: number; readonly ttl: number; readonly atLeast: number },
): Promise<readonly Row[]> {
  const names = NAMES(count);
  const file = join(folder, 'queries');
  await writeFile(file, `${names.map((name) => `${name} A`).join('\n')}\n`);
  const upstream = await startUpstream(topology, folder, names, ttl);
  const proxies: Subject[] = [await startWeir(topology, names)];
  try {
    for (const [index, competitor] of COMPETITORS.entries())
      proxies.push(await startCompetitor(topology, folder, competitor, 5_301 + index, names, ttl > 0));
    // Load each proxy once without measuring, so that the caches of the proxies are full.
    for (const { port } of proxies) await load(topology, file, port);
    const rates = new Map(proxies.map(({ name }) => [name, [] as Load[]]));
    for (let round = 0; round < ROUNDS; round++) {
      for (const { name, port } of proxies) rates.get(name)?.push(await load(topology, file, port));
    }
    const what = `${count.toLocaleString('en')} names, ${ttl > 0 ? 'cached' : 'not cached'}`;
    const rows: Row[] = proxies.map(({ name }) => ({
      what: `${what}: ${name}`,
      value: typical(rates.get(name) ?? [], ({ qps }) => qps),
      unit: 'queries/s',
      ...(name === 'weir' && { atLeast }),
    }));
    for (const { name, ...paced } of await pacedLoads(topology, file, proxies.slice(0, 2))) {
      const label = `${what}: ${name} at ${PACED_QPS.toLocaleString('en')} queries/s`;
      rows.push(
        { what: `${label}, median`, value: paced.median, unit: 'ms' },
        { what: `${label}, p99`, value: paced.p99, unit: 'ms', ...(name === 'weir' && { atMost: 2 }) },
      );
      if (name === 'weir') rows.push({ what: `${label}, lost`, value: paced.lost, unit: 'queries', atMost: 0 });
    }
    return rows;
  } finally {
    for (const proxy of proxies) await proxy.end();
    upstream.kill('SIGKILL');
  }
}

/**
 * Measures how much latency learning adds: Weir sends an answer only after the grants of the addresses in the
 * answer are in force. Each policy differs from the previous policy, so that Weir must learn all addresses
 * again.
 */
async function learning(topology: Topology, folder: string): Promise<readonly Row[]> {
  const names = NAMES(10_000);
  const file = join(folder, 'queries');
  await writeFile(file, `${names.map((name) => `${name} A`).join('\n')}\n`);
  const upstream = await startUpstream(topology, folder, names, 0);
  const without: Load[] = [];
  const withIt: (Load & { readonly waits: readonly number[] })[] = [];
  const weir = await startWeir(topology, names);
  try {
    await load(topology, file, 53);
    for (let round = 0; round < PACED_ROUNDS; round++) {
      await putRules(weir.node, null);
      without.push(await load(topology, file, 53, PACED_QPS));
      await putRules(weir.node, names);
      const learned = await load(topology, file, 53, PACED_QPS);
      const { text } = await weir.node.request('GET', '/metrics');
      const waits = [...text.matchAll(/^weir_dns_learning_wait_seconds\{.*\} (\S+)$/gm)].map(([, seconds]) =>
        Number(seconds),
      );
      withIt.push({ ...learned, waits: waits.map((seconds) => seconds * 1_000) });
    }
  } finally {
    await weir.end();
    upstream.kill('SIGKILL');
  }
  const more = typical(withIt, latency(0.5)) - typical(without, latency(0.5));
  return [
    {
      what: 'learning: wait of an answer for the kernel, median',
      value: typical(withIt, ({ waits }) => waits[0] ?? Number.NaN),
      unit: 'ms',
      atMost: 0.3,
    },
    {
      what: 'learning: wait of an answer for the kernel, p99',
      value: typical(withIt, ({ waits }) => waits[1] ?? Number.NaN),
      unit: 'ms',
      atMost: 5,
    },
    { what: 'learning: added latency of a lookup, median', value: more, unit: 'ms', atMost: 0.3 },
  ];
}

async function run(): Promise<readonly Row[]> {
  const sets = [
    { count: 10_000, ttl: 0, atLeast: 25_000 },
    { count: 10_000, ttl: 300, atLeast: 35_000 },
    { count: 100_000, ttl: 0, atLeast: 25_000 },
  ];
  const parts = [
    ...sets.map((set) => (topology: Topology, folder: string) => compare(topology, folder, set)),
    learning,
  ];
  const rows: Row[] = [];
  for (const part of parts) {
    const topology = await createTopology('names');
    const folder = await temporaryFolder('dns-bench');
    try {
      rows.push(...(await part(topology, folder)));
    } finally {
      await topology.remove();
      await rm(folder, { recursive: true, force: true });
    }
  }
  return rows;
}

/**
 * Measures queries a second and latencies of the DNS proxy, compared with dnsdist, unbound and dnsmasq for
 * the same list of names. Also measures how long an answer with new addresses waits for its grants.
 */
export const dnsBench: Bench = { name: 'dns', run };
