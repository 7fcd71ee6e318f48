import type { ChildProcess } from 'node:child_process';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { type NodeProcess, startNode } from '#cli/tour/node-process.js';
import { ADDRESSES, createTopology, type Topology } from '#cli/tour/topology.js';
import { builtObject } from '#dataplane/loader/bpf-object.js';
import type { Bench, Row } from './bench.js';
import { LOAD_CPU } from './dns/proxies.js';
import { quantile } from './forward/comparison.js';
import { processorTimeUs } from './inspection/processor-time.js';
import { residentMiB } from './resident.js';

/**
 * The source addresses of the client's datagrams. The policy allows datagrams from the lower half of this
 * network and denies those from the upper half.
 */
const NETWORK = '20.0.0.0/15';
const ALLOWED = '20.0.0.1';
const DENIED = '20.1.0.1';
const SOURCES = 1_000;
const PORTS = 60_000;
const SECONDS = 5;
const flows = join(dirname(builtObject), '../bench/observe/flows');
const readersProcess = fileURLToPath(new URL('./observe/readers-process.js', import.meta.url));

type Counted = {
  readonly sent: number;
  readonly lost: number;
  readonly suppressed: number;
  readonly opened: number;
  readonly denied: number;
  readonly merged: number;
};
type Read = { readonly messages: number; readonly lost: Readonly<Record<string, number>>; readonly closed: boolean };

/** A Weir node between a client that owns all addresses of `NETWORK` and a server that never replies. */
class Scene {
  private constructor(
    readonly topology: Topology,
    readonly node: NodeProcess,
  ) {}

  static async open(): Promise<Scene> {
    const topology = await createTopology('observe');
    const { client, node, server } = topology;
    await client.must('ip', 'route', 'add', 'local', NETWORK, 'dev', 'lo');
    await node.must('ip', 'route', 'add', NETWORK, 'via', ADDRESSES.client);
    const silent = 'add table inet silent; add chain inet silent in { type filter hook prerouting priority raw; }';
    await server.must('nft', `${silent}; add rule inet silent in meta l4proto udp drop`);
    const process = await startNode(topology, {
      sections: {
        api: {
          listen: '127.0.0.1:8080',
          max_connections: 5_000,
          max_connections_per_source: 5_000,
          requests_per_second: 100_000,
        },
      },
    });
    await process.ready({ except: ['policy_ready'] });
    const group = { id: 'clients', mode: 'enforce', sources: { cidrs: ['20.0.0.0/16'] } };
    const rules = [{ id: 'any', action: 'allow', match: { proto: 'udp' } }];
    const source_groups = [{ ...group, rules }];
    const reply = await process.request('PUT', '/api/v1/policy', { default_policy: 'deny', source_groups });
    if (reply.status >= 300) throw new Error(`PUT /api/v1/policy: ${reply.status} ${reply.text}`);
    await process.ready();
    return new Scene(topology, process);
  }

  /**
   * Sends UDP datagrams from `sources` addresses, of which `first` is the first, to `ports` ports of the
   * server. Sends `rate` datagrams per second, or as many as possible if `rate` is 0. Returns the number of
   * datagrams sent.
   */
  async send(first: string, sources: number, ports: number, rate: number, seconds = SECONDS): Promise<number> {
    const words = [first, sources, ADDRESSES.server, ports, rate, seconds].map(String);
    return Number(await this.topology.client.must('taskset', '-c', LOAD_CPU, flows, ...words));
  }

  async readers(count: number, stalled: number, query = ''): Promise<Readers> {
    const url = `ws://127.0.0.1:8080/api/v1/wiretap/stream${query}`;
    const words = [readersProcess, url, await this.node.token(), String(count), String(stalled)];
    return Readers.begin(this.topology.node.start(process.execPath, words));
  }

  async counted(): Promise<Counted> {
    const { text } = await this.node.request('GET', '/metrics');
    const value = (name: string): number =>
      Number(new RegExp(`^${name.replace(/[{}"]/g, '\\$&')} (\\S+)$`, 'm').exec(text)?.[1] ?? Number.NaN);
    return {
      sent: value('weir_events_sent_total'),
      lost: value('weir_events_lost_total{where="ring"}'),
      suppressed: value('weir_events_lost_total{where="source_share"}'),
      opened: value('weir_events_total{type="flow_opened"}'),
      denied: value('weir_events_total{type="denied"}'),
      merged: value('weir_findings_merged_total'),
    };
  }

  async remove(): Promise<void> {
    await this.node.remove();
    await this.topology.remove();
  }
}

class Readers {
  readonly #lines: AsyncIterator<string>;

