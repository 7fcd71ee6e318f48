import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { eventually } from '#test/eventually.js';
import { endThread } from './end-thread.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

const WAIT = { timeout: 20_000, interval: 20 };
const OBSERVER = 'node/observer.worker.cjs';
const POLICY = 'node/policy.worker.cjs';
const DATAPATH = 'node/datapath.worker.cjs';

let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('supervised', [7001]);
  await rig.put(policyOf([{ match: { proto: 'tcp', dst_ports: [7001] } }]));
});
afterAll(() => rig.remove());

type Check = { readonly name: string; readonly ok: boolean; readonly detail: string };
async function checks(): Promise<Readonly<Record<string, Check>>> {
  const { checks: all } = (await rig.node.request('GET', '/ready')).body as { checks: Check[] };
  return Object.fromEntries(all.map((check) => [check.name, check]));
}
const detailOf = async (name: string): Promise<string> => (await checks())[name]?.detail ?? '';

describe('GET /ready', () => {
  test('GET /ready reports that the observer is down from the end of its thread until a new thread runs', async () => {
    await endThread(rig, OBSERVER);
    await eventually(async () => {
      expect((await checks()).dataplane_running).toMatchObject({
        ok: true,
        detail: expect.stringMatching(
          /^enforcing; warning: the observer \(findings, wiretap\) is down since 20\d\d-\d\d-\d\dT[\d:.]+Z: the observer's thread ended with exit code 7$/,
        ) as string,
      });
    }, WAIT);
    await eventually(async () => expect(await detailOf('dataplane_running')).toBe('enforcing'), WAIT);
    const { status, text } = await rig.node.request('GET', '/api/v1/audit/findings');
    expect(status, text).toBe(200);
  });

  test('GET /ready reports that the policy thread is down from the end of the thread until a new thread runs', async () => {
    await endThread(rig, POLICY);
    await eventually(async () => {
      expect(await detailOf('policy_ready')).toMatch(
        /^a policy is active; warning: the thread for writes of policies is down since 20[^ ]+Z: the policy thread ended with exit code 7$/,
      );
    }, WAIT);
    await eventually(async () => expect(await detailOf('policy_ready')).toBe('a policy is active'), WAIT);
  });

  test('GET /ready no longer warns about the policy thread as soon as a policy write has started a new thread', async () => {
    await endThread(rig, POLICY);
    await eventually(async () => expect(await detailOf('policy_ready')).toContain('warning'), WAIT);
    await rig.put(policyOf([{ match: { proto: 'udp', dst_ports: [7001] } }]));
    expect(await detailOf('policy_ready')).toBe('a policy is active');
  });

  test('GET /ready reports that the dataplane enforces again after the end of the datapath thread, whose lock is released', async () => {
    await endThread(rig, DATAPATH);
    await eventually(async () => expect(await rig.node.log()).toContain('worker_died'), WAIT);
    await rig.node.ready();
    expect(await rig.tcp(7001)).toBe('refused ETIMEDOUT');
    expect(await rig.node.log()).not.toContain('other_process');
  });
});
