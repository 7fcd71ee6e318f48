import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { REFLECTOR_TIMES, type ReflectorTimes, reflect } from '#kubernetes/watch/reflector.js';
import type { WatchScope } from '#kubernetes/watch/watch-scopes.js';
import { eventually } from '#test/eventually.js';
import { CutProxy } from '#test/kubernetes/cut-proxy.js';
import { HAS_KUBE_API, HAS_MACHINERY, KubeApi } from '#test/kubernetes/kube-api.js';
import { FAULTS, playPods, podsByKubectl, type SeenPod, seenPod, sorted } from '#test/kubernetes/pod-play.js';
import { Recording } from '#test/kubernetes/recording.js';
import { scope } from '#test/kubernetes/sample.js';
import { Random, seedOf } from '#test/seed.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';

const PODS = '/api/v1/namespaces/default/pods';
const TIMES: ReflectorTimes = { ...REFLECTOR_TIMES, headersMs: 1_000, livedMs: 0, mostBackoffMs: 500 };
type NamespaceRecord = { readonly uid: string; readonly name: string };

function namespaceOf(value: unknown): NamespaceRecord {
  return (value as { readonly metadata: NamespaceRecord }).metadata;
}

const SERVERS = [
  ['kube-apiserver', HAS_KUBE_API, LACKS.kubeApi],
  ['api-machinery', HAS_MACHINERY, LACKS.apiMachinery],
] as const;
for (const [server, isBuilt, lacks] of SERVERS)
  skipUnless(isBuilt, lacks).describe(`reflector of a real API server: ${server}`, { timeout: 60_000 }, () => {
    const hasAccounts = server === 'kube-apiserver';
    let kube: KubeApi;
    const ends: (() => Promise<void> | void)[] = [];
    beforeAll(async () => {
      kube = await KubeApi.start(server);
      await kube.createNamespace('shop');
    });
    afterEach(async () => {
      for (const end of ends.splice(0).reverse()) await end();
    });
    afterAll(() => kube.remove());

    function record(server = kube.asAdmin, times: Partial<ReflectorTimes> = {}, of: WatchScope = scope('pods')) {
      const recording = new Recording<SeenPod>(
        reflect({ server, scope: of, keep: seenPod, times: { ...TIMES, ...times } }),
      );
      ends.push(() => recording.end());
      return recording;
    }
    const named = (recording: Recording<SeenPod>, name: string): SeenPod | undefined =>
      [...recording.objects.values()].find((pod) => pod.name === `default/${name}`);

    async function proxyOf(): Promise<CutProxy> {
      const proxy = await CutProxy.start(Number(new URL(kube.url).port));
      ends.push(() => proxy.close());
      return proxy;
    }

    it('a Kubernetes reflector follows a pod from its creation to its address, its deletion time and its end', async () => {
      const recording = record();
      await recording.untilPhase('watching');
      await kube.createPod('life', { labels: { app: 'web' } });
      await eventually(() => expect(named(recording, 'life')?.labels).toEqual({ app: 'web' }));
      await kube.setStatus('life', { phase: 'Running', podIP: '10.244.0.9', podIPs: [{ ip: '10.244.0.9' }] });
      await eventually(() => expect(named(recording, 'life')?.ip).toBe('10.244.0.9'));
      await kube.must('DELETE', `${PODS}/life`);
      await eventually(() => expect(named(recording, 'life')?.deleting).toBe(true));
      await kube.must('DELETE', `${PODS}/life`, { gracePeriodSeconds: 0 });
      await eventually(() => expect(named(recording, 'life')).toBeUndefined());
    });

    it('a Kubernetes reflector deletes a pod that completes, because the field selector excludes completed pods', async () => {
      const recording = record();
      await recording.untilPhase('watching');
      await kube.createPod('job');
      await eventually(() => expect(named(recording, 'job')).toBeDefined());
      await kube.setStatus('job', { phase: 'Succeeded' });
      await eventually(() => expect(named(recording, 'job')).toBeUndefined());
      expect((await kube.send('GET', `${PODS}/job`)).status).toBe(200);
    });

    it('a Kubernetes reflector lists again when the server answers 410 to a watch from a compacted version', async () => {
      const proxy = await proxyOf();
      const server = kube.as(() => 'admin-token', proxy.url);
      const recording = new Recording<NamespaceRecord>(
        reflect({ server, scope: scope('namespaces'), keep: namespaceOf, times: TIMES }),
      );
      ends.push(() => recording.end());
      await recording.untilPhase('watching');
      // Break each new connection at once, until the compaction of etcd has removed the version of the list.
      proxy.cutAfter = 0;
      proxy.cut();
      await kube.createNamespace('after-the-cut');
      await kube.must('DELETE', '/api/v1/namespaces/after-the-cut');
      await kube.createNamespace('last');
      kube.compact();
      proxy.cutAfter = null;
      await recording.until((each) => each.type === 'phase' && /^410: .*too old/.test(each.reason ?? ''));
      await eventually(() => expect([...recording.objects.values()].map(({ name }) => name)).toContain('last'));
      expect(recording.lists).toBe(2);
    });

    it('a real API server answers 410 to the continue token of a compacted version', async () => {
      const { body } = await kube.send('GET', '/api/v1/namespaces?limit=1');
      const { continue: next } = body.metadata as { readonly continue: string };
      await kube.createNamespace('later');
      kube.compact();
      const answer = await kube.send('GET', `/api/v1/namespaces?limit=1&continue=${encodeURIComponent(next)}`);
      expect(answer).toMatchObject({ status: 410, body: { code: 410, reason: 'Expired' } });
    });

    it('a Kubernetes reflector follows etcd that is restored from a backup, although a watch from the later version would be silent', async () => {
      await kube.createPod('kept');
      const file = kube.backup();
      const recording = record();
      await recording.untilPhase('watching');
      for (let index = 0; index < 5; index++) await kube.createPod(`lost-${index}`);
      await eventually(() => expect(named(recording, 'lost-4')).toBeDefined());
      await kube.restore(file);
      await recording.until(
        (each) => each.type === 'phase' && /^the version of the server fell/.test(each.reason ?? ''),
        20_000,
      );
      await eventually(() => expect(named(recording, 'lost-4')).toBeUndefined());
      expect(sorted(recording.objects.values())).toEqual(await podsByKubectl(kube));
      const future = `${PODS}?resourceVersion=99999999&resourceVersionMatch=NotOlderThan&limit=1`;
      expect(await kube.send('GET', future)).toMatchObject({ status: 504 });
      const watch = await kube.send('GET', `${PODS}?watch=1&resourceVersion=99999999&timeoutSeconds=1`);
      expect(watch).toEqual({ status: 200, body: {} });
    });

    skipUnless(hasAccounts, 'api-machinery has no accounts').test(
      'a Kubernetes reflector keeps a watch whose token is revoked, reports 401 for the next connection, and takes a new token',
      async () => {
        let token = await kube.createAccount('weir', ['pods']);
        const proxy = await proxyOf();
        const recording = record(kube.as(() => token, proxy.url));
        await recording.untilPhase('watching');
        await kube.must('DELETE', '/api/v1/namespaces/default/serviceaccounts/weir');
        // The server caches an accepted token for some seconds.
        await eventually(async () => expect((await kube.send('GET', PODS, undefined, token)).status).toBe(401));
        await kube.createPod('after-the-end');
        await eventually(() => expect(named(recording, 'after-the-end')).toBeDefined());
        expect(recording.phases).toEqual(['connecting', 'listing', 'watching']);
        proxy.cut();
        expect((await recording.untilPhase('unauthorized')).reason).toBe('401: Unauthorized');
        expect(named(recording, 'after-the-end')).toBeDefined();
        await kube.must('POST', '/api/v1/namespaces/default/serviceaccounts', { metadata: { name: 'weir' } });
        token = await kube.newToken('weir');
        await eventually(() => expect(recording.phases.at(-1)).toBe('watching'));
      },
    );

    skipUnless(hasAccounts, 'api-machinery has no accounts').test(
      'a Kubernetes reflector reports 403 with the error text of the server',
      async () => {
        const token = await kube.createAccount('nodes-only', ['nodes']);
        const recording = record(kube.as(() => token));
        expect((await recording.untilPhase('forbidden')).reason).toMatch(
          /^403: pods is forbidden: User "system:serviceaccount:default:nodes-only" cannot list resource "pods"/,
        );
      },
    );

    it('a Kubernetes reflector reports a stopped server as silent until the server continues', async () => {
      const recording = record(kube.asAdmin, { silenceMs: 1_500 });
      await recording.untilPhase('watching');
      await kube.signal('SIGSTOP');
      try {
        await recording.untilPhase('silent', 4_000);
        // The next connection gets no response either.
        await eventually(() =>
          expect(recording.messages.at(-1)).toMatchObject({
            reason: expect.stringMatching(/did not respond/) as string,
          }),
        );
      } finally {
        await kube.signal('SIGCONT');
      }
      await eventually(() => expect(recording.phases.at(-1)).toBe('watching'));
      await kube.createPod('after-the-stop');
      await eventually(() => expect(named(recording, 'after-the-stop')).toBeDefined());
    });

    it('a Kubernetes reflector has the pods that kubectl prints after random events, cut connections, a compaction, SIGSTOP and SIGKILL', async () => {
      const random = new Random(seedOf(24));
      expect(await playPods(kube, random, FAULTS, 60)).toBeGreaterThan(150);
    });
  });
