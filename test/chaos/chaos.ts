import { setTimeout as pause } from 'node:timers/promises';
import { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { EtcdCluster } from '#test/cluster/etcd-cluster.js';
import { type ClusterNode, startNodes } from '#test/cluster/node-cluster.js';
import { enterNamespace } from '#test/kernel/namespace.js';
import { ProgressClock } from '#test/progress-clock.js';
import { Random } from '#test/seed.js';
import { type Fault, faultSchedule } from './fault-schedule.js';
import { checkHistory, type Operation } from './history-checker.js';
import { Injector } from './injector.js';
import { acknowledgedLost, refusedApplied, unequal, wentBack } from './invariants.js';
import { type Bound, type CommittedCode, checkProbes, positionAt } from './probe-checker.js';
import { ProbeFlows, type ProbeTick } from './probe-flows.js';
import { ProbedPlaces } from './probed-places.js';
import { type EndedWrite, unexplained } from './refusals.js';
import { type StepCount, sumOf } from './step-counts.js';
import { codeOf, StoredValues } from './stored-values.js';
import { Workload } from './workload.js';
import { WriteSteps } from './write-steps.js';

const MEMBERS = ['m1', 'm2', 'm3'];
const NODES = ['n1', 'n2', 'n3'];
/** The time of a progress clock after the last fault within which all nodes must be equal. */
const HEALING_MS = 5_000;
/**
 * The longest time for which a node that was frozen during a write delays the writes of other nodes after the
 * last fault.
 */
const WAITING_MS = 6_000;
/** How long the writers write after the last fault. */
const WRITING_MS = 3_000;
/** How long a node may take to start. */
const STARTING_MS = 30_000;
/** A killed process runs for at most this time after its kill. */
const KILLED_MS = 100;

/** The result of a run. `violations` is empty if the cluster kept all its promises. */
export type ChaosReport = {
  readonly seed: number;
  readonly faults: readonly Fault[];
  readonly steps: readonly StepCount[];
  readonly writes: Readonly<Record<Operation['outcome'], number>>;
  /** The number of writes without success, by the code of the response. */
  readonly failures: ReadonlyMap<string, number>;
  /** The writes without success that no fault explains. */
  readonly unexplained: readonly EndedWrite[];
  readonly reads: number;
  readonly probes: number;
  readonly violations: readonly string[];
};

/**
 * Runs writers and readers against three nodes on three members of etcd, under the faults of a seed. Probe
 * flows pass through all nodes. After an abort of `signal`, ends all processes and throws the reason.
 */
export async function runChaos(seed: number, durationMs: number, signal?: AbortSignal): Promise<ChaosReport> {
  const etcd = await EtcdCluster.start(`chaos${seed}`);
  const leave = enterNamespace(etcd.namespace);
  const ending: (() => unknown)[] = [];
  try {
    const probed = await ProbedPlaces.create(etcd, NODES);
    ending.unshift(() => probed.remove());
    const nodes = await startNodes(etcd, NODES.length, {}, probed.places);
    ending.unshift(() => Promise.all(nodes.map((node) => node.end())));
    // Before its first start a node filters nothing, so the probe flows begin only when each node enforces.
    await Promise.all(nodes.map((node) => node.passes('dataplane_running')));
    const stored = new StoredValues(etcd.options);
    const client = new EtcdClient(etcd.options);
    const steps = new WriteSteps(client);
    const flows = await ProbeFlows.start(probed.probes);
    ending.unshift(
      () => stored.close(),
      () => steps.close(),
      () => client.close(),
      () => flows.close(),
    );
    const injector = new Injector(etcd, nodes, client, steps);
    signal?.addEventListener('abort', () => injector.cancel());
    const faults = faultSchedule({ seed, durationMs, members: MEMBERS, nodes: NODES });
    const run = new Run({ nodes, stored, steps, injector, flows });
    const aborted = signal === undefined ? [] : [abortOf(signal)];
    return await Promise.race([run.perform(seed, faults), ...aborted]);
  } finally {
    for (const end of ending) await end();
    leave();
    await etcd.remove();
  }
}

function countsOf(failed: readonly EndedWrite[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { code } of failed) counts.set(code, (counts.get(code) ?? 0) + 1);
  return counts;
}

function abortOf(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const abort = () => reject(signal.reason as Error);
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort);
  });
}

type RunParts = {
  readonly nodes: readonly ClusterNode[];
  readonly stored: StoredValues;
  readonly steps: WriteSteps;
  readonly injector: Injector;
  readonly flows: ProbeFlows;
};

class Run {
  readonly #parts: RunParts;
  readonly #workload: Workload;

  constructor(parts: RunParts) {
    this.#parts = parts;
    this.#workload = new Workload(parts.nodes, parts.stored);
  }

