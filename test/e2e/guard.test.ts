import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hooksGone } from '#test/kernel/tcx.js';
import { createRig, type NodeRig } from './rig.js';

const NO_ANSWER = 'refused ETIMEDOUT';
let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('guard', [80]);
  await rig.put({ default_policy: 'allow' });
});
afterAll(() => rig?.remove());

async function pinnedLinks(): Promise<string[]> {
  const entries = await readdir(rig.topology.pinPath, { recursive: true });
  return entries.filter((entry) => /^links-\d+\//.test(entry)).map((entry) => join(rig.topology.pinPath, entry));
}

describe('datapath and guard (nftables rules of Weir)', () => {
  test('the datapath still enforces the last policy after the node process is killed', async () => {
    await rig.put({
      default_policy: 'deny',
      source_groups: [
        {
          id: 'all',
          mode: 'enforce',
          sources: { cidrs: ['0.0.0.0/0'] },
          rules: [{ id: 'udp', action: 'allow', match: { proto: 'udp' } }],
        },
      ],
    });
    await rig.node.end('SIGKILL');
    expect(await Promise.all([rig.udp(80), rig.tcp(80)])).toEqual(['pong 1', NO_ANSWER]);
  });

  test('the guard (nftables rules of Weir) drops forwarded packets after the pinned BPF links of the datapath were removed', async () => {
    for (const link of await pinnedLinks()) await rm(link);
    await hooksGone(rig.topology.node.name);
    expect(await Promise.all([rig.udp(80), rig.tcp(80)])).toEqual(['silent 1', NO_ANSWER]);
  });

  test('a restarted node attaches the datapath again and enforces the stored policy', async () => {
    await rig.node.restart();
    await rig.node.ready();
    expect(await Promise.all([rig.udp(80), rig.tcp(80)])).toEqual(['pong 1', NO_ANSWER]);
  });

  test('a node that gets SIGTERM exits with 0, and the datapath still enforces the policy', async () => {
    expect(await rig.node.end('SIGTERM')).toBe(0);
    expect(await Promise.all([rig.udp(80), rig.tcp(80)])).toEqual(['pong 1', NO_ANSWER]);
  });
});
