import { setMaxListeners } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import type { Member } from '../membership.js';
import type { RegisteredNode } from '../node-registry.js';
import type { PeerClient, PeerRequest } from './peer-client.js';
import { fingerprintOf } from './peer-identity.js';

/** A node without a usable response, and the reason in one sentence. */
export type NodeFailure = { readonly node: string; readonly error: string };

/** A response of a node: the HTTP status and the JSON value of the body. */
export type NodeResponse = { readonly node: string; readonly status: number; readonly body: unknown };

type Sources = {
  readonly self: string;
  readonly client: PeerClient;
  /** Reads the present members from etcd. */
  readonly members: () => Promise<readonly Member[]>;
  /** Reads the nodes of the cluster, present or not, from the local store. */
  readonly registered: () => Promise<readonly RegisteredNode[]>;
};

/** How long a node may take to respond. */
const ANSWER_MS = 2_000;
/** How long the members that were read are used: to ask them, and to find an unknown certificate. */
const FRESH_MS = 1_000;
const UNKNOWN_FRESH_MS = 200;
/** How long a read of the members may take. Afterwards those of the last read are used. */
const READ_MS = 500;

/** The other nodes of the cluster, as this node reaches them through their peer listeners. */
export class Peers {
  readonly #sources: Sources;
  #members: readonly Member[] = [];
  #readAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<void> | undefined;

  constructor(sources: Sources) {
    this.#sources = sources;
  }

  /**
   * Sends a GET request for `path` to all other nodes at the same time, and calls `take` for each response.
   * Returns the number of nodes and those without a response. Never rejects for a node that does not respond.
   * `without`: nodes that are not asked. `withinMs`: how long the nodes may take.
   */
  async askAll(
    path: string,
    take: (response: NodeResponse) => void,
    { without = [], withinMs = ANSWER_MS }: { readonly without?: readonly string[]; readonly withinMs?: number } = {},
  ): Promise<{ readonly asked: number; readonly failures: readonly NodeFailure[] }> {
    const signal = AbortSignal.timeout(withinMs);
    setMaxListeners(0, signal);
    const failures: NodeFailure[] = [];
    const nodes = (await this.others()).filter(({ id }) => !without.includes(id));
    await Promise.all(
      nodes.map(async ({ id, member }) => {
        try {
          take({ node: id, ...(await this.#sources.client.json(present(member), path, signal)) });
        } catch (failure) {
          failures.push({ node: id, error: reasonOf(failure, signal, withinMs) });
        }
      }),
    );
    return { asked: nodes.length, failures: failures.sort((a, b) => (a.node < b.node ? -1 : 1)) };
  }

  /** Sends a request to one node, and returns the response before its body arrives. Throws an `Error`. */
  async open(node: string, request: Omit<PeerRequest, 'signal'>, signal: AbortSignal): Promise<IncomingMessage> {
    const found = (await this.others()).find(({ id }) => id === node);
    const slow = AbortSignal.timeout(ANSWER_MS);
    const opening = new AbortController();
    const abort = (): void => opening.abort();
    slow.addEventListener('abort', abort);
    signal.addEventListener('abort', abort);
    try {
      return await this.#sources.client.open(present(found?.member ?? null), { ...request, signal: opening.signal });
    } catch (failure) {
      throw new Error(reasonOf(failure, slow, ANSWER_MS), { cause: failure });
    } finally {
      slow.removeEventListener('abort', abort);
    }
  }

  /** Returns the other nodes of the cluster, sorted by id. `member` is null if the node is absent. */
  async others(): Promise<readonly { readonly id: string; readonly member: Member | null }[]> {
    const { self, registered } = this.#sources;
    const members = new Map((await this.#present(FRESH_MS)).map((member) => [member.id, member]));
    const ids = new Set([...members.keys(), ...(await registered()).map(({ id }) => id)]);
    ids.delete(self);
    return [...ids].sort().map((id) => ({ id, member: members.get(id) ?? null }));
  }

  /** Returns the id of the member that uses a certificate in DER; null if no member announced it. */
  async nodeWith(certificate: Buffer): Promise<string | null> {
    const fingerprint = fingerprintOf(certificate);
    const find = (members: readonly Member[]): string | null =>
      members.find(({ certificates = [] }) => certificates.includes(fingerprint))?.id ?? null;
    return find(await this.#present(FRESH_MS)) ?? find(await this.#present(UNKNOWN_FRESH_MS));
  }

  /** Returns the members as they were at most `freshMs` ago; without etcd, those of the last read. */
  async #present(freshMs: number): Promise<readonly Member[]> {
    if (performance.now() - this.#readAt < freshMs) return this.#members;
    this.#reading ??= this.#read();
    await Promise.race([this.#reading, pause(READ_MS)]);
    return this.#members;
  }

  /** Reads the members. Only one read runs at a time. */
  async #read(): Promise<void> {
    try {
      this.#members = await this.#sources.members();
    } catch {
      // Without etcd, those of the last read stay.
    } finally {
      this.#readAt = performance.now();
      this.#reading = undefined;
    }
  }
}

function present(member: Member | null): Member {
  if (member === null) throw new Error('it is not a member at present');
  return member;
}

function reasonOf(failure: unknown, limit: AbortSignal, withinMs: number): string {
  if (limit.aborted) return `it did not respond within ${withinMs / 1_000} s`;
  return failure instanceof Error ? failure.message : String(failure);
}
