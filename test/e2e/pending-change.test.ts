import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { program } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { run } from '#test/cli/cli-run.js';
import { ProgressClock } from '#test/progress-clock.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

const SECONDS = 5;
/** A pending change that expires after `SECONDS` is reverted within this time, in ms. */
const BACK_MS = 8_000;
/** The kernel enforces the former policy this time after the deadline at the latest, in ms. */
const PAST_MS = 1_000;

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
const pending = async () => {
  const { body } = await rig.node.request('GET', '/api/v1/policy/pending');
  return (body as { pending: { generation: number } }).pending;
};
/** Returns the targets of the findings about changes that Weir reverted by itself, newest first. */
const reverts = async () => {
  const query = 'finding_type=config_change&limit=200';
  const { body } = await rig.node.request('GET', `/api/v1/audit/findings/local?${query}`);
  return (body as { items: { actor: string; target: string }[] }).items.flatMap(({ actor, target }) =>
    actor === 'weir' ? [target] : [],
  );
};
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

/** Kills the node, and starts it again after the deadline. Before and after the start, `ports` are open. */
const killAndRestart = async (ports: readonly number[]) => {
  await rig.node.end('SIGKILL');
  await pause(SECONDS * 1_000 + PAST_MS);
  expect(await open()).toEqual(ports);
  await rig.node.restart();
  await rig.node.ready();
  expect(await open()).toEqual(ports);
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

test('after a kill and a restart of the node, an unconfirmed policy is still in force, and its deadline is the same', async () => {
  await rig.put(allow(80));
  const clock = new ProgressClock();
  await change(81, 3 * SECONDS);
  await pause(SECONDS * 1_000);
  await rig.node.restart();
  await rig.node.ready();
  expect(await open()).toEqual([81]);
  await expect.poll(open, { interval: 100, timeout: 3 * BACK_MS }).toEqual([80]);
  expect(clock.ms()).toBeLessThan(3 * SECONDS * 1_000 + PAST_MS);
});

describe('the kernel reverts an unconfirmed policy without the process', () => {
  test('after kill -9 of the node; then the node starts with the earlier policy, and reports the revert once', async () => {
    await rig.put(allow(80));
    await change(81, SECONDS);
    const { generation } = await pending();
    const before = await reverts();
    await rig.node.end('SIGKILL');
    expect(await open()).toEqual([81]);
    await pause(SECONDS * 1_000 + PAST_MS);
    expect(await open()).toEqual([80]);

    // A datagram each 5 ms to the port of the unconfirmed policy, while the node starts.
    const probe = rig.topology.client.start(process.execPath, [
      program('tour-traffic'),
      ...['connect-udp', ADDRESSES.server, '81', '--every', '5', '--timeout', '1000'],
    ]);
    let answered = 0;
    probe.stdout?.setEncoding('utf8').on('data', (text: string) => {
      answered += text.split('\n').filter((line) => line.startsWith('pong')).length;
    });
    await rig.node.restart();
    await rig.node.ready();
    expect(await open()).toEqual([80]);
    probe.kill('SIGKILL');
    expect(answered).toBe(0);

    const stored = (await rig.node.request('GET', '/api/v1/policy')).body;
    expect(stored).toMatchObject(allow(80) as object);
    const reason = `it was not confirmed within ${SECONDS} s; the kernel reverted it, because no process did so in time`;
    expect((await rig.node.request('GET', '/api/v1/policy/pending')).body).toMatchObject({
      pending: null,
      reverted: { generation, reason },
    });
    await expect.poll(reverts).toEqual([`generation ${generation}: ${reason}`, ...before]);
    expect((await cli('pending')).out).toContain('the kernel reverted it');
  });

  test('while the process of the node is stopped (SIGSTOP); then the process accepts no confirmation, and reports the revert once', async () => {
    await rig.put(allow(80));
    await change(81, SECONDS);
    const { generation } = await pending();
    const before = await reverts();
    process.kill(rig.node.pid, 'SIGSTOP');
    await pause(SECONDS * 1_000 + PAST_MS);
    expect(await open()).toEqual([80]);
    const confirmed = rig.node.request('POST', '/api/v1/policy/pending/confirm');
    process.kill(rig.node.pid, 'SIGCONT');
    expect([404, 409]).toContain((await confirmed).status);
    await expect
      .poll(reverts)
      .toEqual([
        expect.stringContaining(`generation ${generation}: it was not confirmed within ${SECONDS} s`),
        ...before,
      ]);
    await pause(PAST_MS);
    expect(await open()).toEqual([80]);
    expect(await reverts()).toHaveLength(before.length + 1);
    await rig.node.ready();
  });

  test('only if neither a confirmation nor a later write confirmed the policy before kill -9', async () => {
    await rig.put(allow(80));
    await change(81, SECONDS);
    expect(await cli('confirm')).toMatchObject({ code: 0 });
    await rig.node.end('SIGKILL');
    await pause(SECONDS * 1_000 + PAST_MS);
    expect(await open()).toEqual([81]);
    await rig.node.restart();
    await rig.node.ready();
    await change(80, SECONDS);
    await rig.put(allow(80));
    await killAndRestart([80]);
  });

  test('to the last confirmed policy, also after dry runs and a second unconfirmed write', async () => {
    await rig.put(allow(80));
    await change(81, SECONDS);
    for (const port of [80, 81]) {
      const tried = await rig.node.request('PUT', '/api/v1/policy?dry_run=true', allow(port));
      expect(tried.body).toMatchObject({ proof: { complete: true } });
    }
    expect(await open()).toEqual([81]);
    const both = policyOf([{ match: { proto: 'tcp', dst_ports: [80, 81] } }]);
    await rig.node.request('PUT', `/api/v1/policy?confirm_within=${SECONDS}`, both);
    expect(await open()).toEqual([80, 81]);
    await killAndRestart([80]);
    expect((await rig.node.request('GET', '/api/v1/policy')).body).toMatchObject(allow(80) as object);
  });
});
