import { afterAll, beforeAll, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('groups', [80, 81], { sections: { metrics: { source_groups: 1 } } });
});
afterAll(() => rig?.remove());

/** Returns the packets of `/metrics` by scope, source group and verdict, without those that are 0. */
async function packets(): Promise<Record<string, number>> {
  const { text } = await rig.node.request('GET', '/metrics');
  const found = text.matchAll(
    /^weir_source_group_packets_total\{scope="(\w+)",source_group="(.*)",verdict="(\w+)"\} (\d+)$/gm,
  );
  return Object.fromEntries(
    [...found]
      .map(([, ...labels]) => [labels.slice(0, 3).join(' '), Number(labels[3])])
      .filter(([, count]) => count !== 0),
  );
}

test('a scrape counts the packets of a source group by verdict, and keeps the counts when a rule leaves the policy', async () => {
  const other = { id: 'second', mode: 'enforce', sources: { ips: [ADDRESSES.clientOther] }, default_action: 'deny' };
  const policy = (ports: readonly number[]) => {
    const { source_groups: groups } = policyOf([{ match: { proto: 'udp', dst_ports: ports } }]) as {
      source_groups: object[];
    };
    return { default_policy: 'deny', source_groups: [...groups, other] };
  };
  await rig.put(policy([80]));
  expect(await rig.udp(80)).toBe('pong 1');
  expect(await rig.udp(81)).toBe('silent 1');
  expect(await rig.udp(80, '--source', ADDRESSES.clientOther)).toBe('silent 1');
  const first = await packets();
  expect(first).toEqual({ 'group clients allow': 2, 'other_groups  deny': 1, 'policy_default  deny': 1 });

  await rig.put({
    default_policy: 'deny',
    source_groups: [{ ...(policy([80]).source_groups[0] as object), rules: [] }],
  });
  expect(await rig.udp(80)).toBe('silent 1');
  expect(await packets()).toEqual({ ...first, 'policy_default  deny': 2 });
});
