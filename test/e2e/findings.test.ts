import { afterAll, beforeAll, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { addIpv6, IPV6 } from '#test/kernel/ipv6.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('findings', [80, 81], { dataplane: { pickup: '0s' } });
  await rig.put(
    policyOf([
      { match: { proto: 'tcp', dst_ports: [80] } },
      { action: 'deny', mode: 'audit', match: { proto: 'udp', dst_ports: [81] } },
      { action: 'deny', match: { proto: 'icmp' } },
    ]),
  );
});
afterAll(() => rig?.remove());

type Finding = Readonly<Record<string, string | number | null>> & { readonly count: number };
const find = async (query: string): Promise<readonly Finding[]> => {
  const reply = await rig.node.request('GET', `/api/v1/audit/findings${query}`);
  if (reply.status !== 200) throw new Error(`${reply.status} ${reply.text}`);
  return (reply.body as { items: Finding[] }).items;
};
const soon = { timeout: 10_000, interval: 100 };

test('a denied packet becomes a finding with the deciding rule, in enforce and in audit mode; equal denials share one finding with a count', async () => {
  await rig.udp(81);
  await rig.ping();
  await rig.ping();
  await rig.tcp(82);
  const shown = async () =>
    (await find(`?src=${ADDRESSES.client}`)).map(
      ({ finding_type: type, rule, effective_action: action, icmp_type: icmp, dst_port: port }) =>
        `${type} ${rule} ${action} ${icmp ?? port}`,
    );
  await expect
    .poll(async () => (await shown()).toSorted(), soon)
    .toEqual(['icmp_deny r2 deny 8', 'l4_deny null deny 82', 'l4_deny r1 allow 81'].toSorted());
  expect((await find('?rule=r2')).map(({ count }) => count)).toEqual([2]);
});

test('a forwarded IPv6 packet is dropped, counted and reported as a finding with its addresses; an IPv6 ping to the node is answered', async () => {
  await addIpv6(rig.topology);
  const ping = async (to: string) => (await rig.topology.client.run('ping', '-6', '-c', '1', '-W', '1', to)).code;
  expect([await ping(IPV6.nodeLan), await ping(IPV6.server)]).toEqual([0, 1]);
  const ends = async () =>
    (await find('?limit=1000'))
      .filter(({ drop_reason: reason }) => reason === 'ipv6')
      .map(({ finding_type: type, src_ip: src, dst_ip: dst, proto }) => ({ type, src, dst, proto }));
  const echo = { type: 'icmp_deny', src: IPV6.client, dst: IPV6.server, proto: 58 };
  await expect.poll(ends, soon).toEqual([echo]);
  expect((await rig.stats()).drops).toMatchObject({ ipv6: 1, non_ipv4: 0 });
});

test('findings and their counts survive a restart of the node process', async () => {
  await rig.node.end('SIGTERM');
  await rig.node.restart();
  await rig.node.ready();
  expect((await find('?rule=r2')).map(({ count }) => count)).toEqual([2]);
  await rig.ping();
  await expect.poll(async () => (await find('?rule=r2')).map(({ count }) => count), soon).toEqual([3]);
});

test('an API request with an invalid token and a policy write each cause a finding, without the text of the token', async () => {
  await rig.node.request('GET', '/api/v1/policy', undefined, { authorization: 'Bearer nonsense' });
  await expect.poll(async () => (await find('?finding_type=auth_denied')).length, soon).toBe(1);
  const [change] = await find('?finding_type=config_change');
  expect(change).toMatchObject({ actor: 'admin', operation: 'putActivePolicy', target: '/api/v1/policy' });
  const { text } = await rig.node.request('GET', '/api/v1/audit/findings?format=jsonl');
  expect(text.trim().split('\n').length).toBe((await find('?limit=1000')).length);
  expect(text).not.toContain('nonsense');
});
