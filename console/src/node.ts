import { computed, effect } from '@preact/signals';
import { fromPromise } from 'xstate';
import { ApiFailure, api, bodyOf, onSessionEnd, type Schemas } from './api/client.js';
import { nodeChart, SILENT_AFTER_MS } from './charts/node.chart.js';
import { type Credentials, type Session, sessionChart } from './charts/session.chart.js';
import { started } from './charts/signal-of.js';

/**
 * Reads the one-time code of a `weir console` link from the URL, and removes it from the URL, so that the
 * browser history does not contain the code.
 */
function takeCode(): Credentials | null {
  const code = new URLSearchParams(location.hash.slice(1)).get('code');
  if (code === null) return null;
  history.replaceState(null, '', location.pathname + location.search);
  return { code };
}

async function signIn(credentials: Credentials): Promise<Session> {
  const { data, error, response } =
    'code' in credentials
      ? await api.POST('/api/v1/session', { body: credentials })
      : await api.POST('/api/v1/session', { body: {}, headers: { authorization: `Bearer ${credentials.token}` } });
  if (data !== undefined) return data;
  throw new ApiFailure(response.status, error);
}

const running = started(
  sessionChart.provide({
    actors: {
      look: fromPromise(() => bodyOf(api.GET('/api/v1/session'))),
      signIn: fromPromise(({ input }) => signIn(input ?? { token: '' })),
      signOut: fromPromise(async () => {
        await bodyOf(api.DELETE('/api/v1/session'));
      }),
    },
  }),
  { credentials: takeCode() },
);

export const session = {
  state: computed(() => running.snapshot.value.value),
  current: computed(() => running.snapshot.value.context.session),
  reason: computed(() => running.snapshot.value.context.reason),
  /**
   * Whether the signed-in user may change the node. This value only disables buttons: the node itself checks
   * each request.
   */
  mayWrite: computed(() => running.snapshot.value.context.session?.role === 'admin'),
  signIn: (credentials: Credentials) => running.actor.send({ type: 'sign_in', credentials }),
  signOut: () => running.actor.send({ type: 'sign_out' }),
};
onSessionEnd(() => running.actor.send({ type: 'refused' }));

const nodeRunning = started(
  nodeChart.provide({
    actors: {
      ask: fromPromise(async ({ signal }) => {
        const within = AbortSignal.any([signal, AbortSignal.timeout(SILENT_AFTER_MS)]);
        const [ready, stats, pending] = await Promise.all([
          api.GET('/ready', { signal: within }),
          bodyOf(api.GET('/api/v1/stats', { signal: within })),
          bodyOf(api.GET('/api/v1/policy/pending', { signal: within })),
        ]);
        // Read the body of the response 503 too: the node sends the same report with 503 if a readiness check
        // fails.
        const readiness = (ready.data ?? ready.error) as Schemas['Readiness'];
        return { readiness, stats, pending };
      }),
    },
  }),
);

effect(() => {
  nodeRunning.actor.send({ type: session.state.value === 'signed_in' ? 'signed_in' : 'signed_out' });
});

export const node = {
  report: computed(() => nodeRunning.snapshot.value.context.report),
  reportedAt: computed(() => nodeRunning.snapshot.value.context.reportedAt),
  isSilent: computed(() => nodeRunning.snapshot.value.matches('silent')),
  /** Requests the state of the node at once, for example after a write. */
  changed: () => nodeRunning.actor.send({ type: 'changed' }),
};