  private constructor(readonly child: ChildProcess) {
    if (child.stdout === null) throw new Error('the process of the wiretap readers has no stdout');
    this.#lines = createInterface(child.stdout)[Symbol.asyncIterator]();
    child.stderr?.pipe(process.stderr);
  }

  static async begin(child: ChildProcess): Promise<Readers> {
    const readers = new Readers(child);
    await readers.#lines.next();
    return readers;
  }

  async read(): Promise<readonly Read[]> {
    this.child.stdin?.write('\n');
    const { value } = await this.#lines.next();
    return JSON.parse(value as string) as Read[];
  }

  /**
   * Waits until the readers have received no new message for 1.5 s, and returns the counts of each reader.
   */
  async settled(): Promise<readonly Read[]> {
    let before = '';
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, 1_500));
      const read = await this.read();
      const now = JSON.stringify(read);
      if (now === before) return read;
      before = now;
    }
  }

  end(): void {
    this.child.kill('SIGKILL');
  }
}

const difference = (after: Counted, before: Counted): Counted => ({
  sent: after.sent - before.sent,
  lost: after.lost - before.lost,
  suppressed: after.suppressed - before.suppressed,
  opened: after.opened - before.opened,
  denied: after.denied - before.denied,
  merged: after.merged - before.merged,
});
const lostOf = (reads: readonly Read[], where: string): number =>
  reads.reduce((sum, { lost }) => sum + (lost[where] ?? 0), 0);

/**
 * Sends new flows at `rate` per second to one wiretap reader. Returns the messages and losses of the reader,
 * and the event counters of the node for the same time.
 */
async function oneReader(scene: Scene, rate: number): Promise<{ read: Read; counted: Counted }> {
  const readers = await scene.readers(1, 0, '?type=flow&type=flow_end');
  const before = await scene.counted();
  await scene.send(ALLOWED, SOURCES, PORTS, rate);
  const [read] = await readers.settled();
  const counted = difference(await scene.counted(), before);
  readers.end();
  if (read === undefined) throw new Error('no wiretap reader is connected');
  return { read, counted };
}

async function run(): Promise<readonly Row[]> {
  const scene = await Scene.open();
  try {
    // Fill the flow table before the measurement. Each new flow in the measurement then evicts an old flow,
    // and so causes two events.
    await scene.send(ALLOWED, SOURCES, PORTS, 100_000, 3);
    const slow = await oneReader(scene, 55_000);

    const fast = await oneReader(scene, 130_000);

    const rows: Row[] = [
      {
        what: 'flow events from the kernel',
        value: slow.counted.sent / SECONDS,
        unit: 'events/s',
        atLeast: 100_000,
      },
      {
        what: 'flow events lost by one WebSocket reader',
        value: lostOf([slow.read], 'reader') + slow.counted.lost,
        unit: '',
        atMost: 0,
      },
      {
        what: 'overload: flow events, with those lost in the ring',
        value: (fast.counted.sent + fast.counted.lost) / SECONDS,
        unit: 'events/s',
        atLeast: 200_000,
      },
      { what: 'overload: events that the reader received', value: fast.read.messages / SECONDS, unit: 'events/s' },
      {
        what: 'overload: events neither received nor reported as lost',
        value: fast.counted.sent - fast.read.messages - lostOf([fast.read], 'reader'),
        unit: '',
        atMost: 0,
        atLeast: 0,
      },
      {
        what: 'overload: events lost in the ring and not reported',
        value: fast.counted.lost - lostOf([fast.read], 'kernel'),
        unit: '',
        atMost: 0,
        atLeast: 0,
      },
    ];
    rows.push(...(await manyReaders(scene)), ...(await findings(scene)));
    rows.push(...(await costs(scene)), ...(await readerCosts(scene)));
    return rows;
  } finally {
    await scene.remove();
  }
}

const READERS = 1_000;
const STALLED = 500;