  async perform(seed: number, faults: readonly Fault[]): Promise<ChaosReport> {
    const { nodes, stored, injector, flows } = this.#parts;
    const workload = this.#workload;
    const began = performance.now();
    const first = await workload.first();
    workload.start(new Random(seed));
    await injector.run(faults);
    // The fault of a killed node ends when its process has started again.
    for (const node of nodes) {
      await node.serves();
      await node.passes('policy_ready', STARTING_MS);
    }
    const mended = performance.now();
    const healing = new ProgressClock();
    await pause(WRITING_MS);
    await workload.end();
    const late = healing.ms() > WAITING_MS ? workload.ended : [];
    const violations = late
      .filter(({ to }) => to > mended + WAITING_MS)
      .map(
        ({ node, code, detail, from, to }) =>
          `a write at ${node} waited from ${Math.round(from - mended)} to ${Math.round(to - mended)} ms after the last fault: ${code} ${detail}`,
      );
    await healing.reaches(HEALING_MS);
    violations.push(...(await this.#differences()));
    for (const node of nodes) {
      const code = await workload.writeAt(node, false);
      if (code !== 'ok')
        violations.push(`${node.id} refuses a write ${Math.round(healing.ms())} ms after the last fault: ${code}`);
    }
    const ticks = await flows.end();
    violations.push(...nodes.flatMap(({ crashes }) => crashes));

    const { operations } = workload;
    const verdict = checkHistory(operations, first.value);
    if (!verdict.linearizable) violations.push(`not linearizable: ${verdict.detail}`);
    for (const damage of workload.damages) violations.push(`the active policy in etcd is damaged: ${damage}`);
    const read = await stored.history();
    const history = read.filter((value) => value !== null);
    if (history.length < read.length) violations.push(`etcd lacks the text of ${read.length - history.length} commits`);
    for (const { value } of acknowledgedLost(operations, history))
      violations.push(`the acknowledged write ${value} is lost`);
    for (const { value } of refusedApplied(operations, history))
      violations.push(`the refused write ${value} was applied`);
    for (const { node, counter, from, to } of wentBack(workload.observations))
      violations.push(`${node} went back: ${counter} ${from} to ${to}`);

    const writes = operations.filter(({ kind }) => kind === 'write');
    const calls = new Map(writes.map(({ value, call }) => [value, call]));
    const commits = history.map((value) => ({ code: codeOf(value), calledAt: calls.get(value) ?? began }));
    const positionOf = (generation: number): number => generation - first.generation + 1;
    const positions = new Map<string, readonly Bound[]>();
    for (const { id } of nodes) {
      const ofNode = ticks.filter(({ node }) => node === id);
      const probed = this.#checkProbes(id, ofNode, commits, history, positionOf);
      positions.set(id, probed.positions);
      violations.push(...probed.violations);
    }
    const countOf = (outcome: Operation['outcome']) => writes.filter((write) => write.outcome === outcome).length;
    return {
      seed,
      faults,
      steps: this.#stepCounts(faults, positions, positionOf),
      writes: { ok: countOf('ok'), failed: countOf('failed'), unknown: countOf('unknown') },
      failures: countsOf(workload.failed),
      unexplained: unexplained(workload.failed, injector.spans),
      reads: operations.length - writes.length,
      probes: ticks.length,
      violations,
    };
  }

  #checkProbes(
    id: string,
    ticks: readonly ProbeTick[],
    commits: readonly CommittedCode[],
    history: readonly string[],
    positionOf: (generation: number) => number,
  ): { readonly positions: readonly Bound[]; readonly violations: readonly string[] } {
    const { acknowledged, observations } = this.#workload;
    const ofWrites = acknowledged
      .filter(({ node }) => node === id)
      .map(({ value, at }) => ({ at, position: history.indexOf(value) + 1 }));
    const ofReads = (observations.get(id) ?? []).map(({ generation, at }) => ({
      at,
      position: positionOf(generation),
    }));
    const { thirds, positions } = checkProbes(ticks, commits, [...ofWrites, ...ofReads]);
    const [third] = thirds;
    if (third === undefined) return { positions, violations: [] };
    const verdict = third.allowed ? 'allowed' : 'denied';
    const at = Math.round(third.at - (ticks[0]?.from ?? 0));
    const detail = `at ${at} ms it ${verdict} probe port ${third.port}, unlike the commits ${third.from} to ${third.to}`;
    return { positions, violations: [`${id} gave ${thirds.length} probes a third verdict: ${detail}`] };
  }

  #stepCounts(
    faults: readonly Fault[],
    positions: ReadonlyMap<string, readonly Bound[]>,
    positionOf: (generation: number) => number,
  ): StepCount[] {
    const { injector, steps } = this.#parts;
    const planned = faults
      .filter((fault) => 'step' in fault)
      .map(({ kind, step }) => ({ kind, step, planned: 1, hit: 0, committed: 0, flipped: 0 }));
    const hits = injector.hits.map(({ kind, step, node, lock, at }) => {
      const generation = steps.committedBy(lock);
      const position = positionAt(positions.get(node) ?? [], at + KILLED_MS) ?? 0;
      const isCommitted = generation !== null;
      const isFlipped = isCommitted && position >= positionOf(generation);
      return { kind, step, planned: 0, hit: 1, committed: Number(isCommitted), flipped: Number(isFlipped) };
    });
    return sumOf([...planned, ...hits]);
  }

  /** Compares all nodes with each other. */
  async #differences(): Promise<string[]> {
    const states = new Map<string, Readonly<Record<string, unknown>>>();
    for (const node of this.#parts.nodes) states.set(node.id, await this.#workload.stateOf(node));
    return unequal(states).map(
      ({ field, values }) =>
        `the nodes differ ${HEALING_MS} ms after the last fault in ${field}: ${JSON.stringify([...values])}`,
    );
  }
}
