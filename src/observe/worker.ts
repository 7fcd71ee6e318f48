import { join } from 'node:path';
import { parentPort, workerData } from 'node:worker_threads';
import { openFindings } from './findings/findings-folder.js';
import { createSinks, type SinkOptions, sinkNames } from './findings/sinks/sinks.js';
import { LocalObserver } from './local-observer.js';
import type { Ask, Asks, FromObserver, ToObserver } from './messages.js';

export type ObserverOptions = {
  readonly nodeId: string;
  /** Of the node: findings have a folder of their own in it. */
  readonly dataDir: string;
  readonly findings: SinkOptions & { readonly retentionMs: number; readonly maxEntries: number };
  /** For how long what was seen is kept for wiretap readers to come. */
  readonly replayMs: number;
};

const port = parentPort;
if (port === null) throw new Error('the observer runs in a worker thread');
const options = workerData as ObserverOptions;

const { nodeId, dataDir, findings, replayMs } = options;
const ledger = openFindings(
  join(dataDir, 'findings'),
  { retentionMs: findings.retentionMs, maxEntries: findings.maxEntries, sinks: sinkNames(findings) },
  ({ code, message }) => tell({ kind: 'trouble', code, message }),
);
const sinks = createSinks(ledger.outbox, findings, nodeId, ({ name, failure }) => {
  if (failure !== null) tell({ kind: 'trouble', code: 'findings_not_delivered', message: failure });
  else tell({ kind: 'relief', code: 'findings_delivered', message: `findings reach the ${name} again` });
});
const observer = new LocalObserver(
  ledger,
  {
    frame: (frame) => port.postMessage({ kind: 'frame', frame } satisfies FromObserver, [frame.bytes.buffer]),
    refused: (reader) => tell({ kind: 'refused', reader }),
    joined: (reader, channel) => tell({ kind: 'joined', reader, channel }),
    wanted: (wanted) => tell({ kind: 'wanted', wanted }),
    trouble,
    relief: (code, message) => tell({ kind: 'relief', code, message }),
  },
  replayMs,
);

const answers: { readonly [A in Ask]: (asks: Asks[A]['asks']) => Promise<Asks[A]['answer']> } = {
  findings: (query) => ledger.query(query),
  stats: async () => ({
    ...observer.counts(),
    sinks: sinks.states.map(({ failure: _, ...counts }) => counts),
  }),
  close: async () => {
    await observer.close();
    await sinks.close();
    await ledger.close();
    return null;
  },
};

port.on('message', (message: ToObserver) => {
  switch (message.kind) {
    case 'hear':
      return observer.hear(message.source);
    case 'see':
      return observer.see(message.seen);
    case 'see_connections':
      return observer.seeConnections(message.seen);
    case 'record':
      return observer.record(message.delta);
    case 'open':
      observer.hub.open(message.reader, message.filter, message.sinceMs);
      return observer.lookAtWanted();
    case 'closed':
      observer.hub.close(message.reader);
      return observer.lookAtWanted();
    case 'more':
      return observer.hub.more(message.reader);
    case 'written':
      return observer.hub.written(message.bytes);
    case 'ask':
      return void answer(message.id, message.what, message.asks as never);
  }
});

async function answer<A extends Ask>(id: number, what: A, asks: Asks[A]['asks']): Promise<void> {
  try {
    tell({ kind: 'answer', id, answer: await answers[what](asks) });
  } catch (failure) {
    tell({ kind: 'failure', id, message: failure instanceof Error ? failure.message : String(failure) });
  }
}

function trouble(failure: unknown): void {
  const code = failure instanceof Error && 'code' in failure && typeof failure.code === 'string' ? failure.code : null;
  tell({ kind: 'trouble', code, message: failure instanceof Error ? failure.message : String(failure) });
}

function tell(message: FromObserver): void {
  port?.postMessage(message);
}
