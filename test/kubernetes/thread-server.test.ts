import { setTimeout as pause } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import type { ApiServer } from '#kubernetes/api-server/api-session.js';
import { eventually } from '#test/eventually.js';
import { HAS_KUBE_API, HAS_MACHINERY, KubeApi } from '#test/kubernetes/kube-api.js';
import { AGREE_MS, FAULTS, PLAY_TIMES, type PodWatch, playPods, type SeenPod } from '#test/kubernetes/pod-play.js';
import { Random, seedOf } from '#test/seed.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { ip } from './sample.js';
import { db, ends, Node, OPTIONS, web } from './thread-node.js';

/** The members that pods have. No container of a test runs, so a pod that is being deleted claims nothing. */
function membersOf(pods: readonly SeenPod[]): Readonly<Record<string, string>> {
  const owning = pods.filter((pod) => pod.ip !== '' && !pod.deleting).sort((a, b) => ip(a.ip) - ip(b.ip));
  const shown = owning.map(({ ip: address, name, labels: { app = '' } }) => {
    const bare = name.slice(name.indexOf('/') + 1);
    return [address, `${bare}: ${['web', 'db'].includes(app) ? app : ''}`];
  });
  return Object.fromEntries(shown) as Record<string, string>;
}

const options = { ...OPTIONS, times: PLAY_TIMES };

async function nodeOf(server: ApiServer, store?: Map<string, string>): Promise<Node> {
  const { caPem, token } = await server.credentials();
  const access = { by: 'token', url: server.url, caPem, token } as const;
  return new Node(store, options).open([{ name: 'prod', access }], [web, db]);
}

const SERVERS = [
  ['kube-apiserver', HAS_KUBE_API, LACKS.kubeApi],
  ['api-machinery', HAS_MACHINERY, LACKS.apiMachinery],
] as const;
for (const [server, isBuilt, lacks] of SERVERS)
  skipUnless(isBuilt, lacks).describe(
    `the Kubernetes thread with a real API server: ${server}`,
    { timeout: 120_000 },
    () => {
      let kube: KubeApi;
      beforeAll(async () => {
        kube = await KubeApi.start(server);
        await kube.createNamespace('shop');
        for (let index = 0; index < 5; index++) {
          await kube.createPod(`fixed-${index}`, { labels: { app: index < 3 ? 'web' : 'db' } });
          await kube.setStatus(`fixed-${index}`, { phase: 'Running', podIP: `10.245.0.${index}` });
        }
      });
      afterEach(async () => {
        for (const end of ends.splice(0).reverse()) await end();
      });
      afterAll(() => kube.remove());

      it('the Kubernetes thread selects the pods that kubectl prints after random faults of the server, and a later process selects them without the server', async () => {
        let last: { readonly server: ApiServer; readonly node: Node } | undefined;
        const watch = async (server: ApiServer): Promise<PodWatch> => {
          const node = await nodeOf(server);
          last = { server, node };
          await node.source.membership([web, db], 10_000);
          return {
            agree: async (pods, what) => {
              const expected = membersOf(pods);
              for (const until = Date.now() + AGREE_MS; !isDeepStrictEqual(node.members, expected); await pause(20)) {
                if (Date.now() > until) expect(node.members, what).toEqual(expected);
              }
            },
            end: () => node.source.close(),
          };
        };
        const random = new Random(seedOf(26));
        expect(await playPods(kube, random, FAULTS, 60, watch)).toBeGreaterThan(150);
        if (last === undefined) throw new Error('no node was started');
        // The new node can only use the store, because the proxy to the API server is closed by now.
        const later = await nodeOf(last.server, last.node.store);
        await eventually(() => expect(later.messages.length).toBeGreaterThan(0));
        expect(Object.keys(later.members).length).toBeGreaterThanOrEqual(5);
        expect([later.members, later.scope]).toEqual([last.node.members, last.node.scope]);
        await eventually(() => expect(later.phase('pods')).toBe('backing_off'));
      });
    },
  );
