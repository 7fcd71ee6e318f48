import type { OwnerName } from '#contracts/kubernetes/address-owner.js';
import type { ListedMembership } from '#contracts/kubernetes/membership.js';
import type { ExplainNode, UnforwardedReason } from '#contracts/policy/explain-facts.js';
import type { PolicyConfig } from '#contracts/policy/policy-document.js';
import type { Address, Packet } from '#contracts/policy/policy-model.js';
import { etagOf, type StoredPolicy } from '#contracts/policy/policy-record.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import { type PolicyThread, PolicyThreadFailed } from '#policies/thread/policy-thread.js';
import type { PolicySurroundings, PolicyText } from '#policies/thread/policy-work.js';
import { storedText } from '#policies/thread/stored-text.js';
import type { Explained, ExplainQuery, Explanation, PacketQuery } from '#policy/explain/explain.js';
import { isDeniedByPolicy, openerOf, opensFlow } from '#policy/explain/reply.js';
import type { PolicyStore } from '#store/store-types.js';
import { FairQueue, runOrRefuse } from './fair-queue.js';

/**
 * An explain request. `policy` is a draft in singleton form (without name and mode); the API has checked its
 * shape, but not validated its contents. Without `policy`, the request is about the active policy.
 */
export type ExplainQuestion = { readonly policy?: PolicyConfig; readonly query: ExplainQuery };

export type ExplainPorts = {
  readonly policies: PolicyStore;
  readonly active: ExplainLane;
  /**
   * The thread and queue for drafts (policies that requests contain). A draft that exceeds its time limit
   * terminates its thread. If drafts shared the thread of the active policy, the cached active policy would
   * be lost.
   */
  readonly drafts: ExplainLane;
  readonly surroundings: PolicySurroundings;
  /**
   * Returns the state of the node that affects the decision about a packet. `ofDraft`: the request is about a
   * draft (a policy in the request).
   */
  readonly node: (packet: Packet, ofDraft: boolean) => Promise<ExplainNode>;
  /** Returns why the DNS proxy answers a lookup of a name itself; null if it does not or does not run. */
  readonly unforwardedReason: (name: string) => UnforwardedReason | null;
  /** Returns which selectors are resolved, and which of them select a source. */
  readonly membership: (source: Address, ofDraft: boolean) => ListedMembership;
  readonly ownerOf: (address: Address) => OwnerName | null;
  /** Returns the generation that the kernel enforces instead of the active policy; null if there is none. */
  readonly enforcedInstead: () => Promise<number | null>;
};

/**
 * A policy thread, the queue of explain requests for this thread, and the time limit of a request in
 * milliseconds.
 */
export type ExplainLane = { readonly thread: PolicyThread; readonly queue: FairQueue; readonly budgetMs: number };

export const WAITING_PER_SUBJECT = 32;

/**
 * Creates a lane: a policy thread with a queue. `budgetMs` is the time limit of a request in milliseconds,
 * without the wait in the queue. When a request exceeds the limit, its thread is terminated, and the next
 * request starts a new thread.
 */
export function explainLane(thread: PolicyThread, budgetMs: number): ExplainLane {
  return { thread, queue: new FairQueue(WAITING_PER_SUBJECT), budgetMs };
}

/**
 * The time limit in milliseconds of an explain request for the active policy. It is long enough for the
 * thread to read the largest policy.
 */
export const ACTIVE_BUDGET_MS = 30_000;
/**
 * The time limit in milliseconds of an explain request for a draft (a policy in the request). A draft has at
 * most 1 MiB. A new thread starts and reads such a draft within one second.
 */
export const DRAFT_BUDGET_MS = 4_000;

/**
 * Explains a draft (the policy in the request) or the active policy. For the active policy, first sends only
 * its cache key to the thread. If the policy is not in the cache of the thread, sends the request again with
 * the policy text.
 */
