import { type ReadonlySignal, signal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { type Actor, fromCallback, fromPromise, type SnapshotFrom } from 'xstate';
import { started } from '../charts/signal-of.js';
import { type ConnectionInput, type Hindrance, type StreamEvent, streamChart } from '../charts/stream.chart.js';
import { node } from '../node.js';
import { api, bodyOf, type Problem } from './client.js';

type StreamState = 'connecting' | 'live' | 'waiting' | 'switched_off' | 'refused' | 'token_ended';

export type Stream = {
  readonly state: ReadonlySignal<StreamState>;
  /** When a lost connection is opened again, in milliseconds since 1970; null if the stream does not wait. */
  readonly retryAt: ReadonlySignal<number | null>;
  /** The close code of the lost connection; null if none was lost. */
  readonly closeCode: ReadonlySignal<number | null>;
  /** The reason why the node refuses the query of the stream; null if the node does not refuse it. */
  readonly refusal: ReadonlySignal<string | null>;
  /** Opens the connection at once, without the wait. */
  readonly again: () => void;
};

type Options = {
  /** The path of the stream with its query, for example `/api/v1/wiretap/stream?type=flow`. */
  readonly path: string;
  /** The subprotocol of the WebSocket. */
  readonly protocol: string;
  /** The period of the past with which the first connection begins, such as `10s`. */
  readonly replay?: string;
  /** Handles one message. `isFirst`: it is the first message of a new connection. */
  readonly receive: (message: unknown, isFirst: boolean) => void;
};

const LOOK_MS = 3_000;

const stateOf = ({ value }: SnapshotFrom<typeof streamChart>): StreamState =>
  typeof value === 'string' ? value : value.open;

/** Reads a stream of the node while the page is shown, and connects again after a loss. */
export function useStream({ path, protocol, replay, receive }: Options): Stream {
  const running = useMemo(() => {
    const state = signal<StreamState>('connecting');
    const retryAt = signal<number | null>(null);
    const closeCode = signal<number | null>(null);
    const refusal = signal<string | null>(null);
    let actor: Actor<typeof streamChart> | undefined;
    const pathOf = ({ replays }: ConnectionInput) =>
      replay === undefined || !replays ? path : `${path}${path.includes('?') ? '&' : '?'}replay=${replay}`;
    const start = () => {
      const { actor: begun } = started(
        streamChart.provide({
          actors: {
            connection: connectionTo(pathOf, protocol, receive),
            findHindrance: fromPromise<Hindrance, ConnectionInput>(({ input, signal }) =>
              findHindrance(pathOf(input), signal),
            ),
            untilSwitchedOn: fromPromise<void>(({ signal }) => untilSwitchedOn(signal)),
          },
          // Make the page request the state of the node. That request fails with 401, which ends the session.
          actions: { tellSession: () => node.changed() },
        }),
      );
      actor = begun;
      const show = (snapshot: SnapshotFrom<typeof streamChart>) => {
        state.value = stateOf(snapshot);
        retryAt.value = snapshot.context.retryAt;
        closeCode.value = snapshot.context.closed?.code ?? null;
        refusal.value = snapshot.context.refusal;
      };
      begun.subscribe(show);
      show(begun.getSnapshot());
      return () => begun.stop();
    };
    return { state, retryAt, closeCode, refusal, start, again: () => actor?.send({ type: 'again' }) };
  }, [path, protocol, replay]);
  useEffect(running.start, [running]);
  return running;
}

const connectionTo = (pathOf: (input: ConnectionInput) => string, protocol: string, receive: Options['receive']) =>
  fromCallback<StreamEvent, ConnectionInput>(({ input, sendBack }) => {
    const url = new URL(pathOf(input), location.href);
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(url, protocol);
    let isFirst = true;
    socket.onopen = () => sendBack({ type: 'opened' });
    socket.onmessage = ({ data }) => {
      receive(JSON.parse(String(data)), isFirst);
      isFirst = false;
    };
    socket.onclose = ({ code, reason }) => sendBack({ type: 'closed', code, reason });
    return () => {
      socket.onopen = null;
      socket.onmessage = null;
      socket.onclose = null;
      socket.close();
    };
  });

/**
 * Requests the stream without a WebSocket to find the reason why it does not open. The response 426 (Upgrade
 * Required) means that the node would accept a WebSocket.
 */
async function findHindrance(path: string, signal: AbortSignal): Promise<Hindrance> {
  const response = await fetch(path, { headers: { accept: 'application/json' }, signal });
  if (response.status !== 400 && response.status !== 503) return { kind: 'none' };
  const problem = (await response.json()) as Problem;
  if (response.status === 503)
    return { kind: problem.type.endsWith(':performance_mode_disabled') ? 'switched_off' : 'none' };
  const isOfReplay = problem.problems?.every(({ pointer }) => pointer === '?replay') === true;
  return isOfReplay ? { kind: 'no_replay' } : { kind: 'refused', reason: problem.detail };
}

async function untilSwitchedOn(signal: AbortSignal): Promise<void> {
  do await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  while (!signal.aborted && !(await bodyOf(api.GET('/api/v1/settings/performance-mode', { signal }))).enabled);
}
