import { afterAll, beforeAll, expect, test } from 'vitest';
import { run } from '#test/cli/cli-run.js';
import { ProgressClock } from '#test/progress-clock.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

const SECONDS = 5;
/** A pending change that expires after `SECONDS` is reverted within this time, in ms. */
const BACK_MS = 8_000;

let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('pending', [80, 81], { dataplane: { pickup: '0s' } });
});
afterAll(() => rig?.remove());

const allow = (port: number) => policyOf([{ match: { proto: 'tcp', dst_ports: [port] } }]);
const cli = async (...words: readonly string[]) =>
  run(['policy', ...words, '--server', rig.node.url], { WEIR_TOKEN: await rig.node.token() });
const change = (port: number, seconds: number) =>
  rig.node.request('PUT', `/api/v1/policy?confirm_within=${seconds}`, allow(port));
const open = async () => {
  const tried = await Promise.all([80, 81].map(async (port) => [port, await rig.tcp(port)] as const));
  return tried.filter(([, result]) => result.startsWith('open')).map(([port]) => port);
};
/** Waits up to `BACK_MS` until the client can connect to this port and not to the other. */
const opens = async (port: number) => {
  const clock = new ProgressClock();
  await expect.poll(open, { interval: 200 }).toEqual([port]);
  expect(clock.ms()).toBeLessThan(BACK_MS);
};

test('a policy that is not confirmed in time is reverted in the datapath, and the node reports the revert', async () => {
  await rig.put(allow(80));
  expect((await change(81, SECONDS)).status).toBe(200);
  expect(await open()).toEqual([81]);
  expect((await cli('pending')).out).toMatch(/waits for `weir policy confirm`[\s\S]*generation +2 \(before: 1\)/);
  await opens(80);
  expect((await cli('pending')).out).toMatch(/generation 2 was reverted .*: it was not confirmed within 5 s/);
  // The node records the revert some time after the datapath enforces the former policy again.
  const revert = async () => {
    const { body } = await rig.node.request('GET', '/api/v1/audit/findings/local?finding_type=config_change');
    return (body as { items: { actor: string }[] }).items.find(({ actor }) => actor === 'weir');
  };
  await expect.poll(revert).toMatchObject({
    operation: 'revertPendingChange',
    target: 'generation 2: it was not confirmed within 5 s',
  });
  expect((await rig.node.request('GET', '/metrics')).text).toContain(
    'weir_policy_changes_ended_total{outcome="revert"} 1',
  );
});

test('a confirmed policy stays in force, and a policy that an operator reverts is replaced at once', async () => {
  await change(81, SECONDS);
  expect((await cli('confirm', '--generation', '99')).err).toContain('the pending change has generation 4, not 99');
  expect(await cli('confirm')).toMatchObject({ code: 0, out: 'generation 4 is confirmed\n' });
  await change(80, 60);
  expect(await open()).toEqual([80]);
  expect(await cli('revert', '--dry-run')).toMatchObject({ code: 0 });
  expect(await open()).toEqual([80]);
  expect(await cli('revert')).toMatchObject({ code: 0 });
  expect(await open()).toEqual([81]);
  expect((await cli('revert')).err).toContain('no policy change is pending');
});

test('an unconfirmed policy is reverted in time although the node was killed and started again', async () => {
  await rig.put(allow(80));
  await change(81, SECONDS);
  await rig.node.restart();
  expect(await open()).toEqual([81]);
  await opens(80);
});
