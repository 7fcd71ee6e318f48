import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { REFLECTOR_TIMES, reflect } from '#kubernetes/watch/reflector.js';
import { eventually } from '#test/eventually.js';
import { HAS_MACHINERY, KubeApi, MACHINERY_REQUESTS } from '#test/kubernetes/kube-api.js';
import { podsByKubectl, type SeenPod, seenPod, sorted } from '#test/kubernetes/pod-play.js';
import { Recording } from '#test/kubernetes/recording.js';
import { scope } from '#test/kubernetes/sample.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';

const PODS = 250;
const PATH = '/api/v1/namespaces/default/pods';
/** A list of all pods does not fit into the buffers of one connection. */
const PADDING = 'x'.repeat(100_000);

skipUnless(HAS_MACHINERY, LACKS.apiMachinery).describe(
  "the reflector and today's libraries of Kubernetes",
  { timeout: 60_000 },
  () => {
    let kube: KubeApi;
    const recordings: Recording<SeenPod>[] = [];
    beforeAll(async () => {
      kube = await KubeApi.start('api-machinery');
      for (let index = 0; index < PODS; index++)
        await kube.must('POST', PATH, {
          metadata: { name: `p${index}`, labels: { app: 'web' }, annotations: { padding: PADDING } },
          spec: { nodeName: 'n1', containers: [{ name: 'c', image: 'none' }] },
        });
    });
    afterAll(async () => {
      for (const recording of recordings) recording.end();
      await kube.remove();
    });

    function record(): Recording<SeenPod> {
      const times = { ...REFLECTOR_TIMES, mostBackoffMs: 500 };
      const recording = new Recording(reflect({ server: kube.asAdmin, scope: scope('pods'), keep: seenPod, times }));
      recordings.push(recording);
      return recording;
    }

    /** Opens a response on a connection of its own. */
    async function get(query: string): Promise<IncomingMessage> {
      const sent = request(`${kube.url}${PATH}${query}`, {
        ca: kube.certificate.ca,
        agent: false,
        headers: { authorization: 'Bearer admin-token' },
      });
      sent.on('error', () => {});
      sent.end();
      const [response] = (await once(sent, 'response')) as [IncomingMessage];
      return response;
    }

    /** Opens a list and reads nothing of its body, so that the server does not end the request. */
    const stalledList = async (): Promise<IncomingMessage> => (await get('')).pause();

    it("a Kubernetes reflector lists pages of the server's watch cache, and follows changes made between two pages", async () => {
      const recording = record();
      await recording.untilPhase('listing');
      await kube.must('PATCH', `${PATH}/p${PODS - 1}`, { metadata: { labels: { app: 'db' } } });
      await kube.must('DELETE', `${PATH}/p${PODS - 2}`, { gracePeriodSeconds: 0 });
      await recording.untilPhase('watching');
      const expected = await podsByKubectl(kube);
      await eventually(() => expect(sorted(recording.objects.values())).toEqual(expected));
      expect(recording.lists).toBe(1);
    });

    it('a Kubernetes reflector waits for the time in Retry-After after a 429 response, and then lists', async () => {
      const stalled = await Promise.all(Array.from({ length: MACHINERY_REQUESTS }, stalledList));
      const recording = record();
      const { reason } = await recording.untilPhase('backing_off');
      expect(reason).toMatch(/^429: /);
      const refusedAt = performance.now();
      for (const response of stalled) response.destroy();
      await recording.untilPhase('listing');
      // The back-off alone would be 500 ms at most.
      expect(performance.now() - refusedAt).toBeGreaterThan(900);
      await recording.untilPhase('watching');
      expect(recording.objects.size).toBe(PODS - 1);
    });

    it('a Kubernetes reflector gets only events of changes, whereas a watch with sendInitialEvents gets all objects as events', async () => {
      const recording = record();
      await recording.untilPhase('watching');
      await kube.must('PATCH', `${PATH}/p0`, { metadata: { labels: { app: 'db' } } });
      await eventually(() => expect(recording.messages.filter(({ type }) => type === 'changed')).toHaveLength(1));
      const watch = 'watch=1&allowWatchBookmarks=true&timeoutSeconds=1';
      const response = await get(`?${watch}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan`);
      const lines = (await response.setEncoding('utf8').toArray()).join('').trimEnd().split('\n');
      expect(lines.filter((line) => line.startsWith('{"type":"ADDED"'))).toHaveLength(recording.objects.size);
      expect(lines.at(-1)).toContain('"k8s.io/initial-events-end":"true"');
    });
  },
);
