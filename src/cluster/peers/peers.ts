import { setMaxListeners } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import type { NodeAddress } from '#cluster/members/membership.js';
import type { RegisteredNode } from '../records.js';
import type { PeerClient, PeerRequest } from './peer-client.js';
import { fingerprintOf } from './peer-identity.js';

/** A node without a usable response, and the reason in one sentence. */
export type NodeFailure = { readonly node: string; readonly error: string };

/** A response of a node: the HTTP status and the JSON value of the body. `tookMs`: the round trip. */
export type NodeResponse = {
  readonly node: string;
  readonly status: number;
  readonly body: unknown;
  readonly tookMs: number;
};

type Sources = {
  readonly self: string;
  readonly client: PeerClient;
  /** Reads the present members from etcd. Rejects while etcd cannot be reached. */
  readonly members: () => Promise<readonly NodeAddress[]>;
  /** Reads the nodes of the cluster, present or not, from the local store. */
  readonly registered: () => Promise<readonly RegisteredNode[]>;
};

/** The time limit in milliseconds for the response of a node. */
const ANSWER_MS = 2_000;
/**
 * The time in milliseconds for which a list of members from etcd is used: for requests to members, and
 * (shorter) to find the node of an unknown certificate.
 */
const FRESH_MS = 1_000;
const UNKNOWN_FRESH_MS = 200;
/**
 * The time limit in milliseconds for a read of the members. After this time, etcd is treated as not
 * reachable.
 */
const READ_MS = 500;

/** The other nodes of the cluster, to which this node sends requests through their peer listeners. */
export class Peers {
  readonly #sources: Sources;
  /** The members of the last read; null if it failed. */
  #members: readonly NodeAddress[] | null = null;
  #readAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<readonly NodeAddress[] | null> | undefined;

  constructor(sources: Sources) {
    this.#sources = sources;
  }

  /**
   * Sends a GET request for `path` to all other nodes at the same time, and calls `onResponse` for each
   * response. Returns the number of nodes, and the nodes without a response. Does not reject if a node does
   * not respond. `without`: nodes that get no request. `withinMs`: the time limit in milliseconds for the
   * responses.
   */
  async askAll(
    path: string,
    onResponse: (response: NodeResponse) => void,
    { without = [], withinMs = ANSWER_MS }: { readonly without?: readonly string[]; readonly withinMs?: number } = {},
  ): Promise<{ readonly asked: number; readonly failures: readonly NodeFailure[] }> {
    const nodes = (await this.others()).filter(({ id }) => !without.includes(id));
    const signal = AbortSignal.timeout(withinMs);
    setMaxListeners(0, signal);
    const failures: NodeFailure[] = [];
    await Promise.all(
      nodes.map(async ({ id, address }) => {
        const began = performance.now();
        try {
          const response = await this.#sources.client.json(present(address), path, signal);
          onResponse({ node: id, ...response, tookMs: performance.now() - began });
        } catch (failure) {
          failures.push({ node: id, error: reasonOf(failure, signal, withinMs) });
        }
      }),
    );
    return { asked: nodes.length, failures: failures.sort((a, b) => (a.node < b.node ? -1 : 1)) };
  }

  /**
   * Sends a request to one node, and returns the response before its body arrives. Rejects if the node does
   * not respond. An abort of `signal` also ends the response.
   */
  async open(node: string, request: Omit<PeerRequest, 'signal'>, signal: AbortSignal): Promise<IncomingMessage> {
    const found = (await this.others()).find(({ id }) => id === node);
    const slow = AbortSignal.timeout(ANSWER_MS);
    const opening = new AbortController();
    const abort = (): void => opening.abort();
    slow.addEventListener('abort', abort);
    signal.addEventListener('abort', abort);
    if (signal.aborted) abort();
    const forget = (): void => signal.removeEventListener('abort', abort);
    try {
      const { client } = this.#sources;
      const response = await client.open(present(found?.address ?? null), { ...request, signal: opening.signal });
      return response.once('close', forget);
    } catch (failure) {
      forget();
      throw new Error(reasonOf(failure, slow, ANSWER_MS), { cause: failure });
    } finally {
      slow.removeEventListener('abort', abort);
    }
  }

  /**
   * Returns the other nodes of the cluster, sorted by id. `address` is null if the node is absent. While etcd
   * cannot be reached, it is unknown which nodes are absent; then all nodes have their registered addresses.
   */
  async others(): Promise<readonly { readonly id: string; readonly address: NodeAddress | null }[]> {
    const { self, registered } = this.#sources;
    const members = await this.#present(FRESH_MS);
    const nodes: readonly NodeAddress[] = await registered();
    const addresses = new Map((members ?? nodes).map((node) => [node.id, node]));
    const ids = new Set([...addresses.keys(), ...nodes.map(({ id }) => id)]);
    ids.delete(self);
    return [...ids].sort().map((id) => ({ id, address: addresses.get(id) ?? null }));
  }

  /** Returns the id of the node that uses a certificate in DER; null if no node announced it. */
  async nodeWith(certificate: Buffer): Promise<string | null> {
    const fingerprint = fingerprintOf(certificate);
    const find = (nodes: readonly NodeAddress[]): string | null =>
      nodes.find(({ certificates = [] }) => certificates.includes(fingerprint))?.id ?? null;
    // Read etcd too, because a new member may not be in the local store yet.
    return find(await this.#sources.registered()) ?? find((await this.#present(UNKNOWN_FRESH_MS)) ?? []);
  }

  /**
   * Returns the members, read from etcd at most `freshMs` milliseconds ago; null while etcd cannot be
   * reached.
   */
  async #present(freshMs: number): Promise<readonly NodeAddress[] | null> {
    if (performance.now() - this.#readAt < freshMs) return this.#members;
    this.#reading ??= this.#read();
    return this.#reading;
  }

  /** Reads the members. Only one read runs at a time. */
  async #read(): Promise<readonly NodeAddress[] | null> {
    const members = this.#sources.members().catch(() => null);
    this.#members = await Promise.race([members, pause(READ_MS, null)]);
    this.#readAt = performance.now();
    this.#reading = undefined;
    return this.#members;
  }
}

function present(address: NodeAddress | null): NodeAddress {
  if (address === null) throw new Error('the requested node is not a member of the cluster at present');
  return address;
}

function reasonOf(failure: unknown, limit: AbortSignal, withinMs: number): string {
  if (limit.aborted) return `it did not respond within ${withinMs / 1_000} s`;
  return failure instanceof Error ? failure.message : String(failure);
}
