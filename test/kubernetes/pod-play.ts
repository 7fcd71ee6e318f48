import { setTimeout as pause } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { ApiServer } from '#kubernetes/api-server/api-session.js';
import { REFLECTOR_TIMES, reflect } from '#kubernetes/watch/reflector.js';
import type { WatchScope } from '#kubernetes/watch/watch-scopes.js';
import { CutProxy } from '#test/kubernetes/cut-proxy.js';
import type { KubeApi } from '#test/kubernetes/kube-api.js';
import { Recording } from '#test/kubernetes/recording.js';
import { scope } from '#test/kubernetes/sample.js';
import type { Random } from '#test/seed.js';

/** The parts of a pod that decide membership. */
export type SeenPod = {
  readonly uid: string;
  readonly name: string;
  readonly node: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly ip: string;
  readonly deleting: boolean;
};
type ApiPod = {
  readonly metadata: {
    readonly uid: string;
    readonly name: string;
    readonly namespace: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly deletionTimestamp?: string;
  };
  readonly spec: { readonly nodeName: string };
  readonly status: { readonly phase: string; readonly podIP?: string };
};

export function seenPod(value: unknown): SeenPod {
  const { metadata, spec, status } = value as ApiPod;
  const { uid, name, namespace, labels = {}, deletionTimestamp } = metadata;
  const ip = status.podIP ?? '';
  return {
    uid,
    name: `${namespace}/${name}`,
    node: spec.nodeName,
    labels,
    ip,
    deleting: deletionTimestamp !== undefined,
  };
}

/** Returns the pods that have not completed, as kubectl prints them. */
export async function podsByKubectl(kube: KubeApi): Promise<readonly SeenPod[]> {
  const { items } = JSON.parse(await kube.kubectl('get', 'pods', '-A', '-o', 'json')) as { readonly items: ApiPod[] };
  return sorted(items.filter(({ status: { phase } }) => !['Succeeded', 'Failed'].includes(phase)).map(seenPod));
}

export const sorted = (pods: Iterable<SeenPod>): readonly SeenPod[] =>
  [...pods].sort((a, b) => (a.uid < b.uid ? -1 : 1));

export const FAULTS = ['none', 'cut', 'cut after bytes', 'compaction', 'SIGSTOP', 'SIGKILL'] as const;
type PlayFault = (typeof FAULTS)[number];
const SCOPES: readonly WatchScope[] = [scope('pods'), scope('pods', 'shop'), scope('pods', null, 'n2')];
export const AGREE_MS = 120_000;

/** A client of the server. `agree` waits until it has the pods of kubectl; `what` names the round. */
export type PodWatch = {
  agree(pods: readonly SeenPod[], what: string): Promise<void>;
  end(): Promise<void> | void;
};
export const PLAY_TIMES = {
  ...REFLECTOR_TIMES,
  headersMs: 1_000,
  silenceMs: 2_000,
  watchSeconds: 5,
  mostBackoffMs: 500,
};

/**
 * Plays rounds of random pod events, each with a fault between client and server. After each round, the
 * client must agree with the pods that kubectl prints. Returns the number of events.
 */
export async function playPods(
  kube: KubeApi,
  random: Random,
  rounds: readonly PlayFault[],
  eventsPerRound: number,
  watch: (server: ApiServer) => Promise<PodWatch> = watchByReflectors,
): Promise<number> {
  const proxy = await CutProxy.start(Number(new URL(kube.url).port));
  const watched = await watch({ ...kube.asAdmin, url: proxy.url });
  const names = new Map<string, 'running' | 'deleting'>();
  let events = 0;
  try {
    for (const fault of rounds) {
      await begin(kube, proxy, fault, random);
      for (let event = 0; event < eventsPerRound; event++) events += await playEvent(kube, random, names);
      await finish(kube, proxy, fault);
      await watched.agree(await podsByKubectl(kube), `fault ${fault}, seed ${random.seed}`);
    }
    return events;
  } finally {
    await watched.end();
    await proxy.close();
  }
}

