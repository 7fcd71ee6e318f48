import { execFile, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { formatAddress } from '#addresses/ip-address.js';
import { reflect } from '#kubernetes/watch/reflector.js';
import { HAS_KUBE_API, KubeApi } from '#test/kubernetes/kube-api.js';
import { FAULTS, playPods, seenPod } from '#test/kubernetes/pod-play.js';
import { Recording } from '#test/kubernetes/recording.js';
import type { Figures } from '#test/kubernetes/reflector-process.js';
import { scope } from '#test/kubernetes/sample.js';
import type { ChangeFigures, ListFigures } from '#test/kubernetes/thread-process.js';
import { Random, seedOf } from '#test/seed.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';

const PROCESS = fileURLToPath(new URL('../../dist/test/kubernetes/reflector-process.js', import.meta.url));
const THREAD_PROCESS = fileURLToPath(new URL('../../dist/test/kubernetes/thread-process.js', import.meta.url));
const PODS = Number(process.env.WEIR_PODS ?? 10_000);
const AT_ONCE = 20;
const CHANGES = 5_000;
const CHANGES_MS = 60_000;
const firstAddress = 10 * 2 ** 24;
/** Makes a pod as large as in real clusters: about 7 kB. */
const PADDING = 'x'.repeat(6_000);
/** For how many minutes the trial makes random changes of pods. */
const MINUTES = Number(process.env.WEIR_MINUTES ?? 3);

/** Creates all pods that do not exist yet. */
async function createPods(kube: KubeApi): Promise<void> {
  let next = 0;
  const post = async () => {
    while (next < PODS) {
      const name = `big-${next++}`;
      await kube.send('POST', '/api/v1/namespaces/default/pods', {
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
}

function addressStatus(address: number) {
  const ip = formatAddress(address);
  return { phase: 'Running', podIP: ip, podIPs: [{ ip }] };
}

/** Gives pods new addresses. Returns when the API server confirmed each address, in ms since 1970. */
async function sendChanges(kube: KubeApi): Promise<ReadonlyMap<number, number>> {
  const sent = new Map<number, number>();
  const pending: Promise<void>[] = [];
  for (let change = 0, from = Date.now(); change < CHANGES; change++) {
    await pause(Math.max(0, from + (change * CHANGES_MS) / CHANGES - Date.now()));
    const address = firstAddress + 2 ** 16 + change;
    const set = kube.setStatus(`big-${change % PODS}`, addressStatus(address));
    pending.push(set.then(() => void sent.set(address, Date.now())));
  }
  await Promise.all(pending);
  return sent;
}

skipUnless(HAS_KUBE_API, LACKS.kubeApi).describe('reflector of a large API server', () => {
  let kube: KubeApi;
  beforeAll(async () => {
    kube = await KubeApi.start();
    await kube.createNamespace('shop');
  });
  afterAll(() => kube.remove());

  it('a Kubernetes reflector agrees with kubectl during minutes of random pod events and faults', {
    timeout: (MINUTES + 5) * 60_000,
  }, async () => {
    const random = new Random(seedOf(Date.now() % 1_000_000));
    let events = 0;
    const until = Date.now() + MINUTES * 60_000;
    while (Date.now() < until) events += await playPods(kube, random, FAULTS, 100);
    process.stdout.write(`kubernetes: seed ${random.seed}, ${events} changes of pods\n`);
  });

  it('a Kubernetes reflector lists 10,000 pods within 6 s and 120 MiB, and does not block the thread that started it', {
    timeout: 600_000,
  }, async () => {
    await createPods(kube);
    const args = ['--conditions=development', PROCESS, kube.url, join(kube.folder, 'ca.pem'), 'admin-token'];
    const { stdout } = await promisify(execFile)(process.execPath, args);
    process.stdout.write(`kubernetes: ${stdout}`);
    const figures = JSON.parse(stdout) as Figures;
    expect(figures.objects).toBeGreaterThanOrEqual(PODS);
    expect(figures.completeMs).toBeLessThanOrEqual(6_000);
    expect(figures.peakMiB).toBeLessThanOrEqual(120);
    expect(figures.busyMs).toBeLessThanOrEqual(20);
  });

  it('the Kubernetes thread delivers the members of 10,000 pods, and 5,000 changes a minute, without blocking the main thread', {
    timeout: 900_000,
  }, async () => {
    await createPods(kube);
    let next = 0;
    await Promise.all(
      Array.from({ length: AT_ONCE }, async () => {
        while (next < PODS) {
          const index = next++;
          await kube.setStatus(`big-${index}`, addressStatus(firstAddress + index));
        }
      }),
    );
    const args = ['--conditions=development', THREAD_PROCESS, kube.url, join(kube.folder, 'ca.pem'), 'admin-token'];
    const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const figures = async () => JSON.parse((await lines.next()).value ?? '') as unknown;
    try {
      const list = (await figures()) as ListFigures;
      process.stdout.write(`kubernetes: ${JSON.stringify(list)}\n`);
      child.stdin.write('\n');
      await figures();
      const sent = await sendChanges(kube);
      await pause(500);
      child.stdin.write('\n');
      const { changes, cpu } = (await figures()) as ChangeFigures;
      // Take the first change of each address: a later change removes the address from its pod.
      const first = new Map([...changes].reverse());
      const waits = [...sent].map(([address, at]) => (first.get(address) ?? Number.NaN) - at).sort((a, b) => a - b);
      const part = (of: number) => waits[Math.floor(waits.length * of)] ?? 0;
      const shown = `from the answer of the server to the listener: median ${part(0.5)} ms, p99 ${part(0.99)} ms`;
      process.stdout.write(
        `kubernetes: ${waits.length} changes, ${shown}; ${(cpu * 100).toFixed(1)} % of a processor\n`,
      );
      expect([list.members, waits.some(Number.isNaN)]).toEqual([PODS, false]);
      expect(list.storedMs).toBeLessThanOrEqual(6_000);
      expect(list.peakMiB).toBeLessThanOrEqual(120);
      expect(list.longestBlockMs).toBeLessThanOrEqual(20);
      expect(part(0.99)).toBeLessThanOrEqual(40);
      expect(cpu).toBeLessThanOrEqual(0.05);
    } finally {
      child.kill();
    }
  });

  it('a Kubernetes reflector stays in the phase `watching` during an idle watch, and notices a stopped server within 90 s', {
    timeout: 300_000,
  }, async () => {
    const recording = new Recording(reflect({ server: kube.asAdmin, scope: scope('pods'), keep: seenPod }));
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
