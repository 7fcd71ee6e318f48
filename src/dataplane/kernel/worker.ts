import { parentPort, workerData } from 'node:worker_threads';
import type { DatapathChange, Grant } from '#dataplane/datapath.js';
import type { Program } from '#policy/program.js';
import type { ProofSample } from '#policy/proof.js';
import { LocalDatapath } from './local-datapath.js';
import { type Reply, type Request, send } from './messages.js';
import type { DatapathOptions } from './options.js';

const WATCH_INTERVAL_MS = 1_000;
const SWEEP_INTERVAL_MS = 1_000;

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
    case 'grant':
    case 'revoke': {
      const [grants] = args as [readonly Grant[]];
      return datapath[method](grants);
    }
    case 'prove': {
      const [sample] = args as [ProofSample];
      return datapath.prove(sample);
    }
    default:
      return datapath[method]();
  }
}

port.on('message', (request: Request) => {
  let reply: Reply;
  try {
    reply = { kind: 'result', id: request.id, value: handle(request) };
  } catch (error) {
    reply = { kind: 'error', id: request.id, error: send(error) };
  }
  port.postMessage(reply);
});

setInterval(() => {
  for (const change of datapath.look()) tell(change);
}, options.watchIntervalMs ?? WATCH_INTERVAL_MS);

setInterval(() => datapath.sweepGrants(), SWEEP_INTERVAL_MS);

function tell(change: DatapathChange): void {
  port?.postMessage({ kind: 'change', change } satisfies Reply);
}