async function watchByReflectors(server: ApiServer): Promise<PodWatch> {
  const watched = SCOPES.map((scope) => ({
    scope,
    recording: new Recording(reflect({ server, scope, keep: seenPod, times: PLAY_TIMES })),
  }));
  for (const { recording } of watched) await recording.untilPhase('watching');
  return {
    agree: async (pods, what) => {
      for (const { scope, recording } of watched) await agree(scope, recording, pods, what);
    },
    end: () => {
      for (const { recording } of watched) recording.end();
    },
  };
}

async function begin(kube: KubeApi, proxy: CutProxy, fault: PlayFault, random: Random): Promise<void> {
  if (fault === 'cut' || fault === 'cut after bytes' || fault === 'compaction') {
    if (fault !== 'cut') proxy.cutAfter = random.between(1, 20_000);
    proxy.cut();
  }
  if (fault === 'SIGKILL') await kube.restart();
}

async function finish(kube: KubeApi, proxy: CutProxy, fault: PlayFault): Promise<void> {
  if (fault === 'compaction') kube.compact();
  if (fault === 'SIGSTOP') {
    await kube.signal('SIGSTOP');
    await pause(3_500);
    await kube.signal('SIGCONT');
  }
  if (proxy.cutAfter !== null) {
    proxy.cutAfter = null;
    proxy.cut();
  }
}

async function agree(
  of: WatchScope,
  recording: Recording<SeenPod>,
  pods: readonly SeenPod[],
  what: string,
): Promise<void> {
  const { namespace, node } = of;
  const expected = pods.filter(
    (pod) => (namespace === null || pod.name.startsWith(`${namespace}/`)) && (node === null || pod.node === node),
  );
  for (const until = Date.now() + AGREE_MS; ; await pause(20)) {
    const found = sorted(recording.objects.values());
    if (isDeepStrictEqual(found, expected)) return;
    if (Date.now() > until)
      throw new Error(`${what}: ${JSON.stringify(of)} has ${JSON.stringify(found)}, not ${JSON.stringify(expected)}`);
  }
}

/** Returns 1 if it has changed a pod, and 0 if the server has refused the change. */
async function playEvent(kube: KubeApi, random: Random, names: Map<string, 'running' | 'deleting'>): Promise<number> {
  const [namespace, name] = [random.pick(['default', 'shop']), `p${random.below(12)}`];
  const path = `/api/v1/namespaces/${namespace}/pods/${name}`;
  const status = (body: object) => kube.send('PATCH', `${path}/status`, { status: body });
  const key = `${namespace}/${name}`;
  let answer: { readonly status: number };
  if (!names.has(key)) {
    answer = await kube.send('POST', `/api/v1/namespaces/${namespace}/pods`, {
      metadata: { name, labels: { app: random.pick(['web', 'db']) } },
      spec: {
        nodeName: random.pick(['n1', 'n2']),
        automountServiceAccountToken: false,
        containers: [{ name: 'c', image: 'none' }],
      },
    });
    names.set(key, 'running');
  } else {
    const kind = random.below(6);
    if (kind <= 1) {
      // kubectl does not tell which pod has claimed an address last, so each event has another address.
      const ip = nextAddress();
      answer = await status({ phase: 'Running', podIP: ip, podIPs: [{ ip }] });
    } else if (kind === 2)
      answer = await kube.send('PATCH', path, { metadata: { labels: { app: random.pick(['web', 'db', 'x']) } } });
    else if (kind === 3) answer = await status({ phase: random.pick(['Succeeded', 'Failed']) });
    else {
      // A pod on a node gets only a deletion time at first. The second request removes it.
      const grace = kind === 4 ? 30 : 0;
      answer = await kube.send('DELETE', path, { gracePeriodSeconds: grace });
      if (grace === 0) names.delete(key);
    }
  }
  return answer.status < 300 ? 1 : 0;
}

let addresses = 0;

function nextAddress(): string {
  addresses += 1;
  return `10.244.${(addresses >> 8) & 255}.${addresses & 255}`;
}