async function manyReaders(scene: Scene): Promise<readonly Row[]> {
  const before = residentMiB(scene.node.pid);
  const readers = await scene.readers(READERS, STALLED, '?type=flow');
  const counted = await scene.counted();
  const waits: number[] = [];
  let isOver = false;
  const probing = (async () => {
    while (!isOver) {
      const started = performance.now();
      await scene.node.request('GET', '/health');
      waits.push(performance.now() - started);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  })();
  const sent = await scene.send(ALLOWED, SOURCES, PORTS, 1_000, 10);
  isOver = true;
  await probing;
  const reads = await readers.settled();
  const more = residentMiB(scene.node.pid) - before;
  const after = difference(await scene.counted(), counted);
  readers.end();
  const least = Math.min(...reads.map(({ messages }) => messages));
  const label = `${READERS} readers, ${STALLED} of them stalled`;
  return [
    { what: `${label}: events for each`, value: sent / 10, unit: 'events/s' },
    {
      what: `${label}: events lost by the others`,
      value: lostOf(reads, 'reader') + lostOf(reads, 'kernel'),
      unit: '',
      atMost: 0,
    },
    { what: `${label}: events missing at the others`, value: after.opened - least, unit: '', atMost: 0 },
    { what: `${label}: growth of the resident memory`, value: more, unit: 'MiB', atMost: 600 },
    { what: `${label}: GET /health, p99`, value: quantile(waits, 0.99), unit: 'ms' },
  ];
}

const COST_SECONDS = 2;
const COST_ROUNDS = 5;
const MODES = ['off', 'no reader', 'a reader'] as const;

/**
 * Measures the cost of observation: the packets per second that one CPU can send through the node. The modes
 * are performance mode off, observation without a wiretap reader, and observation with one. Each round
 * measures all modes.
 */
async function costs(scene: Scene): Promise<readonly Row[]> {
  const kinds = { 'new flows': PORTS, 'established flows': 4 } as const;
  const rates = new Map<string, number[]>();
  const setMode = (enabled: boolean) => scene.node.request('PUT', '/api/v1/settings/performance-mode', { enabled });
  for (let round = 0; round < COST_ROUNDS; round++) {
    for (const mode of MODES) {
      await setMode(mode !== 'off');
      const readers = mode === 'a reader' ? await scene.readers(1, 0) : undefined;
      for (const [kind, ports] of Object.entries(kinds)) {
        const sent = await scene.send(ALLOWED, SOURCES, ports, 0, COST_SECONDS);
        const key = `${kind}, ${mode}`;
        rates.set(key, [...(rates.get(key) ?? []), sent / COST_SECONDS]);
      }
      readers?.end();
    }
  }
  await setMode(true);
  const rate = (key: string): number => quantile(rates.get(key) ?? [], 0.5);
  return Object.keys(kinds).flatMap((kind) => [
    { what: `${kind}, performance mode off`, value: rate(`${kind}, off`) / 1_000, unit: 'k packets/s' },
    ...MODES.slice(1).map((mode) => ({
      what: `${kind}, observed, ${mode}`,
      value: rate(`${kind}, ${mode}`) / rate(`${kind}, off`),
      unit: '×',
    })),
  ]);
}

const RATES = [5_000, 20_000] as const;
const QUERIES = { 'no reader': null, 'a reader': '', 'a reader with fold=250ms': '?fold=250ms' } as const;

/**
 * Measures the CPU time that one wiretap reader costs the node: while sources send 50 packets a second each
 * to 4 ports, each of which is denied and a message. The time without a reader, for findings, is subtracted.
 * Each round measures all readers.
 */
async function readerCosts(scene: Scene): Promise<readonly Row[]> {
  const shares = new Map<string, number[]>();
  for (let round = 0; round < COST_ROUNDS; round++) {
    for (const rate of RATES) {
      let without = 0;
      for (const [reader, query] of Object.entries(QUERIES)) {
        const readers = query === null ? undefined : await scene.readers(1, 0, query);
        const before = processorTimeUs([scene.node.pid]);
        const started = performance.now();
        await scene.send(DENIED, rate / 50, 4, rate, SECONDS);
        const usedMs = (processorTimeUs([scene.node.pid]) - before) / 1_000;
        const share = (100 * usedMs) / (performance.now() - started);
        readers?.end();
        if (query === null) without = share;
        const key = `${rate} denied packets/s, ${reader}`;
        shares.set(key, [...(shares.get(key) ?? []), query === null ? share : share - without]);
      }
    }
  }
  return [...shares].map(([key, values]) => ({
    what: `${key}: ${key.endsWith('no reader') ? 'CPU of the node' : 'more CPU of the node'}`,
    value: quantile(values, 0.5),
    unit: '% of a CPU',
    ...(key === '5000 denied packets/s, a reader with fold=250ms' ? { atMost: 10 } : {}),
  }));
}

async function findings(scene: Scene): Promise<readonly Row[]> {
  const before = await scene.counted();
  await scene.send(DENIED, SOURCES, 4, 60_000);
  await new Promise((resolve) => setTimeout(resolve, 2_500));
  const counted = difference(await scene.counted(), before);
  return [
    { what: 'denies merged into findings', value: counted.merged / SECONDS, unit: 'events/s', atLeast: 50_000 },
    { what: 'denies lost', value: counted.denied + counted.lost - counted.merged, unit: '', atMost: 0 },
  ];
}

/**
 * Measures events a second that reach wiretap clients and findings, and the packet rate while they are
 * observed. Each lost event must be reported.
 */
export const observeBench: Bench = { name: 'observe', run };