export async function explainPolicy(
  ports: ExplainPorts,
  { policy, query: asks }: ExplainQuestion,
  subject: string,
): Promise<Explained | Refusal> {
  const { active, drafts, policies, surroundings, enforcedInstead } = ports;
  const { thread, queue, budgetMs } = policy === undefined ? active : drafts;
  let signal: AbortSignal | undefined;
  try {
    return await runOrRefuse(queue, subject, async () => {
      const own = AbortSignal.timeout(budgetMs);
      signal = own;
      const explain = async (asked: ExplainQuery): Promise<Explanation | Refusal> => {
        const placed =
          'packet' in asked
            ? await withNode(ports, asked, policy !== undefined)
            : { ...asked, unforwarded: ports.unforwardedReason(asked.query) };
        const addresses = addressesOf(placed);
        const query = { ...placed, owners: addresses.map((address) => ({ address, owner: ports.ownerOf(address) })) };
        const [source] = addresses;
        const membership = ports.membership(source, policy !== undefined);
        const context = { policies, surroundings, thread, membership, signal: own };
        return policy === undefined ? explainActive(context, query) : explainDraft(context, policy, query);
      };
      const explained = await explain(asks);
      if ('kind' in explained) return explained;
      const opener = 'packet' in asks && isDeniedByPolicy(explained) ? openerOf(asks) : null;
      // The explanation of the packet is complete. The explanation of its flow is optional, so a timeout
      // omits it.
      const opened =
        opener === null
          ? null
          : await explain({ packet: opener }).catch((failure: unknown) => {
              if (failure instanceof PolicyThreadFailed) return null;
              throw failure;
            });
      return {
        ...explained,
        reply_to: opened !== null && !('kind' in opened) && opensFlow(opened) ? opener : null,
        enforced_instead: policy === undefined ? await enforcedInstead() : null,
      };
    });
  } catch (failure) {
    if (failure instanceof PolicyThreadFailed) {
      return signal?.aborted === true
        ? refusal(
            'too_costly',
            `the explanation was cancelled after ${budgetMs} ms: use a smaller draft, or fewer regular expressions`,
          )
        : refusal('feature_unavailable', failure.message);
    }
    throw failure;
  }
}

async function withNode({ node }: Pick<ExplainPorts, 'node'>, asks: PacketQuery, ofDraft: boolean) {
  const { packet } = asks;
  const now = await node(packet, ofDraft);
  const end = now.translation?.real ?? null;
  if (end === null) return { ...asks, node: now };
  const real = { ...packet, destination: end.address, destinationPort: end.port };
  return { ...asks, node: now, real: { packet: real, node: await node(real, ofDraft) } };
}

/** Returns the source address of a request, and its destination addresses before and after translation. */
function addressesOf(query: ExplainQuery): readonly [Address, ...Address[]] {
  if ('query' in query) return [query.source];
  const { packet, real } = query;
  return [packet.source, packet.destination, ...(real === undefined ? [] : [real.packet.destination])];
}

type ExplainContext = Pick<ExplainPorts, 'policies' | 'surroundings'> & {
  readonly thread: PolicyThread;
  readonly membership: ListedMembership;
  readonly signal: AbortSignal;
};

async function explainDraft(
  { thread, surroundings, membership, signal }: ExplainContext,
  policy: PolicyConfig,
  query: ExplainQuery,
): Promise<Explanation | Refusal> {
  const text: PolicyText = { body: Buffer.from(JSON.stringify(policy)), form: 'singleton', recordMode: 'enforce' };
  const work = { kind: 'explain', key: null, text, surroundings, query, membership } as const;
  const result = await thread.perform(work, { signal });
  switch (result.kind) {
    case 'explained':
      return result.explanation;
    case 'unreadable': {
      const problems = result.problems.map((problem) => ({ ...problem, pointer: `/policy${problem.pointer}` }));
      return { ...refusal('invalid_policy', 'the draft is not valid'), problems };
    }
    case 'unknown':
      throw new Error('explain with a draft policy: the policy thread does not have the text of the draft');
  }
}

async function explainActive(
  { policies, thread, surroundings, membership, signal }: ExplainContext,
  query: ExplainQuery,
): Promise<Explanation | Refusal> {
  const { record } = await policies.enforced();
  const inMemory = await thread.perform(
    { kind: 'explain', key: etagOf(record), text: null, surroundings, query, membership },
    { signal },
  );
  if (inMemory.kind === 'explained') return inMemory.explanation;
  const { stored } = await policies.toEnforce();
  const key = etagOf(stored?.record ?? null);
  const explained = await thread.perform(
    { kind: 'explain', key, text: activeText(stored), surroundings, query, membership },
    { signal },
  );
  if (explained.kind === 'explained') return explained.explanation;
  return refusal('feature_unavailable', 'the stored policy cannot be read');
}

function activeText(stored: StoredPolicy | null): PolicyText {
  return stored === null ? { body: Buffer.from('{}'), form: 'singleton', recordMode: 'enforce' } : storedText(stored);
}
