import { setMaxListeners } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import { withJoinedSignal } from '#contracts/joined-signal.js';
import { eventsOf } from '#observe/wiretap/event-stream.js';
import type { Sink } from '#observe/wiretap/readers.js';
import type { Management } from '../management.js';
import { problemOf } from './ask-nodes.js';

const PATH = '/api/v1/wiretap/stream';
/** The number of bytes waiting for the client above which the streams of other nodes are not read. */
const MAX_WAITING = 1 << 20;
const ROOM_MS = 20;
/**
 * The interval in milliseconds at which lost streams are opened again, and at which the list of nodes is
 * read.
 */
const RETRY_MS = 2_000;
/**
 * The time in milliseconds without data after which a stream counts as lost. A node sends a comment every 15
 * s while it has no messages.
 */
const SILENT_MS = 40_000;
const REMOVED = 'it is not a node of the cluster any more';

type Wiretap = Pick<Management, 'peers' | 'findings'>;

/**
 * Adds the messages of all other nodes to a wiretap stream. `own` starts the stream of this node. Each
 * message contains the id of its node. If the client reads too slowly, the streams of the other nodes are
 * paused; these nodes then drop messages, and report how many.
 */
export function wiretapOfNodes(
  { peers, findings }: Wiretap,
  parameters: URLSearchParams,
  own: (sink: Sink) => { close(): void },
  sink: Sink,
): { close(): void } {
  const ended = new AbortController();
  // Remove the limit of listeners, because each node has one listener.
  setMaxListeners(0, ended.signal);
  const query = new URLSearchParams(parameters);
  query.delete('scope');
  /**
   * Forwards the messages of a node until the client disconnects or `removed` aborts. Opens a lost stream
   * again.
   */
  const follow = async (node: string, removed: AbortSignal): Promise<void> => {
    await withJoinedSignal([ended.signal, removed], async (signal) => {
      for (let isFirst = true; !signal.aborted; isFirst = false) {
        const reason = await forward(node, signal, isFirst);
        if (signal.aborted) break;
        if (isFirst || reason.hasBegun) say({ type: 'node_gone', node_id: node, reason: reason.text });
        await pause(RETRY_MS, undefined, { signal }).catch(() => {});
      }
    });
    if (!ended.signal.aborted) say({ type: 'node_gone', node_id: node, reason: REMOVED });
  };
  const say = (message: object): void => sink.send(Buffer.from(JSON.stringify(message)));

  /** Forwards the messages of a node until its stream ends. Returns the reason of the end. */
  const forward = async (
    node: string,
    signal: AbortSignal,
    isFirst: boolean,
  ): Promise<{ hasBegun: boolean; text: string }> => {
    let hasBegun = false;
    let stream: IncomingMessage | undefined;
    const end = (): unknown => stream?.destroy();
    signal.addEventListener('abort', end);
    try {
      const again = new URLSearchParams(query);
      if (!isFirst) again.delete('replay');
      const headers = { accept: 'text/event-stream' };
      const request = { method: 'GET', path: `${PATH}?${again.toString()}`, headers } as const;
      stream = await peers.open(node, request, signal);
      signal.throwIfAborted();
      if (stream.statusCode !== 200) return { hasBegun, text: problemOf(stream.statusCode ?? 0, null) };
      hasBegun = true;
      if (!isFirst) say({ type: 'node_back', node_id: node });
      stream.setTimeout(SILENT_MS, end);
      for await (const frame of eventsOf(stream as AsyncIterable<Uint8Array>)) {
        const reason = endOf(frame);
        if (reason !== null) return { hasBegun, text: reason };
        sink.send(Buffer.from(named(frame, node)));
        stream.setTimeout(0);
        while (sink.waiting > MAX_WAITING && !signal.aborted) await pause(ROOM_MS);
        stream.setTimeout(SILENT_MS, end);
      }
      return { hasBegun, text: 'the node ended its stream' };
    } catch (failure) {
      return { hasBegun, text: failure instanceof Error ? failure.message : String(failure) };
    } finally {
      signal.removeEventListener('abort', end);
      stream?.destroy();
    }
  };

  const ofThisNode = own({
    get waiting() {
      return sink.waiting;
    },
    get taken() {
      return sink.taken;
    },
    send: (frame, done) => sink.send(Buffer.from(named(Buffer.from(frame).toString(), findings.nodeId)), done),
    close: (why) => {
      ended.abort();
      sink.close(why);
    },
  });
  const followed = new Map<string, AbortController>();
  const update = (nodes: ReadonlySet<string>): void => {
    for (const [id, removal] of followed) {
      if (nodes.has(id)) continue;
      removal.abort();
      followed.delete(id);
    }
    for (const id of nodes) {
      if (followed.has(id)) continue;
      const removal = new AbortController();
      followed.set(id, removal);
      void follow(id, removal.signal);
    }
  };
  const discover = async (): Promise<void> => {
    while (!ended.signal.aborted) {
      const nodes = await peers.others().catch(() => null);
      if (nodes !== null) update(new Set(nodes.map(({ id }) => id)));
      await pause(RETRY_MS, undefined, { signal: ended.signal }).catch(() => {});
    }
  };
  void discover();
  return {
    close() {
      ended.abort();
      ofThisNode.close();
    },
  };
}

/** Returns the reason if the frame tells that the node ends its stream; null for a frame with messages. */
function endOf(frame: string): string | null {
  const value: unknown = JSON.parse(frame);
  if (Array.isArray(value)) return null;
  const { type, reason } = messageOf(value);
  if (type !== undefined) return null;
  return typeof reason === 'string' ? reason : 'the node ended its stream';
}

/** Adds the id of the node to each message of a frame: one JSON object, or an array of objects. */
function named(frame: string, node: string): string {
  const value: unknown = JSON.parse(frame);
  const withNode = (message: unknown): object => ({ node_id: node, ...messageOf(message) });
  return JSON.stringify(Array.isArray(value) ? value.map(withNode) : withNode(value));
}

function messageOf(value: unknown): { readonly type?: unknown; readonly reason?: unknown } {
  if (typeof value !== 'object' || value === null)
    throw new Error('read the wiretap stream of a node: a frame contains no JSON object');
  return value;
}
