import { cp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { weirCommand } from '#cli/tour/node-process.js';
import { ProgressClock } from '#test/progress-clock.js';
import { createRig, type NodeRig, policyOf } from './rig.js';
import { FakeServiceManager } from './service-manager.js';

const PORT = 8_001;
const allowing = policyOf([{ match: { proto: 'tcp', dst_ports: [PORT] } }]);
const denying = policyOf([{ match: { proto: 'tcp', dst_ports: [9] } }]);

let manager: FakeServiceManager;
let rig: NodeRig;
beforeAll(async () => {
  manager = await FakeServiceManager.start();
  rig = await createRig('backup', [PORT], { serviceManager: manager });
});
afterAll(async () => {
  await rig?.remove();
  await manager?.close();
});

type Policies = { readonly items: readonly { readonly id: string; readonly active: boolean }[] };

// This test follows the procedure for a backup in docs/install.md.
test('a restored data folder does not replace a newer policy in the kernel until its own policy is activated', async () => {
  const { node } = rig;
  const [data, backup] = [join(node.folder, 'data'), join(node.folder, 'backup')];
  await rig.put(allowing);
  expect(await node.end('SIGTERM')).toBe(0);
  await cp(data, backup, { recursive: true });
  await node.restart();
  await node.ready();
  await rig.put(denying);
  expect(await rig.tcp(PORT)).not.toBe('open');

  await node.end('SIGTERM');
  await rm(data, { recursive: true });
  await cp(backup, data, { recursive: true });
  manager.messages.length = 0;
  await node.restart();
  const clock = new ProgressClock();
  await node.ready({ except: ['policy_ready'] });
  // The node now waits for a policy write of an operator. Without this message, `systemctl start` would wait
  // for 30 s.
  await expect.poll(() => manager.messages).toContain('READY=1');
  expect(clock.ms()).toBeLessThan(20_000);
  const log = await node.log();
  const start = log.slice(log.lastIndexOf('"msg":"opening the store"') - 200);
  expect(start).toMatch(/"bytes":[1-9]\d*,"msg":"opening the store"/);
  expect(start).toMatch(/"bytes":[1-9]\d*,"ms":\d+,"msg":"the store is open"/);
  expect(start).toMatch(/"generation":2,"msg":"the kernel enforces a newer policy than the data folder has, /);
  expect(await rig.tcp(PORT)).not.toBe('open');
  const { text } = await node.request('GET', '/ready');
  expect(text).toContain('the kernel enforces generation 2, but the newest generation in the data folder is 1');

  const policies = (await node.request('GET', '/api/v1/policies')).body as Policies;
  const restored = policies.items.find(({ active }) => active);
  const path = `/api/v1/policies/${restored?.id}/activate`;
  const unconfirmed = await node.request('POST', `${path}?confirm_within=60s`, {});
  expect([unconfirmed.status, unconfirmed.text]).toEqual([409, expect.stringContaining('nothing_activated')]);
  expect(await rig.tcp(PORT)).not.toBe('open');
  const answer = await node.request('POST', path, {});
  expect(answer.status, answer.text).toBe(200);
  await expect.poll(() => manager.messages).toContain('STATUS=');
  await node.ready();
  expect(await rig.tcp(PORT)).toBe('open');
});

test('the policy of a restored data folder is in force at once if the kernel has no policy', async () => {
  const { node } = rig;
  const data = join(node.folder, 'data');
  await node.end('SIGTERM');
  const detach = ['dataplane', 'detach', '--config', join(node.folder, 'weir.yaml')];
  const detached = await rig.topology.node.run(...weirCommand, ...detach);
  expect(detached.code, detached.stderr).toBe(0);
  await rm(data, { recursive: true });
  await cp(join(node.folder, 'backup'), data, { recursive: true });
  await node.restart();
  await node.ready();
  expect(await rig.tcp(PORT)).toBe('open');
});
