import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { onTestFinished } from 'vitest';
import type { ApiServer } from '#kubernetes/api-server/api-session.js';
import { makeCertificate, type ServerCertificate } from '#test/kubernetes/server-certificate.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';

/** A request: its path with query, and its `Authorization` header. */
export type Asked = { readonly path: string; readonly query: URLSearchParams; readonly authorization: string };
type Answer = (asked: Asked, response: ServerResponse) => void;

let made: ServerCertificate | undefined;
/** Returns the certificate of all scripted servers of a test file. */
function certificate(): ServerCertificate {
  made ??= makeCertificate(temporaryFolder());
  return made;
}

/** An HTTPS server that answers as a test says: for the faults that a healthy API server does not have. */
export class ScriptedServer {
  readonly asked: Asked[] = [];
  /** The times of the requests, as `performance.now()`. */
  readonly times: number[] = [];
  answer: Answer;
  token = 'token-1';
  readonly #server: Server;
  readonly #paths = new Map<Socket, string>();

  private constructor(answer: Answer) {
    this.answer = answer;
    this.#server = createServer(certificate(), (request, response) => this.#respond(request, response));
  }

  /** Starts a server, and closes it after the test. */
  static async start(answer: Answer): Promise<ScriptedServer> {
    const server = new ScriptedServer(answer);
    onTestFinished(() => server.close());
    await new Promise<void>((resolve) => server.#server.listen(0, '127.0.0.1', resolve));
    return server;
  }

  get url(): string {
    return `https://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The URL and the credentials with which the client reaches the server. */
  get api(): ApiServer {
    return { url: this.url, credentials: async () => ({ caPem: certificate().ca, token: this.token }) };
  }

  get caPem(): string {
    return certificate().ca;
  }

  get watches(): readonly Asked[] {
    return this.asked.filter(({ query }) => query.has('watch'));
  }

  /** The lists, without the requests that compare versions. */
  get lists(): readonly Asked[] {
    return this.asked.filter(({ query }) => !query.has('watch') && query.get('limit') !== '1');
  }

  /** Breaks the connections that have sent a request with this path. */
  cut(path: string): void {
    for (const [socket, last] of this.#paths) if (last === path) socket.destroy();
  }

  get connections(): Promise<number> {
    return new Promise((resolve, reject) =>
      this.#server.getConnections((failure, count) => (failure === null ? resolve(count) : reject(failure))),
    );
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #respond(request: IncomingMessage, response: ServerResponse): void {
    const { pathname, searchParams } = new URL(request.url ?? '', 'https://server');
    const asked = { path: pathname, query: searchParams, authorization: request.headers.authorization ?? '' };
    this.asked.push(asked);
    this.times.push(performance.now());
    this.#paths.set(request.socket, pathname);
    this.answer(asked, response);
  }
}

export const podOf = (uid: string, version: number, labels: Readonly<Record<string, string>> = {}) => ({
  metadata: { uid, name: uid, namespace: 'default', resourceVersion: String(version), labels },
});

export function sendList(response: ServerResponse, version: number, items: readonly object[], next?: string): void {
  response.end(
    JSON.stringify({ kind: 'PodList', metadata: { resourceVersion: String(version), continue: next }, items }),
  );
}

export function sendStatus(
  response: ServerResponse,
  code: number,
  message: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  response.writeHead(code, headers).end(JSON.stringify({ kind: 'Status', code, message }));
}

export const lineOf = (type: string, object: object): string => `${JSON.stringify({ type, object })}\n`;
export const bookmark = (version: number): string =>
  lineOf('BOOKMARK', { kind: 'Pod', metadata: { resourceVersion: String(version) } });
