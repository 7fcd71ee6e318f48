import { join } from 'node:path';
import { workerData } from 'node:worker_threads';
import { openFindings } from '#observe/findings/store/findings-folder.js';
import { WorkerServer } from '#threads/worker-server.js';
import { createSinks, type SinkOptions, sinkNames } from './findings/sinks/sinks.js';
import type { FlowHistoryOptions } from './flow-history/flow-history.js';
import { openFlowHistory } from './flow-history/flow-history-file.js';
import { listedFlows } from './flow-history/listed-flows.js';
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
  /** The recorded flows are stored in the file `flow-history` of the data folder. */
  readonly flowHistory: FlowHistoryOptions;
};

const parent = new WorkerServer<ObserverRequests, ToObserver, FromObserver>('the observer');
const options = workerData as ObserverOptions;

const { nodeId, dataDir, findings, replayMs } = options;
const relief = (code: string, message: string): void => parent.send({ kind: 'relief', code, message });
const flowHistory = openFlowHistory(join(dataDir, 'flow-history'), options.flowHistory, {
  trouble: (code, message) => parent.send({ kind: 'trouble', code, message }),
  relief,
});
const store = openFindings(
  join(dataDir, 'findings'),
  { retentionMs: findings.retentionMs, maxEntries: findings.maxEntries, sinks: sinkNames(findings) },
  ({ code, message }) => parent.send({ kind: 'trouble', code, message }),
);
const sinks = createSinks(store.outbox, findings, nodeId, ({ name, failure }) => {
  if (failure !== null) parent.send({ kind: 'trouble', code: 'findings_not_delivered', message: failure });
  else relief('findings_delivered', `findings reach the ${name} again`);
});
const observer = new LocalObserver(
  store,
  {
    frame: (frame) => parent.send({ kind: 'frame', frame }, [frame.bytes.buffer]),
    refused: (reader) => parent.send({ kind: 'refused', reader }),
    subscribed: (reader, channel) => parent.send({ kind: 'subscribed', reader, channel }),
    wanted: (wanted) => parent.send({ kind: 'wanted', wanted }),
    trouble,
    relief,
  },
  replayMs,
  flowHistory?.history,
);

parent.serve(
  {
    findings: (query) => store.query(query),
    stats: () => ({ ...observer.counts(), sinks: sinks.states.map(({ failure: _, ...counts }) => counts) }),
    seenFlows: () => flowHistory?.history.read(Date.now()) ?? null,
    listSeenFlows: (query) => (flowHistory === null ? null : listedFlows(flowHistory.history.read(Date.now()), query)),
    close: async () => {
      await observer.close();
      await flowHistory?.close();
      await sinks.close();
      await store.close();
    },
  },
  {
    read_events: (message) => observer.readEvents(message.source),
    see: (message) => observer.see(message.seen),
    see_connections: (message) => observer.seeConnections(message.seen),
    see_owners: (message) => observer.seeOwners(message.changes),
    record: (message) => observer.record(message.delta),
    recording: (message) => flowHistory?.history.setRecording(message.isRecording, Date.now()),
    open: (message) => {
      observer.hub.open(message.reader, message.filter, message.sinceMs, message.foldMs);
      observer.reportWanted();
    },
    closed: (message) => {
      observer.hub.close(message.reader);
      observer.reportWanted();
    },
    more: (message) => observer.hub.more(message.reader),
    written: (message) => observer.hub.written(message.bytes),
  },
);

function trouble(failure: unknown): void {
  const code = failure instanceof Error && 'code' in failure && typeof failure.code === 'string' ? failure.code : null;
  parent.send({ kind: 'trouble', code, message: failure instanceof Error ? failure.message : String(failure) });
}
