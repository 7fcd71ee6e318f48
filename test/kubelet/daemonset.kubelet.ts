import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Installation } from './installation.js';
import { KubeNode } from './kube-node.js';
import { clientPod, PodTraffic } from './pod-traffic.js';

const IMAGE = process.env.WEIR_TEST_IMAGE ?? '';
const [FIRST, SECOND] = ['test1', 'test2'];
/** The capabilities of docs/capabilities.md as /proc shows them. */
const FIVE = '000000c000003400';
const CONFINED = {
  CapInh: '0000000000000000',
  CapPrm: FIVE,
  CapEff: FIVE,
  CapBnd: FIVE,
  NoNewPrivs: '1',
  Seccomp: '2',
};
const NOTHING_LOST = { lost: 0, passed: 0 };
const GUARD = '/var/lib/weir/guard.nft';
const STATUS = ['integration', 'status', 'local', '--output', 'json'];
const TOKEN = '/var/run/secrets/kubernetes.io/serviceaccount/token';

/** Returns the process id of the node of Weir. Several containers run its image. */
function pidOfWeir(): number {
  const isWeir = (pid: string): boolean => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(1, 3).join(' ') === '/usr/bin/weir run';
    } catch {
      return false;
    }
  };
  const [pid, ...others] = readdirSync('/proc').filter((name) => /^\d+$/.test(name) && isWeir(name));
  expect(others).toEqual([]);
  return Number(pid);
}

const statusOf = (pid: number): Readonly<Record<string, string>> =>
  Object.fromEntries(
    readFileSync(`/proc/${pid}/status`, 'utf8')
      .split('\n')
      .map((line) => line.split(/:\s+/, 2) as [string, string]),
  );

function claimsOf(token: string): unknown {
  return JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString('utf8'));
}

