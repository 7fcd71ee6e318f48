import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import type { EventsWanted, FlowQuery, Grant, HitQuery } from '#dataplane/datapath.js';
import { portsOf } from '#dataplane/events/source.js';
import type { GrantAnswer, GrantedAnswer, GrantedRequest, GrantRequest } from '#policy/grant-port.js';
import type { Program } from '#policy/program.js';
import type { ProofSample } from '#policy/proof.js';
import { Ear } from './ear.js';
import { listInterfaces } from './interfaces.js';
import { LocalDatapath } from './local-datapath.js';
import { type Reply, type Request, send, type WorkerInput } from './messages.js';
import type { News } from './news.js';

const WATCH_INTERVAL_MS = 1_000;
const SWEEP_INTERVAL_MS = 1_000;

const port = parentPort;
if (port === null) throw new Error('the datapath runs in a worker thread');
const { options, eventsWanted } = workerData as WorkerInput;
const datapath = new LocalDatapath(options);
datapath.setEventsWanted(eventsWanted);
let ear: Ear | undefined;

function handle({ method, args }: Request): unknown {
  switch (method) {
    case 'open': {
      endEar();
      const adoption = datapath.open();
      beginEar();
      return adoption;
    }
    case 'tellEvents':
      if (ear === undefined) return;
      endEar();
      return beginEar();
    case 'attach':
      try {
        return datapath.attach();
      } finally {
        look({ links: true, guard: false, others: false });
        tellInterfaces();
      }
    case 'stage': {
      const [program, generation] = args as [Program, number];
      return datapath.stage(program, generation);
    }
    case 'grant':
    case 'revoke': {
      const [grants] = args as [readonly Grant[]];
      return datapath[method](grants);
    }
    case 'grantBy':
      return grantBy(args[0] as MessagePort);
    case 'prove': {
      const [sample] = args as [ProofSample];
      return datapath.prove(sample);
    }
    case 'setEventsWanted':
      return datapath.setEventsWanted(args[0] as EventsWanted);
    case 'close':
      endEar();
      return datapath.close();
    case 'hits':
      return datapath.hits(args[0] as HitQuery);
    case 'flows':
    case 'cutFlows':
      return datapath[method](args[0] as FlowQuery);
    default:
      return datapath[method]();
  }
}

const grantors = new Set<MessagePort>();

/** As long as both ends live. */
function grantBy(grantor: MessagePort): void {
  grantors.add(grantor);
  grantor.on('message', (request: GrantRequest | GrantedRequest) => serve(grantor, request));
  grantor.on('close', () => grantors.delete(grantor));
}

function serve(grantor: MessagePort, request: GrantRequest | GrantedRequest): void {
  if ('patterns' in request) {
    grantFor(grantor, request);
    return;
  }
  const { id, address, expiredToo } = request;
  grantor.postMessage({ id, patterns: datapath.grantedFor(address, expiredToo) } satisfies GrantedAnswer);
}

function grantFor(grantor: MessagePort, { id, patterns, addresses, expiriesNs }: GrantRequest): void {
  let refused: number | null = null;
  try {
    const grants = patterns.map((pattern, row) => ({
      pattern,
      addresses: [addresses[row] ?? 0],
      expiresAtNs: BigInt(Math.floor(expiriesNs[row] ?? 0)),
    }));
    ({ refused } = datapath.grant(grants));
  } catch {
    // Nothing is open: whoever asked does not let the name be used.
  }
  grantor.postMessage({ id, refused } satisfies GrantAnswer);
}

datapath.breathe = () => {
  for (const grantor of grantors) {
    for (let next = receiveMessageOnPort(grantor); next !== undefined; next = receiveMessageOnPort(grantor)) {
      serve(grantor, (next as { readonly message: GrantRequest | GrantedRequest }).message);
    }
  }
};

datapath.announce = (placed) => ear?.tell({ kind: 'roster', placed });

function tellInterfaces(): void {
  ear?.tell({ kind: 'interfaces', names: new Map(listInterfaces().map(({ ifindex, name }) => [ifindex, name])) });
}

function beginEar(): void {
  ear = new Ear(datapath.earMaps(), (news) => {
    if (news.links) tellInterfaces();
    look(news);
  });
  tell({ kind: 'events', source: ear.source }, portsOf(ear.source));
  tellInterfaces();
  for (const placed of datapath.placed()) datapath.announce(placed);
}

function endEar(): void {
  ear?.end();
  ear = undefined;
}

async function answer(request: Request): Promise<Reply> {
  try {
    return { kind: 'result', id: request.id, value: await handle(request) };
  } catch (error) {
    return { kind: 'error', id: request.id, error: send(error) };
  }
}

port.on('message', async (request: Request) => {
  tell(await answer(request));
  if (request.method === 'flip') datapath.settle();
});

function look(news?: News): void {
  for (const change of datapath.look(news)) tell({ kind: 'change', change });
}

function tell(reply: Reply, transferred: readonly MessagePort[] = []): void {
  port?.postMessage(reply, transferred);
}

// A link that was detached by hand, or whose pin was removed, tells nobody.
setInterval(look, options.watchIntervalMs ?? WATCH_INTERVAL_MS);
setInterval(() => datapath.sweepGrants(), SWEEP_INTERVAL_MS);
