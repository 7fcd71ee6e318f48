import type { IncomingMessage } from 'node:http';
import { request as send } from 'node:https';
import type { NodeAddress } from '#cluster/members/membership.js';
import type { PeerIdentity } from './peer-identity.js';
import { PinnedAgent } from './pinned-agent.js';

export type PeerRequest = {
  readonly method: 'GET' | 'POST';
  /** The path and query of the URL. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
};

/** The maximum size in bytes of a JSON response of a peer. A page of 1,000 findings has about 1 MB. */
const MAX_BYTES = 64 << 20;

/** Sends requests to the peer listeners of other nodes. */
export class PeerClient {
  readonly #identity: () => PeerIdentity;
  readonly #agents = new Map<string, { readonly agent: PinnedAgent; readonly target: string }>();

  constructor(identity: () => PeerIdentity) {
    this.#identity = identity;
  }

  /**
   * Sends a request on a separate connection, so that a long response does not delay other requests. Returns
   * the response before its body arrives.
   */
  open(node: NodeAddress, request: PeerRequest): Promise<IncomingMessage> {
    const headers = { ...request.headers, connection: 'close' };
    return this.#send(node, { ...request, headers }, this.#newAgent(node));
  }

  #send(
    node: NodeAddress,
    { method, path, headers = {}, signal }: PeerRequest,
    agent: PinnedAgent,
  ): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const { hostname, port } = new URL(`https://${node.address}`);
      const host = hostname.replace(/^\[|\]$/g, '');
      const request = send({ agent, host, port: Number(port || 443), method, path, headers, signal }, resolve);
      request.once('error', reject);
      // Reject on abort here, because Node.js does not end a request that waits for a connection of the
      // agent.
      const abort = (): void => reject(signal.reason as Error);
      signal.addEventListener('abort', abort);
      request.once('close', () => signal.removeEventListener('abort', abort));
      request.end();
    });
  }

  /** Sends a GET request, and returns the status and the JSON value of the response. */
  async json(
    node: NodeAddress,
    path: string,
    signal: AbortSignal,
  ): Promise<{ readonly status: number; readonly body: unknown }> {
    const response = await this.#send(node, { method: 'GET', path, signal }, this.#agentFor(node));
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of response as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > MAX_BYTES) throw new Error(`the response of the other node has more than ${MAX_BYTES} bytes`);
      chunks.push(chunk);
    }
    return { status: response.statusCode ?? 0, body: JSON.parse(Buffer.concat(chunks).toString()) };
  }

  /** Later requests use new connections, which present the new identity of this node. */
  renew(): void {
    this.#agents.clear();
  }

  #agentFor(node: NodeAddress): PinnedAgent {
    const target = [node.address, ...(node.certificates ?? [])].join(' ');
    const known = this.#agents.get(node.id);
    if (known?.target === target) return known.agent;
    const agent = this.#newAgent(node);
    this.#agents.set(node.id, { agent, target });
    return agent;
  }

  #newAgent({ certificates = [] }: NodeAddress): PinnedAgent {
    return new PinnedAgent(certificates, this.#identity());
  }
}
