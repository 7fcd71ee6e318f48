import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { Agent, request } from 'node:https';
import { CliError } from '#cli/errors/command-error.js';
import { reasonOf } from '#files/system-failure.js';
import type { KubeServer, KubeUser } from './kubeconfig.js';

const TIMEOUT_MS = 20_000;
const MAX_BYTES = 1024 * 1024;

export type KubeAnswer = { readonly status: number; readonly body: unknown };

/** Sends requests to a Kubernetes API server with the identity of a kubeconfig. */
export class KubeClient {
  readonly #server: KubeServer;
  readonly #agent: Agent;
  readonly #token: string | undefined;

  constructor(server: KubeServer, user: KubeUser) {
    this.#server = server;
    this.#token = user.by === 'token' ? user.token : undefined;
    const identity = user.by === 'certificate' ? { cert: user.certPem, key: user.keyPem } : {};
    try {
      this.#agent = new Agent({ ca: server.caPem, rejectUnauthorized: true, keepAlive: true, ...identity });
    } catch (cause) {
      throw new CliError('use the certificates of the kubeconfig for TLS: OpenSSL refuses them', { cause });
    }
  }

  close(): void {
    this.#agent.destroy();
  }

  /** Sends a request. `path` begins with a slash. Throws a `CliError` if the server does not respond. */
  async send(method: string, path: string, body?: object, type = 'application/json'): Promise<KubeAnswer> {
    const content = body === undefined ? '' : JSON.stringify(body);
    const { url } = this.#server;
    try {
      const sent = request(`${url.replace(/\/+$/, '')}${path}`, {
        method,
        agent: this.#agent,
        signal: AbortSignal.timeout(TIMEOUT_MS),
        headers: {
          accept: 'application/json',
          'content-length': Buffer.byteLength(content),
          ...(body === undefined ? {} : { 'content-type': type }),
          ...(this.#token === undefined ? {} : { authorization: `Bearer ${this.#token}` }),
        },
      });
      sent.end(content);
      const [response] = (await once(sent, 'response')) as [IncomingMessage];
      return { status: response.statusCode ?? 0, body: parsed(await textOf(response)) };
    } catch (cause) {
      const reason = reasonOf(cause);
      const fix = 'check the server and the CA of the kubeconfig, and that this machine can reach the server';
      throw new CliError(`${url} cannot be reached: ${reason}`, { cause, fix });
    }
  }
}

async function textOf(response: IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of response.setEncoding('utf8')) {
    text += String(chunk);
    if (text.length > MAX_BYTES) throw new Error('the response of the Kubernetes API server is too large');
  }
  return text;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
