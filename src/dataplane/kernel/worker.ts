import { parentPort, workerData } from 'node:worker_threads';
import type { DatapathChange, FlowQuery, HitQuery } from '#dataplane/datapath.js';
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
  switch (method) {
    case 'stage': {
      const [program, generation] = args as [Program, number];
      return datapath.stage(program, generation);
    }
    case 'hits':
      return datapath.hits(args[0] as HitQuery);
    case 'flows':
    case 'cutFlows':
      return datapath[method](args[0] as FlowQuery);
    default:
      return datapath[method]();
  }
}

async function answer(request: Request): Promise<Reply> {
  try {
    return { kind: 'result', id: request.id, value: await handle(request) };
  } catch (error) {
    return { kind: 'error', id: request.id, error: send(error) };
  }
}

port.on('message', (request: Request) => void answer(request).then((reply) => port.postMessage(reply)));

setInterval(() => {
  for (const change of datapath.look()) tell(change);
}, options.watchIntervalMs ?? WATCH_INTERVAL_MS);

function tell(change: DatapathChange): void {
  port?.postMessage({ kind: 'change', change } satisfies Reply);
}