describe('the DaemonSet on a node of Kubernetes', () => {
  let node: KubeNode;
  let traffic: PodTraffic;
  let installation: Installation;
  /** The content of the guard file, which the test has saved while the node enforced. */
  let guard = '';
  const addresses = new Map<string, string>();
  const kubectl = (...words: string[]) => node.kube.kubectl(...words);
  const weir = (...words: string[]) => kubectl('-n', 'weir-system', 'exec', 'ds/weir', '--', '/usr/bin/weir', ...words);
  const rollout = () => kubectl('-n', 'weir-system', 'rollout', 'status', 'daemonset/weir', '--timeout=120s');
  const addressOf = (name: string) => addresses.get(name) ?? '';
  const label = (name: string, app: string) => kubectl('label', 'pod', name, `app=${app}`, '--overwrite');
  const isReady = async () => (await fetch('http://127.0.0.1:8080/ready').catch(() => null))?.status === 200;
  const podsOfWeir = async () => {
    const pods = await kubectl('-n', 'weir-system', 'get', 'pods', '-l', 'app.kubernetes.io/name=weir', '-o', 'json');
    type Pod = { readonly metadata: { readonly name: string; readonly uid: string } };
    return (JSON.parse(pods) as { readonly items: readonly Pod[] }).items.map(({ metadata }) => metadata.name);
  };
  async function createClient(name: string, app: string): Promise<void> {
    const pod = clientPod(name, { app }, `weir:${FIRST}`);
    await node.kube.must('POST', '/api/v1/namespaces/default/pods', pod);
    await kubectl('wait', '--for=condition=Ready', '--timeout=60s', `pod/${name}`);
    addresses.set(name, (await kubectl('get', 'pod', name, '-o', 'jsonpath={.status.podIP}')).trim());
  }
  /** The datagrams and new TCP connections of both pods while `change` runs. */
  async function during(change: () => Promise<unknown>) {
    const [allowed, denied] = [addressOf('allowed'), addressOf('denied')];
    const connections = [traffic.connections(allowed), traffic.connections(denied)];
    const begin = Date.now();
    await change();
    expect([await traffic.passes(allowed), await traffic.talks(allowed)]).toEqual([true, true]);
    const seen = traffic.since(allowed, begin);
    const passed = traffic.since(denied, begin).received;
    const opened = [traffic.connections(allowed), traffic.connections(denied)];
    console.log(`${expect.getState().currentTestName}: ${JSON.stringify({ ...seen, passed, opened })}`);
    expect(opened).toEqual(connections);
    return { lost: seen.lost, passed };
  }

  beforeAll(async () => {
    node = await KubeNode.start();
    traffic = await PodTraffic.listen();
    await node.importImage(IMAGE);
    const names = (await node.ctr('images', 'ls', '-q')).split('\n');
    const name = names.find((each) => each.startsWith('docker.io/library/weir:')) ?? '';
    for (const tag of [FIRST, SECOND]) await node.ctr('images', 'tag', name, `docker.io/library/weir:${tag}`);
    installation = new Installation(node.kube, 'bridge', FIRST);
  });
  afterAll(async () => {
    traffic?.close();
    await node?.remove();
  });

  it('a node on which the DaemonSet does not yet run passes the packets of all pods', async () => {
    await createClient('allowed', 'client');
    await createClient('denied', 'other');
    await expect.poll(() => traffic.passes(addressOf('allowed')), { timeout: 20_000 }).toBe(true);
    expect(await traffic.passes(addressOf('denied'))).toBe(true);
  });

  it('the DaemonSet becomes ready through its probes, and no denied packet passes after its first policy is in force', async () => {
    await installation.apply();
    await rollout();
    const lines = (await kubectl('-n', 'weir-system', 'logs', 'ds/weir')).trim().split('\n');
    const enforcing = lines
      .map((line) => JSON.parse(line) as { readonly time: string; readonly msg: string })
      .filter(({ msg }) => msg === 'dataplane enforcing');
    // The node logs `dataplane enforcing` twice: for `policy.fallback`, and for the policy itself.
    expect(enforcing.length).toBeGreaterThan(1);
    expect(traffic.last(addressOf('denied'))).toBeGreaterThan(0);
    expect(traffic.last(addressOf('denied'))).toBeLessThanOrEqual(Date.parse(enforcing[0]?.time ?? ''));
    await expect.poll(() => traffic.passes(addressOf('allowed')), { timeout: 10_000 }).toBe(true);
    await expect.poll(() => traffic.talks(addressOf('allowed')), { timeout: 10_000 }).toBe(true);
    expect(await traffic.passes(addressOf('denied'))).toBe(false);
    expect(await weir('status')).toMatch(/^node +ready/);
  });

  it('the container of the DaemonSet has exactly five capabilities and a read-only root file system', async () => {
    const pid = pidOfWeir();
    expect(statusOf(pid)).toMatchObject({ ...CONFINED, Uid: '0\t0\t0\t0' });
    const [root] = readFileSync(`/proc/${pid}/mountinfo`, 'utf8')
      .split('\n')
      .map((line) => line.split(' '))
      .filter(([, , , , place]) => place === '/');
    expect(root?.[5]?.split(',')).toContain('ro');
  });

  it('the DaemonSet decides the packets of a pod by the labels of the pod, and follows changes of the labels', async () => {
    await label('denied', 'client');
    await expect.poll(() => traffic.passes(addressOf('denied')), { timeout: 5_000 }).toBe(true);
    await label('denied', 'other');
    await expect.poll(() => traffic.passes(addressOf('denied')), { timeout: 5_000 }).toBe(false);
    await createClient('new', 'client');
    await expect.poll(() => traffic.passes(addressOf('new')), { timeout: 10_000 }).toBe(true);
    await kubectl('delete', 'pod', 'new');
    expect(await weir('policy', 'members', 'clients')).toMatch(new RegExp(`^${addressOf('allowed')} .* allowed `, 'm'));
    expect(await weir('findings')).toContain(`default/denied (${addressOf('denied')})`);
  });

  it('the DaemonSet loads a changed policy from its ConfigMap', async () => {
    installation.allow('other');
    await installation.apply();
    await expect.poll(() => traffic.passes(addressOf('denied')), { timeout: 120_000 }).toBe(true);
    installation.allow('client');
    await installation.apply();
    await expect.poll(() => traffic.passes(addressOf('denied')), { timeout: 120_000 }).toBe(false);
  });

  it('the DaemonSet uses a service account token that the kubelet has renewed, without a restart', async () => {
    const pid = pidOfWeir();
    const token = () => readFileSync(`/proc/${pid}/root${TOKEN}`, 'utf8');
    const state = async () => (JSON.parse(await weir(...STATUS)) as { readonly state: string }).state;
    const first = token();
    expect(claimsOf(first)).toMatchObject({
      sub: 'system:serviceaccount:weir-system:weir',
      'kubernetes.io': { pod: { name: (await podsOfWeir())[0] } },
    });
    expect(await state()).toBe('watching');
    const seen = await during(async () => {
      // With another key, the API server refuses all former tokens.
      await node.changeTokenKey();
      await expect.poll(state, { timeout: 60_000 }).toBe('refused.unauthorized');
      // A kubelet has its tokens in memory, and requests new ones after a restart.
      await node.restartKubelet();
      await expect.poll(state, { timeout: 90_000 }).toBe('watching');
    });
    expect(seen).toEqual(NOTHING_LOST);
    expect(token()).not.toBe(first);
    expect(pidOfWeir()).toBe(pid);
    await label('denied', 'client');
    await expect.poll(() => traffic.passes(addressOf('denied')), { timeout: 5_000 }).toBe(true);
    await label('denied', 'other');
    await expect.poll(() => traffic.passes(addressOf('denied')), { timeout: 5_000 }).toBe(false);
  });

  it.each([
    [
      'a rolling update to another image',
      async () => {
        installation.setImage(FIRST, SECOND);
        await installation.apply();
      },
    ],
    ['the deletion of its pod', async () => kubectl('-n', 'weir-system', 'delete', 'pod', ...(await podsOfWeir()))],
    ['the end of its process by SIGKILL', async () => process.kill(pidOfWeir(), 'SIGKILL')],
  ])(
    'the DaemonSet enforces the policy while its pod or process is replaced (%s): no allowed packet is lost, and no denied packet passes',
    async (_, change) => {
      const pid = pidOfWeir();
      const seen = await during(async () => {
        await change();
        await expect.poll(() => pidOfWeir(), { timeout: 60_000 }).not.toBe(pid);
        await expect.poll(isReady, { timeout: 60_000 }).toBe(true);
        await rollout();
      });
      expect(seen).toEqual(NOTHING_LOST);
    },
  );

  it('the policy stays in force after the deletion of the DaemonSet, and label changes of pods have no effect then', async () => {
    const seen = await during(async () => {
      await installation.remove();
      expect(pidOfWeir()).toBeNaN();
      await label('denied', 'client');
      await pause(2_000);
    });
    expect(seen).toEqual(NOTHING_LOST);
  });

  it('deploy/kubernetes/remove removes the BPF programs, the nftables rules and the content of the boot file of these rules from the node', async () => {
    await label('denied', 'other');
    guard = readFileSync(GUARD, 'utf8');
    await installation.applyRemoval();
    await kubectl('-n', 'weir-system', 'rollout', 'status', 'daemonset/weir-remove', '--timeout=60s');
    await expect.poll(() => traffic.passes(addressOf('denied')), { timeout: 5_000 }).toBe(true);
    expect(await traffic.passes(addressOf('allowed'))).toBe(true);
    await installation.deleteRemoval();
    expect(readdirSync('/sys/fs/bpf').filter((name) => !name.endsWith('.debug'))).toEqual([]);
    expect(execFileSync('nft', ['list', 'tables'], { encoding: 'utf8' })).not.toContain('weir');
    expect(statSync(GUARD).size).toBe(0);
  });

  it('the DaemonSet becomes ready on a node that has no pods and lacks the interface of the pods', async () => {
    await kubectl('delete', 'pod', 'allowed', 'denied');
    execFileSync('ip', ['link', 'delete', 'cni0']);
    await installation.apply();
    await rollout();
    const begin = Date.now();
    await createClient('denied', 'other');
    await createClient('allowed', 'client');
    await expect.poll(() => traffic.passes(addressOf('allowed')), { timeout: 10_000 }).toBe(true);
    expect(traffic.since(addressOf('denied'), begin).received).toBe(0);
  });

  it('a node that boots with the file of the nftables rules of Weir passes no packets of pods before its policy is in force', async () => {
    await installation.remove();
    await installation.applyRemoval();
    await kubectl('-n', 'weir-system', 'rollout', 'status', 'daemonset/weir-remove', '--timeout=60s');
    await installation.deleteRemoval();
    await expect.poll(() => traffic.passes(addressOf('denied')), { timeout: 5_000 }).toBe(true);
    // Load the guard with the command that weir-guard.service runs at boot.
    execFileSync('nft', ['-f', '-'], { input: guard });
    const begin = Date.now();
    expect([await traffic.passes(addressOf('allowed')), await traffic.passes(addressOf('denied'))]).toEqual([
      false,
      false,
    ]);
    await installation.apply();
    await rollout();
    await expect.poll(() => traffic.passes(addressOf('allowed')), { timeout: 10_000 }).toBe(true);
    expect(traffic.since(addressOf('denied'), begin).received).toBe(0);
  });
});
