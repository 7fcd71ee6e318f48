import type { ServerResponse } from 'node:http';
import { ScriptedServer } from './scripted-server.js';

/** Makes a pod as large as in real clusters: about 7 kB. */
const PADDING = 'x'.repeat(6_000);
const started = { running: { startedAt: '2026-01-01T00:00:00Z' } };

export type LargePod = { readonly name: string; readonly app: string; readonly address: string };

/**
 * A scripted API server with many pods of 7 kB, which sends lists in pages and watches like kube-apiserver.
 * It takes far less processor time, so that it does not change the figures of the node.
 */
export class LargeCluster {
  readonly server: ScriptedServer;
  readonly #pods = new Map<string, string>();
  readonly #watches = new Set<ServerResponse>();
  #version = 100;

  private constructor(server: ScriptedServer) {
    this.server = server;
  }

  static async start(): Promise<LargeCluster> {
    const server = await ScriptedServer.start(() => {});
    const cluster = new LargeCluster(server);
    server.answer = ({ path, query }, response) => {
      if (query.has('watch')) {
        response.flushHeaders();
        if (path.endsWith('/pods')) cluster.#watches.add(response);
        response.on('close', () => cluster.#watches.delete(response));
      } else cluster.#sendPage(response, path.endsWith('/pods') ? [...cluster.#pods.values()] : [], query);
    };
    return cluster;
  }

  /** Sends a new or a changed pod. */
  put(pod: LargePod): void {
    const type = this.#pods.has(pod.name) ? 'MODIFIED' : 'ADDED';
    const text = textOf(pod, ++this.#version);
    this.#pods.set(pod.name, text);
    this.#sendEvent(type, text);
  }

  remove(pod: LargePod): void {
    this.#pods.delete(pod.name);
    this.#sendEvent('DELETED', textOf(pod, ++this.#version));
  }

  #sendEvent(type: string, text: string): void {
    for (const watch of this.#watches) watch.write(`{"type":"${type}","object":${text}}\n`);
  }

  #sendPage(response: ServerResponse, texts: readonly string[], query: URLSearchParams): void {
    const from = Number(query.get('continue') ?? 0);
    const to = from + Number(query.get('limit') ?? texts.length);
    const metadata = { resourceVersion: String(this.#version), ...(to < texts.length ? { continue: String(to) } : {}) };
    response.end(`{"metadata":${JSON.stringify(metadata)},"items":[${texts.slice(from, to).join()}]}`);
  }
}

function textOf({ name, app, address }: LargePod, version: number): string {
  return JSON.stringify({
    metadata: {
      uid: `uid-${name}`,
      name,
      namespace: 'default',
      resourceVersion: String(version),
      labels: { app },
      annotations: { padding: PADDING },
    },
    spec: { nodeName: `n${name.length}`, containers: [{ name: 'c', image: 'none' }] },
    status: {
      phase: 'Running',
      podIP: address,
      podIPs: [{ ip: address }],
      startTime: '2026-01-01T00:00:00Z',
      containerStatuses: [{ name: 'c', state: started }],
    },
  });
}
