import { setTimeout as pause } from 'node:timers/promises';
import { EtcdCluster } from '#test/cluster/etcd-cluster.js';
import { type ClusterNode, type Reply, startNodes } from '#test/cluster/node-cluster.js';
import { enterNamespace } from '#test/kernel/namespace.js';
import { Random } from '#test/seed.js';
import { type Fault, faultSchedule } from './fault-schedule.js';
import { checkHistory, type Operation } from './history-checker.js';
import { Injector } from './injector.js';
import { acknowledgedLost, type Observation, refusedApplied, unequal, wentBack } from './invariants.js';
import { policyOf, StoredValues, valueIn } from './stored-values.js';

const MEMBERS = ['m1', 'm2', 'm3'];
const NODES = ['n1', 'n2', 'n3'];
const PATH = '/api/v1/policy';
/** The time after the last fault within which all nodes must be equal. */
const HEALING_MS = 5_000;
/** How long the writers write after the last fault. */
const WRITING_MS = 3_000;
const OBSERVE_MS = 100;

/** The result of a run. `violations` is empty if the cluster kept all its promises. */
export type ChaosReport = {
  readonly seed: number;
  readonly faults: readonly Fault[];
  readonly writes: Readonly<Record<Operation['outcome'], number>>;
  readonly reads: number;
  readonly violations: readonly string[];
};

/**
 * Runs writers and readers against three nodes on three members of etcd, under the faults of a seed. After an
 * abort of `signal`, ends all processes and throws the reason.
 */
export async function runChaos(seed: number, durationMs: number, signal?: AbortSignal): Promise<ChaosReport> {
  const etcd = await EtcdCluster.start('chaos');
  const leave = enterNamespace(etcd.namespace);
  let nodes: readonly ClusterNode[] = [];
  const stored = new StoredValues(etcd.options);
  try {
    nodes = await startNodes(etcd, NODES.length);
    const run = new Run(nodes, stored);
    const injector = new Injector(etcd, nodes);
    signal?.addEventListener('abort', () => injector.cancel());
    const faults = faultSchedule({ seed, durationMs, members: MEMBERS, nodes: NODES });
    const aborted = signal === undefined ? [] : [abortOf(signal)];
    return await Promise.race([run.perform(seed, faults, injector), ...aborted]);
  } finally {
    stored.close();
    await Promise.all(nodes.map((node) => node.end()));
    leave();
    await etcd.remove();
  }
}

function abortOf(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const abort = () => reject(signal.reason as Error);
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort);
  });
}

class Run {
  readonly #nodes: readonly ClusterNode[];
  readonly #stored: StoredValues;
  readonly #operations: Operation[] = [];
  readonly #observations = new Map<string, Observation[]>();
  #isOver = false;
  #count = 0;

  constructor(nodes: readonly ClusterNode[], stored: StoredValues) {
    this.#nodes = nodes;
    this.#stored = stored;
  }

