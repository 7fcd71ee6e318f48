import { setTimeout as pause } from 'node:timers/promises';
import { StoreError } from '#store/store-error.js';
import type { ClusterNode, Reply } from '#test/cluster/node-cluster.js';
import { Random } from '#test/seed.js';
import type { Operation } from './history-checker.js';
import type { Observation } from './invariants.js';
import type { EndedWrite } from './refusals.js';
import { numberedValue, policyOf, type StoredValues, valueIn } from './stored-values.js';

const PATH = '/api/v1/policy';
const OBSERVE_MS = 100;
const READ_MS = 20;

/** An acknowledged write: the node then enforces the value. */
export type Acknowledged = { readonly node: string; readonly value: string; readonly at: number };

/** The state of a node, as its API reports it. */
export type ReportedState = Readonly<Record<'status' | 'value' | 'etag' | 'generation' | 'isReplicated', unknown>>;

/** Writers and readers of a cluster, which record all that they do until `end`. */
export class Workload {
  readonly operations: Operation[] = [];
  readonly observations = new Map<string, Observation[]>();
  readonly acknowledged: Acknowledged[] = [];
  /** All writes with the codes of their responses; the code of a write with success is `ok`. */
  readonly ended: EndedWrite[] = [];
  /** The messages of reads that found the active policy in etcd damaged. */
  readonly damages = new Set<string>();
  readonly #nodes: readonly ClusterNode[];
  readonly #stored: StoredValues;
  #working: readonly Promise<void>[] = [];
  #isOver = false;
  #count = 0;

  constructor(nodes: readonly ClusterNode[], stored: StoredValues) {
    this.#nodes = nodes;
    this.#stored = stored;
  }

  /** Writes the first policy, and waits until all nodes have it. Returns its value and its generation. */
  async first(): Promise<{ readonly value: string; readonly generation: number }> {
    const value = this.#nextValue();
    const reply = await this.#nodes[0]?.request('PUT', PATH, policyOf(value));
    if (reply?.status !== 200) throw new Error(`the first write failed: ${reply?.text}`);
    for (const node of this.#nodes) while ((await node.request('GET', PATH)).text === '{}') await pause(READ_MS);
    return { value, generation: Number(reply.headers.get('weir-generation')) };
  }

  get failed(): readonly EndedWrite[] {
    return this.ended.filter(({ code }) => code !== 'ok');
  }

  start(random: Random): void {
    for (const { id } of this.#nodes) this.observations.set(id, []);
    this.#working = [
      ...this.#nodes.map((node) => this.#write(node, new Random(random.word()))),
      ...this.#nodes.map((node) => this.#observe(node)),
      this.#read('reader'),
    ];
  }

  /** Resolves when all requests have ended. */
  async end(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#working);
  }

  /** Writes a new value at a node. Returns the code of the response, or `ok`. */
  async writeAt(node: ClusterNode, isConditional: boolean): Promise<string> {
    const before = isConditional ? answered(await asked(node.request('GET', PATH))) : null;
    if (isConditional && before?.status !== 200) return 'unread';
    const etag = before?.headers.get('etag');
    const value = this.#nextValue();
    const call = performance.now();
    const reply = await asked(node.request('PUT', PATH, policyOf(value), etag == null ? {} : { 'if-match': etag }));
    const outcome = outcomeOf(reply);
    const at = performance.now();
    this.operations.push({
      process: node.id,
      kind: 'write',
      call,
      return: outcome === 'unknown' ? Number.POSITIVE_INFINITY : at,
      value,
      expected: before == null ? null : valueIn(before.text),
      outcome,
    });
    if (outcome === 'ok') this.acknowledged.push({ node: node.id, value, at });
    const code = codeOf(reply);
    this.ended.push({ node: node.id, code, detail: detailOf(reply), from: call, to: at });
    return code;
  }

  async stateOf(node: ClusterNode): Promise<ReportedState> {
    const reply = answered(await asked(node.request('GET', PATH)));
    const check = await node.check('policy_replication').catch(() => null);
    return {
      status: reply?.status,
      value: reply?.status === 200 ? valueIn(reply.text) : null,
      etag: reply?.headers.get('etag'),
      generation: reply?.headers.get('weir-generation'),
      isReplicated: check?.ok ?? false,
    };
  }

  /** Writes a new value. Half of the writes succeed only if the policy is still the one that was read. */
  async #write(node: ClusterNode, random: Random): Promise<void> {
    while (!this.#isOver) {
      await pause(random.between(5, 120));
      await this.writeAt(node, random.chance(0.5));
    }
  }

  async #read(process: string): Promise<void> {
    while (!this.#isOver) {
      await pause(READ_MS);
      const call = performance.now();
      try {
        const value = await this.#stored.active();
        this.operations.push({
          process,
          kind: 'read',
          call,
          return: performance.now(),
          value,
          expected: null,
          outcome: 'ok',
        });
      } catch (failure) {
        // Other failures only mean that etcd is not reachable.
        if (failure instanceof StoreError && failure.code === 'store_damaged') this.damages.add(failure.message);
      }
    }
  }

  async #observe(node: ClusterNode): Promise<void> {
    while (!this.#isOver) {
      await pause(OBSERVE_MS);
      const reply = answered(await asked(node.request('GET', PATH)));
      // After a restart, a node has no policy in force until it has compiled the stored policy.
      const generation = Number(reply?.headers.get('weir-generation') ?? 0);
      if (reply?.status !== 200 || generation === 0) continue;
      const sequence = Number(/\.(\d+)"$/.exec(reply.headers.get('etag') ?? '')?.[1]);
      this.observations.get(node.id)?.push({ at: performance.now(), generation, sequence });
    }
  }

  #nextValue(): string {
    this.#count += 1;
    return numberedValue(this.#count);
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

function codeOf(reply: Reply | 'refused' | null): string {
  if (reply === 'refused') return 'not_running';
  if (reply === null) return 'no_response';
  if (reply.status === 200) return 'ok';
  const { type } = (reply.body ?? {}) as { readonly type?: string };
  return type?.split(':').at(-1) ?? `status_${reply.status}`;
}

function detailOf(reply: Reply | 'refused' | null): string {
  const { detail } = (answered(reply)?.body ?? {}) as { readonly detail?: string };
  return detail ?? '';
}

function outcomeOf(reply: Reply | 'refused' | null): Operation['outcome'] {
  const code = codeOf(reply);
  if (code === 'ok') return 'ok';
  return code === 'no_response' || code === 'outcome_unknown' ? 'unknown' : 'failed';
}
