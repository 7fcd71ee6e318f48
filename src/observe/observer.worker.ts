import { join } from 'node:path';
import { workerData } from 'node:worker_threads';
import { openFindings } from '#observe/findings/store/findings-folder.js';
import { WorkerServer } from '#threads/worker-server.js';
import { createSinks, type SinkOptions, sinkNames } from './findings/sinks/sinks.js';
import { LocalObserver } from './local-observer.js';
import type { FromObserver, ObserverRequests, ToObserver } from './observer-messages.js';

export type ObserverOptions = {
  readonly nodeId: string;
  /** The data folder of the node. Findings are stored in its subfolder `findings`. */
  readonly dataDir: string;
  readonly findings: SinkOptions & { readonly retentionMs: number; readonly maxEntries: number };
  /**
   * For how many milliseconds the observer keeps wiretap events, so that readers that connect later can
   * receive them. With 0, the observer keeps no events.
   */
  readonly replayMs: number;
};

const parent = new WorkerServer<ObserverRequests, ToObserver, FromObserver>('the observer');
const options = workerData as ObserverOptions;

const { nodeId, dataDir, findings, replayMs } = options;
const store = openFindings(
  join(dataDir, 'findings'),
  { retentionMs: findings.retentionMs, maxEntries: findings.maxEntries, sinks: sinkNames(findings) },
  ({ code, message }) => parent.send({ kind: 'trouble', code, message }),
);
const sinks = createSinks(store.outbox, findings, nodeId, ({ name, failure }) => {
  if (failure !== null) parent.send({ kind: 'trouble', code: 'findings_not_delivered', message: failure });
  else parent.send({ kind: 'relief', code: 'findings_delivered', message: `findings reach the ${name} again` });
});
const observer = new LocalObserver(
  store,
  {
    frame: (frame) => parent.send({ kind: 'frame', frame }, [frame.bytes.buffer]),
    refused: (reader) => parent.send({ kind: 'refused', reader }),
    subscribed: (reader, channel) => parent.send({ kind: 'subscribed', reader, channel }),
    wanted: (wanted) => parent.send({ kind: 'wanted', wanted }),
    trouble,
    relief: (code, message) => parent.send({ kind: 'relief', code, message }),
  },
  replayMs,
);

function receive(message: ToObserver): void {
  switch (message.kind) {
    case 'read_events':
      observer.readEvents(message.source);
      return;
    case 'see':
      observer.see(message.seen);
      return;
    case 'see_connections':
      observer.seeConnections(message.seen);
      return;
    case 'see_owners':
      observer.seeOwners(message.changes);
      return;
    case 'record':
      observer.record(message.delta);
      return;
    case 'open':
      observer.hub.open(message.reader, message.filter, message.sinceMs);
      observer.reportWanted();
      return;
    case 'closed':
      observer.hub.close(message.reader);
      observer.reportWanted();
      return;
    case 'more':
      observer.hub.more(message.reader);
      return;
    case 'written':
      observer.hub.written(message.bytes);
  }
}

parent.serve(
  {
    findings: (query) => store.query(query),
    stats: () => ({ ...observer.counts(), sinks: sinks.states.map(({ failure: _, ...counts }) => counts) }),
    close: async () => {
      await observer.close();
      await sinks.close();
      await store.close();
    },
  },
  receive,
);

function trouble(failure: unknown): void {
  const code = failure instanceof Error && 'code' in failure && typeof failure.code === 'string' ? failure.code : null;
  parent.send({ kind: 'trouble', code, message: failure instanceof Error ? failure.message : String(failure) });
}
