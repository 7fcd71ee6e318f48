import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ADDRESSES, createTopology, type Topology, temporaryFolder } from '#cli/topology.js';
import type { Bench, Row } from './bench.js';
import { LOAD_CPU, NAMES, putRules, type Subject, startPeer, startUpstream, startWeir } from './dns/proxies.js';
import { quantile } from './forward/comparison.js';

const SECONDS = 2;
const ROUNDS = 6;
const PACED_QPS = 5_000;
const PACED_ROUNDS = 12;
/** Of rounds in turns, this part counts: the ones in which others on this machine disturbed least. */
const QUIET_PART = 0.25;
const PEERS = ['dnsdist', 'unbound', 'dnsmasq'] as const;

type Load = { readonly qps: number; readonly lost: number; readonly latenciesMs: readonly number[] };

/** Queries from the client, as fast as they are answered, or so many a second. */
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
  const stdout = await topology.client.must('taskset', '-c', LOAD_CPU, 'dnsperf', ...words, ...paced);
  const number = (label: string): number => Number(new RegExp(`${label}:\\s+([\\d.]+)`).exec(stdout)?.[1]);
  // > NOERROR n1.example.com A 0.000123
  const latencies = [...stdout.matchAll(/^> \w+ \S+ \S+ ([\d.]+)$/gm)].map((match) => Number(match[1]) * 1_000);
  return { qps: number('Queries per second'), lost: number('Queries lost'), latenciesMs: latencies };
}

async function pacedLoads(topology: Topology, file: string, port: number) {
  const loads: Load[] = [];
  for (let round = 0; round < PACED_ROUNDS; round++) loads.push(await load(topology, file, port, PACED_QPS));
  const quiet = (part: number): number =>
    quantile(
      loads.map(({ latenciesMs }) => quantile(latenciesMs, part)),
      QUIET_PART,
    );
  return { median: quiet(0.5), p99: quiet(0.99), lost: loads.reduce((sum, { lost }) => sum + lost, 0) };
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
    for (const [index, peer] of PEERS.entries())
      proxies.push(await startPeer(topology, folder, peer, 5_301 + index, names, ttl > 0));
    // Once, so that what can be kept is.
    for (const { port } of proxies) await load(topology, file, port);
    const rates = new Map(proxies.map(({ name }) => [name, [] as number[]]));
    for (let round = 0; round < ROUNDS; round++) {
      for (const { name, port } of proxies) rates.get(name)?.push((await load(topology, file, port)).qps);
    }
    const what = `${count.toLocaleString('en')} names, ${ttl > 0 ? 'kept' : 'not kept'}`;
    const rows: Row[] = proxies.map(({ name }) => ({
      what: `${what}: ${name}`,
      value: quantile(rates.get(name) ?? [], 1 - QUIET_PART),
      unit: 'queries/s',
      ...(name === 'weir' && { atLeast }),
    }));
    for (const { name, port } of proxies.slice(0, 2)) {
      const paced = await pacedLoads(topology, file, port);
      rows.push(
        {
          what: `${what}: ${name} at ${PACED_QPS.toLocaleString('en')} queries/s, median`,
          value: paced.median,
          unit: 'ms',
        },
        { what: `${what}: and p99`, value: paced.p99, unit: 'ms', ...(name === 'weir' && { atMost: 2 }) },
      );
      if (name === 'weir') rows.push({ what: `${what}: and lost`, value: paced.lost, unit: 'queries', atMost: 0 });
    }
    return rows;
  } finally {
    for (const proxy of proxies) await proxy.end();
    upstream.kill('SIGKILL');
  }
}

/** What it costs an answer that its addresses are in force before it leaves. */
async function learning(topology: Topology, folder: string): Promise<readonly Row[]> {
  const names = NAMES(10_000);
  const file = join(folder, 'queries');
  await writeFile(file, `${names.map((name) => `${name} A`).join('\n')}\n`);
  const upstream = await startUpstream(topology, folder, names, 0);
  const figures = new Map([0.5, 0.99].map((part) => [part, { without: [] as number[], withIt: [] as number[] }]));
  const weir = await startWeir(topology, names);
  try {
    await load(topology, file, 53);
    for (let round = 0; round < PACED_ROUNDS; round++) {
      await putRules(weir.node, null);
      const plain = await load(topology, file, 53, PACED_QPS);
      await putRules(weir.node, names);
      const learned = await load(topology, file, 53, PACED_QPS);
      for (const [part, { without, withIt }] of figures) {
        without.push(quantile(plain.latenciesMs, part));
        withIt.push(quantile(learned.latenciesMs, part));
      }
    }
  } finally {
    await weir.end();
    upstream.kill('SIGKILL');
  }
  const more = (part: number): number => {
    const { without = [], withIt = [] } = figures.get(part) ?? {};
    return quantile(withIt, QUIET_PART) - quantile(without, QUIET_PART);
  };
  return [
    { what: 'learning before an answer leaves: more at the median', value: more(0.5), unit: 'ms', atMost: 0.3 },
    { what: 'and at p99', value: more(0.99), unit: 'ms', atMost: 1 },
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

export const dnsBench: Bench = { name: 'dns', run };
