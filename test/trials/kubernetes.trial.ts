import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { reflect } from '#kubernetes/reflector.js';
import { HAS_KUBE_API, KubeApi } from '#test/kubernetes/kube-api.js';
import { FAULTS, playPods, seenPod } from '#test/kubernetes/pod-play.js';
import { Recording } from '#test/kubernetes/recording.js';
import type { Figures } from '#test/kubernetes/reflector-process.js';
import { Random, seedOf } from '#test/seed.js';

const PROCESS = fileURLToPath(new URL('../../dist/test/kubernetes/reflector-process.js', import.meta.url));
const PODS = 10_000;
const AT_ONCE = 20;
/** Makes a pod as large as the pods of clusters are: about 7 kB. */
const PADDING = 'x'.repeat(6_000);
/** The minutes of random pod events. */
const MINUTES = Number(process.env.WEIR_MINUTES ?? 3);

describe.runIf(HAS_KUBE_API)('reflector of a large API server', () => {
  let kube: KubeApi;
  beforeAll(async () => {
    kube = await KubeApi.start();
    await kube.createNamespace('shop');
  });
  afterAll(() => kube.remove());

  it('agrees with kubectl during minutes of random pod events and faults', {
    timeout: (MINUTES + 5) * 60_000,
  }, async () => {
    const random = new Random(seedOf(Date.now() % 1_000_000));
    let events = 0;
    const until = Date.now() + MINUTES * 60_000;
    while (Date.now() < until) events += await playPods(kube, random, FAULTS, 100);
    process.stdout.write(`kubernetes: seed ${random.seed}, ${events} changes of pods\n`);
  });

  it('has 10,000 pods in 6 s and 120 MiB, and does not block the thread that started it', {
    timeout: 600_000,
  }, async () => {
    let next = 0;
    const post = async () => {
      while (next < PODS) {
        const name = `big-${next++}`;
        await kube.must('POST', '/api/v1/namespaces/default/pods', {
          metadata: { name, labels: { app: `app-${next % 100}` }, annotations: { padding: PADDING } },
          spec: {
            nodeName: `n${next % 100}`,
            automountServiceAccountToken: false,
            containers: [{ name: 'c', image: 'none' }],
          },
        });
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, post));
    const args = ['--conditions=development', PROCESS, kube.url, join(kube.folder, 'ca.pem'), 'admin-token'];
    const { stdout } = await promisify(execFile)(process.execPath, args);
    process.stdout.write(`kubernetes: ${stdout}`);
    const figures = JSON.parse(stdout) as Figures;
    expect(figures.objects).toBeGreaterThanOrEqual(PODS);
    expect(figures.completeMs).toBeLessThanOrEqual(6_000);
    expect(figures.peakMiB).toBeLessThanOrEqual(120);
    expect(figures.busyMs).toBeLessThanOrEqual(20);
  });

  it('keeps the phase of an idle watch, and notices a stopped server within 90 s', {
    timeout: 300_000,
  }, async () => {
    const recording = new Recording(reflect({ server: kube.asAdmin, scope: { kind: 'pod' }, keep: seenPod }));
    try {
      await recording.untilPhase('watching', 30_000);
      await pause(80_000);
      expect(recording.phases).toEqual(['connecting', 'listing', 'watching']);
      await kube.signal('SIGSTOP');
      const stopped = performance.now();
      await recording.untilPhase('silent', 120_000);
      const noticedMs = performance.now() - stopped;
      process.stdout.write(`kubernetes: the stopped server was noticed after ${Math.round(noticedMs)} ms\n`);
      expect(noticedMs).toBeLessThanOrEqual(90_000);
    } finally {
      recording.end();
      await kube.signal('SIGCONT');
    }
  });
});
