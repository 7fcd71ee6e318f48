import { parentPort, workerData } from 'node:worker_threads';
import type { DatapathChange } from '#dataplane/datapath.js';
import type { Program } from '#policy/program.js';
import { LocalDatapath } from './local-datapath.js';
import { type Reply, type Request, send } from './messages.js';
import type { DatapathOptions } from './options.js';

const WATCH_INTERVAL_MS = 1_000;

const port = parentPort;
if (port === null) throw new Error('the datapath runs in a worker thread');
const options = workerData as DatapathOptions;
const datapath = new LocalDatapath(options);

function handle({ method, args }: Request): unknown {
  if (method !== 'stage') return datapath[method]();
  const [program, generation] = args as [Program, number];
  return datapath.stage(program, generation);
}

port.on('message', (request: Request) => {
  let reply: Reply;
  try {
    reply = { kind: 'result', id: request.id, value: handle(request) };
  } catch (error) {
    reply = { kind: 'error', id: request.id, error: send(error) };
  }
  port.postMessage(reply);
  if (request.method === 'flip') datapath.settle();
});

setInterval(() => {
  for (const change of datapath.look()) tell(change);
}, options.watchIntervalMs ?? WATCH_INTERVAL_MS);

function tell(change: DatapathChange): void {
  port?.postMessage({ kind: 'change', change } satisfies Reply);
}
