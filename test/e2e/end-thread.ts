import { once } from 'node:events';
import { request } from 'node:http';
import { join } from 'node:path';
import { WebSocket } from 'ws';
import { firstLine, program } from '#cli/tour/node-process.js';
import type { NodeRig } from './rig.js';

const INSPECTOR_PORT = '9229';

type Said = {
  readonly method?: string;
  readonly params?: { readonly sessionId: string; readonly workerInfo: { readonly url: string } };
};

/** The expressions that end a thread: in a task of its event loop, or between any two statements. */
const EXITS = { task: 'setImmediate(() => process.exit(7))', interrupt: 'process.exit(7)' } as const;

/**
 * Makes the worker thread of the node that runs the built file `file` exit with code 7. The node process
 * continues. A thread without an event loop, such as the splicing thread, must end by an interrupt.
 */
export async function endThread(
  { node, topology }: Pick<NodeRig, 'node' | 'topology'>,
  file: string,
  exit: keyof typeof EXITS = 'task',
): Promise<void> {
  const socketPath = join(node.folder, 'inspector.sock');
  const relay = topology.node.start(process.execPath, [program('relay'), socketPath, '127.0.0.1', INSPECTOR_PORT]);
  try {
    await firstLine(relay);
    process.kill(node.pid, 'SIGUSR1');
    const inspector = new WebSocket(`ws+unix:${socketPath}:${await pathOfInspector(socketPath)}`);
    await once(inspector, 'open');
    const say = (method: string, params: unknown): void => inspector.send(JSON.stringify({ id: 1, method, params }));
    const found = new Promise<string>((resolve) => {
      inspector.on('message', (text: Buffer) => {
        const { method, params } = JSON.parse(text.toString()) as Said;
        if (method === 'NodeWorker.attachedToWorker' && params?.workerInfo.url.endsWith(file) === true)
          resolve(params.sessionId);
      });
    });
    say('NodeWorker.enable', { waitForDebuggerOnStart: false });
    const sessionId = await found;
    const gone = new Promise<void>((resolve) => {
      inspector.on('message', (text: Buffer) => {
        const { method, params } = JSON.parse(text.toString()) as Said;
        if (method === 'NodeWorker.detachedFromWorker' && params?.sessionId === sessionId) resolve();
      });
    });
    const message = { id: 1, method: 'Runtime.evaluate', params: { expression: EXITS[exit] } };
    say('NodeWorker.sendMessageToWorker', { sessionId, message: JSON.stringify(message) });
    await gone;
    inspector.close();
    await once(inspector, 'close');
  } finally {
    relay.kill('SIGKILL');
  }
}

/** Waits until the inspector of the node listens, and returns the path of its WebSocket. */
async function pathOfInspector(socketPath: string): Promise<string> {
  for (;;) {
    const text = await new Promise<string>((resolve) => {
      const asked = request({ socketPath, path: '/json/list' }, (response) => {
        let body = '';
        response.setEncoding('utf8').on('data', (chunk: string) => {
          body += chunk;
        });
        response.on('end', () => resolve(body));
      });
      asked.on('error', () => resolve(''));
      asked.end();
    });
    const [target] = text === '' ? [] : (JSON.parse(text) as { readonly webSocketDebuggerUrl: string }[]);
    if (target !== undefined) return new URL(target.webSocketDebuggerUrl).pathname;
  }
}