  async perform(seed: number, faults: readonly Fault[], injector: Injector): Promise<ChaosReport> {
    const initial = this.#nextValue();
    const first = await this.#nodes[0]?.request('PUT', PATH, policyOf(initial));
    if (first?.status !== 200) throw new Error(`the first write failed: ${first?.text}`);
    const random = new Random(seed);
    const working = [
      ...this.#nodes.map((node) => this.#write(node, new Random(random.word()))),
      ...this.#nodes.map((node) => this.#observe(node)),
      this.#read('reader'),
    ];
    await injector.run(faults);
    const healed = performance.now() + HEALING_MS;
    await pause(WRITING_MS);
    this.#isOver = true;
    await Promise.all(working);
    await pause(Math.max(HEALING_MS - WRITING_MS, healed - performance.now()));
    const violations = [...(await this.#differences()), ...this.#nodes.flatMap(({ crashes }) => crashes)];

    const verdict = checkHistory(this.#operations, initial);
    if (!verdict.linearizable) violations.push(`not linearizable: ${verdict.detail}`);
    const history = await this.#stored.history();
    for (const { value } of acknowledgedLost(this.#operations, history))
      violations.push(`the acknowledged write ${value} is lost`);
    for (const { value } of refusedApplied(this.#operations, history))
      violations.push(`the refused write ${value} was applied`);
    for (const { node, counter, from, to } of wentBack(this.#observations))
      violations.push(`${node} went back: ${counter} ${from} to ${to}`);
    const writes = this.#operations.filter(({ kind }) => kind === 'write');
    const countOf = (outcome: Operation['outcome']) => writes.filter((write) => write.outcome === outcome).length;
    return {
      seed,
      faults,
      writes: { ok: countOf('ok'), failed: countOf('failed'), unknown: countOf('unknown') },
      reads: this.#operations.length - writes.length,
      violations,
    };
  }

  /** Writes new values at a node; half of the writes demand that the policy is the one that was read. */
  async #write(node: ClusterNode, random: Random): Promise<void> {
    while (!this.#isOver) {
      await pause(random.between(5, 120));
      const isConditional = random.chance(0.5);
      const before = isConditional ? answered(await asked(node.request('GET', PATH))) : null;
      if (isConditional && before?.status !== 200) continue;
      const etag = before?.headers.get('etag');
      const value = this.#nextValue();
      const call = performance.now();
      const reply = await asked(node.request('PUT', PATH, policyOf(value), etag == null ? {} : { 'if-match': etag }));
      const outcome = outcomeOf(reply);
      this.#operations.push({
        process: node.id,
        kind: 'write',
        call,
        return: outcome === 'unknown' ? Number.POSITIVE_INFINITY : performance.now(),
        value,
        expected: before == null ? null : valueIn(before.text),
        outcome,
      });
    }
  }

  async #read(process: string): Promise<void> {
    while (!this.#isOver) {
      await pause(20);
      const call = performance.now();
      try {
        const value = await this.#stored.active();
        this.#operations.push({
          process,
          kind: 'read',
          call,
          return: performance.now(),
          value,
          expected: null,
          outcome: 'ok',
        });
      } catch {
        // Without etcd there is nothing to read.
      }
    }
  }

  async #observe(node: ClusterNode): Promise<void> {
    const seen: Observation[] = [];
    this.#observations.set(node.id, seen);
    while (!this.#isOver) {
      await pause(OBSERVE_MS);
      const reply = answered(await asked(node.request('GET', PATH)));
      // After a restart, a node has no policy in force until it has compiled the stored policy.
      const generation = Number(reply?.headers.get('weir-generation') ?? 0);
      if (reply?.status !== 200 || generation === 0) continue;
      const sequence = Number(/\.(\d+)"$/.exec(reply.headers.get('etag') ?? '')?.[1]);
      seen.push({ at: performance.now(), generation, sequence });
    }
  }

  /** Compares all nodes with each other and with etcd. */
  async #differences(): Promise<string[]> {
    const states = new Map<string, Readonly<Record<string, unknown>>>();
    for (const node of this.#nodes) {
      const reply = answered(await asked(node.request('GET', PATH)));
      const check = await node.check('policy_replication').catch(() => null);
      states.set(node.id, {
        status: reply?.status,
        value: reply?.status === 200 ? valueIn(reply.text) : null,
        etag: reply?.headers.get('etag'),
        generation: reply?.headers.get('weir-generation'),
        isReplicated: check?.ok ?? false,
      });
    }
    return unequal(states).map(
      ({ field, values }) =>
        `the nodes differ ${HEALING_MS} ms after the last fault in ${field}: ${JSON.stringify([...values])}`,
    );
  }

  #nextValue(): string {
    this.#count += 1;
    return `10.${this.#count >> 16}.${(this.#count >> 8) & 255}.${this.#count & 255}`;
  }
}

/**
 * Returns `refused` if the node did not accept the connection, and null if no response came, for example
 * because the node was killed.
 */
async function asked(request: Promise<Reply>): Promise<Reply | 'refused' | null> {
  try {
    return await request;
  } catch (failure) {
    const { cause } = failure as { readonly cause?: { readonly code?: string } };
    return cause?.code === 'ECONNREFUSED' ? 'refused' : null;
  }
}

const answered = (reply: Reply | 'refused' | null): Reply | null => (reply === 'refused' ? null : reply);

function outcomeOf(reply: Reply | 'refused' | null): Operation['outcome'] {
  if (reply === 'refused') return 'failed';
  if (reply === null) return 'unknown';
  if (reply.status === 200) return 'ok';
  const { type = '' } = (reply.body ?? {}) as { readonly type?: string };
  return type.endsWith('outcome_unknown') ? 'unknown' : 'failed';
}
