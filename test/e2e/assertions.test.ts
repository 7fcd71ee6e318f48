import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { run } from '#test/cli/cli-run.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('assertions', [80, 81]);
  await rig.put(allowing(80));
});
afterAll(() => rig?.remove());

const allowing = (...ports: readonly number[]) =>
  policyOf(ports.map((port) => ({ id: `p${port}`, match: { proto: 'tcp', dst_ports: [port] } })));
const cli = async (words: readonly string[]) =>
  run([...words, '--server', rig.node.url], { WEIR_TOKEN: await rig.node.token() });
const fileWith = (name: string, document: unknown): string => {
  const file = join(rig.node.folder, name);
  writeFileSync(file, JSON.stringify(document));
  return file;
};
const kept = { id: 'management', always: { from: [ADDRESSES.client], to: [ADDRESSES.server], ports: [80] } };
const closed = { id: 'closed', never: { to: [ADDRESSES.server], ports: [81] } };
const generation = async () => (await rig.node.request('GET', '/api/v1/policy')).headers.get('weir-generation');

test('a policy write that an assertion refuses changes nothing in the kernel, and `weir policy explain` shows the example flow of the error as denied', async () => {
  const applied = await cli(['assertions', 'apply', '-f', fileWith('assertions.json', { assertions: [kept, closed] })]);
  expect([applied.code, applied.out]).toEqual([
    0,
    'holds   management\nholds   closed\n2 assertions\nETag "assertions.1"\n',
  ]);
  const before = [await generation(), await rig.tcp(80), await rig.tcp(81)];
  expect(before.slice(1)).toEqual(['open', expect.not.stringContaining('open')]);

  const lockout = fileWith('lockout.json', allowing(81));
  const { code, err } = await cli(['policy', 'apply', '--replace', '-f', lockout]);
  expect([code, err.split('\n')]).toEqual([
    1,
    [
      'weir: the write was refused because of 2 assertions:',
      `  management: default_policy denies ${ADDRESSES.client} → ${ADDRESSES.server} tcp/80`,
      expect.stringMatching(/^ {4}weir policy explain .* -f .*lockout\.json$/),
      `  closed: clients/p81 passes ${ADDRESSES.client} → ${ADDRESSES.server} tcp/81`,
      expect.any(String),
      '  → change the policy, or give --override management,closed, which the history records',
      '',
    ],
  ]);
  expect([await generation(), await rig.tcp(80), await rig.tcp(81)]).toEqual(before);

  const command = err.split('\n')[2]?.trim().split(' ').slice(1) ?? [];
  const explained = await cli([...command, '-o', 'json']);
  expect(JSON.parse(explained.out)).toMatchObject({ decision: 'deny' });
});

test('a dry run shows the assertions that would refuse the write; with an override, the node accepts the write and the history shows the override', async () => {
  const lockout = fileWith('lockout.json', allowing(81));
  const dry = await cli(['policy', 'apply', '--replace', '--dry-run', '-f', lockout]);
  expect([dry.code, dry.out]).toEqual([0, expect.stringContaining('the write would be refused:\n  management: ')]);
  const passed = await cli(['policy', 'apply', '--replace', '-f', lockout, '--override', 'management,closed']);
  expect([passed.code, passed.err]).toEqual([0, expect.stringContaining('[assertion_failed]')]);
  expect([await rig.tcp(80), await rig.tcp(81)]).toEqual([expect.not.stringContaining('open'), 'open']);
  expect((await cli(['policy', 'history'])).out).toContain('(overrides management, closed)');
  expect((await cli(['assertions', 'list'])).out).toContain('2 assertions, 2 broken');
});

test('a policy write that repairs a broken assertion is accepted, and the list of assertions is kept after a restart', async () => {
  await rig.put(allowing(80));
  expect(await rig.tcp(80)).toBe('open');
  await rig.node.restart();
  await rig.node.ready();
  expect((await rig.node.request('PUT', '/api/v1/policy', allowing(81))).status).toBe(409);
  expect(await rig.tcp(80)).toBe('open');
});

test('an unconfirmed change is reverted, although the earlier policy breaks an assertion', async () => {
  const written = await rig.node.request('PUT', '/api/v1/policy?override=closed&confirm_within=5', allowing(80, 81));
  expect(written.status).toBe(200);
  const list = [{ id: 'both', always: { from: [ADDRESSES.client], to: [ADDRESSES.server], ports: [81] } }];
  expect((await rig.node.request('PUT', '/api/v1/assertions', { assertions: list })).status).toBe(200);
  await expect.poll(() => rig.tcp(81), { timeout: 20_000 }).not.toBe('open');
  expect(await rig.tcp(80)).toBe('open');
});
