import { chmodSync, chownSync, mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createRig, isInstalled, leastPrivileges, type NodeRig, policyOf } from './rig.js';

/** Options for polls: a node must restore lost pins within five seconds (F10). */
const soon = { timeout: 5_000, interval: 20 };

let rig: NodeRig;
let pinPath: string;
let pinned: readonly string[];
beforeAll(async () => {
  // The node does not run as root. So a test can prevent new pins: it makes root the owner of the pin folder.
  rig = await createRig('lost', [80, 81], leastPrivileges([], 65_534));
  await rig.put(policyOf([{ match: { proto: 'tcp', dst_ports: [80] } }]));
  await rig.node.ready();
  ({ pinPath } = rig.topology);
  pinned = pins();
});
afterAll(() => rig?.remove());

function pins(): readonly string[] {
  try {
    return readdirSync(join(pinPath, 'maps-1')).sort();
  } catch {
    return [];
  }
}

async function isEnforced(): Promise<void> {
  expect(await Promise.all([rig.tcp(80), rig.tcp(81)])).toEqual(['open', 'refused ETIMEDOUT']);
}

async function config(): Promise<string> {
  const { body } = await rig.node.request('GET', '/ready');
  const { checks } = body as { readonly checks: readonly { name: string; state: string; detail: string }[] };
  const { state, detail } = checks.find(({ name }) => name === 'dataplane_config') ?? {};
  return `${state}: ${detail}`;
}

const LOSSES: [string, () => void][] = [
  ['one pin', () => rmSync(join(pinPath, 'maps-1', 'flows'))],
  ['the folder of the maps', () => rmSync(join(pinPath, 'maps-1'), { recursive: true })],
];
// An installed Weir runs as a user that may not write to /sys/fs/bpf.
if (!isInstalled) LOSSES.push(['every pin', () => rmSync(pinPath, { recursive: true })]);
test.each(LOSSES)(
  'a node restores its BPF pins (files that keep BPF maps and links) within five seconds after the removal of %s',
  async (_, remove) => {
    expect(pinned).toContain('flows');
    remove();
    expect(pins()).not.toContain('flows');
    await expect.poll(pins, soon).toEqual(pinned);
    await rig.node.ready();
    await isEnforced();
    // The restarted node must take over the policy in force from the restored pins.
    await rig.node.restart();
    await rig.node.ready();
    expect(pins()).toEqual(pinned);
    await isEnforced();
    const log = (await rig.node.log()).split('\n').filter((line) => line.includes('"type":"pins_lost"'));
    expect(log.at(-1)).toContain('"flows"');
  },
);

test('GET /ready names the BPF pins that the node cannot restore', async () => {
  const { uid, gid } = statSync(pinPath);
  chownSync(pinPath, 0, 0);
  chmodSync(pinPath, 0o755);
  try {
    rmSync(join(pinPath, 'maps-1', 'flows'));
    await expect.poll(config, soon).toMatch(/^reattach_failed: .*pin the maps flows again: .*EACCES/);
    await isEnforced();
  } finally {
    chownSync(pinPath, uid, gid);
  }
  await expect.poll(pins, soon).toEqual(pinned);
  await rig.node.ready();
});

if (isInstalled)
  test('if the pin folder was removed, forwarded packets are dropped and GET /ready names the folder, until root creates it again', async () => {
    const { uid, gid } = statSync(pinPath);
    rmSync(pinPath, { recursive: true });
    await expect.poll(config, soon).toMatch(new RegExp(`^reattach_failed: .*EACCES.*${pinPath}`));
    expect(await rig.tcp(80)).toBe('refused ETIMEDOUT');
    mkdirSync(pinPath, 0o700);
    chownSync(pinPath, uid, gid);
    await expect.poll(pins, soon).toEqual(pinned);
    await rig.node.ready();
    await isEnforced();
  });
