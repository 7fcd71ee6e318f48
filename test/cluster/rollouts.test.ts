import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { codeOf, textAt } from './failure-rig.js';
import { RolloutRig } from './rollout-rig.js';

let rig: RolloutRig;
beforeAll(async () => {
  rig = await RolloutRig.start('rollout');
});
afterAll(() => rig?.remove());

const HOLD_MS = 5_000;

describe('a staged roll-out', () => {
  test('a staged roll-out reaches one node first and all nodes after its hold time, and other writes are refused meanwhile', async () => {
    await rig.put('n1', '10.1.0.1', '?wait=all');
    const before = await rig.agree(1, 5_000);
    const began = Date.now();
    const reply = await rig.put('n2', '10.1.0.2', `?rollout_share=10&rollout_hold=${HOLD_MS / 1_000}`);
    expect([reply.status, reply.headers.get('weir-nodes')]).toEqual([200, '3/3']);
    const after = before + 1;
    expect(await rig.generations()).toEqual({ n1: before, n2: after, n3: before });
    const texts = await Promise.all(rig.nodes.map(textAt));
    expect([new Set(texts).size, texts[0]?.includes('10.1.0.2')]).toEqual([1, true]);

    expect(codeOf(await rig.put('n1', '10.1.0.3'))).toEqual([409, 'rollout_in_progress']);
    expect(codeOf(await rig.put('n3', '10.1.0.3', '?dry_run'))).toEqual([409, 'rollout_in_progress']);
    for (const { id } of rig.nodes) {
      const { pending } = await rig.pending(id);
      expect([pending?.kind, pending?.generation, pending?.nodes?.map((node) => node.id)]).toEqual([
        'rollout',
        after,
        ['n2'],
      ]);
    }
    expect(await rig.agree(after + 1, 15_000)).toBe(after + 2);
    expect(Date.now() - began).toBeGreaterThan(HOLD_MS);
    expect(await rig.pending('n3')).toEqual({ pending: null, reverted: null });
    expect((await rig.put('n3', '10.1.0.3')).status).toBe(200);
  });

  test('a staged roll-out is reverted on all nodes if the first node denies much more than usual for 10 s', async () => {
    await rig.put('n1', '10.2.0.1', '?wait=all');
    const before = await rig.agree(1, 5_000);
    const began = Date.now();
    expect((await rig.put('n2', '10.2.0.2', '?rollout_share=10&rollout_hold=60')).status).toBe(200);
    const flood = rig.flood('n2');
    onTestFinished(() => void flood.kill());
    expect(await rig.agree(before + 2, 25_000)).toBe(before + 2);
    const took = Date.now() - began;
    for (const node of rig.nodes) expect(await textAt(node)).toContain('10.2.0.1');
    const { reverted } = await rig.pending('n3');
    expect(reverted).toMatchObject({
      generation: before + 1,
      reason: expect.stringMatching(/^node n2: it denies more than \d+ packets/),
    });
    expect(took).toBeGreaterThan(10_000);
  });

  test('a staged roll-out ends at once when an operator confirms or reverts the change at another node', async () => {
    await rig.put('n1', '10.3.0.1', '?wait=all');
    const before = await rig.agree(1, 5_000);
    await rig.put('n2', '10.3.0.2', '?rollout_share=50');
    expect(Object.values(await rig.generations()).filter((generation) => generation > before)).toHaveLength(2);
    expect((await rig.end('n1', 'confirm')).status).toBe(200);
    expect(await rig.agree(before + 2, 5_000)).toBe(before + 3);
    await rig.put('n3', '10.3.0.3', '?rollout_share=10');
    expect((await rig.end('n1', 'revert')).status).toBe(200);
    expect(await rig.agree(before + 5, 5_000)).toBe(before + 5);
    expect(await textAt(rig.node('n2'))).toContain('10.3.0.2');
    expect(codeOf(await rig.end('n1', 'revert'))).toEqual([404, 'not_found']);
  });
});

describe('a change that must be confirmed', () => {
  test('a change that must be confirmed is reverted on all nodes after its time limit; after a confirmation it stays in force with a later generation number', async () => {
    await rig.put('n1', '10.4.0.1', '?wait=all');
    const before = await rig.agree(1, 5_000);
    await rig.put('n2', '10.4.0.2', '?confirm_within=5&wait=all');
    expect(await rig.agree(before + 1, 5_000)).toBe(before + 1);
    expect(codeOf(await rig.put('n3', '10.4.0.9', '?rollout_share=10'))).toEqual([409, 'change_pending']);
    expect(await rig.agree(before + 2, 15_000)).toBe(before + 2);
    expect(await textAt(rig.node('n3'))).toContain('10.4.0.1');

    await rig.put('n3', '10.4.0.3', '?confirm_within=60');
    expect((await rig.end('n1', 'confirm')).status).toBe(200);
    expect(await rig.agree(before + 5, 5_000)).toBe(before + 5);
    expect(await textAt(rig.node('n2'))).toContain('10.4.0.3');
  });
});
