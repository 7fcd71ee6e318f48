import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { run } from '#test/cli/cli-run.js';
import { eventually } from '#test/eventually.js';
import { addIpv6, IPV6 } from '#test/kernel/ipv6.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

const soon = { timeout: 15_000, interval: 50 };

let rig: NodeRig | undefined;
afterEach(() => rig?.remove());

const WARNING = 'dataplane.non_ipv4: pass does not pass IPv6';
type Line = { readonly level: number | string; readonly msg: string };

test.each([
  ['non_ipv4: pass and no key ipv6', { non_ipv4: 'pass' }, { pings: false, warnings: 1 }],
  ['ipv6: pass and non_ipv4: drop', { ipv6: 'pass', non_ipv4: 'drop' }, { pings: true, warnings: 0 }],
])(
  'a node forwards IPv6 as the setting dataplane.ipv6 requires, and logs a warning at its start if the configuration file seems to allow IPv6 by another key: %s',
  async (_, dataplane, { pings, warnings }) => {
    rig = await createRig('ipv6set', [], { dataplane });
    await rig.put({ default_policy: 'deny' });
    await rig.node.ready();
    await addIpv6(rig.topology);
    const { code } = await rig.topology.client.run('ping', '-6', '-c', '1', '-W', '1', IPV6.server);
    expect(code === 0).toBe(pings);
    const { drops } = await rig.stats();
    expect([(drops.ipv6 ?? 0) > 0, drops.non_ipv4]).toEqual([!pings, 0]);
    const lines = (await rig.node.log()).split('\n').filter((line) => line.includes(WARNING));
    expect(lines.map((line) => (JSON.parse(line) as Line).level)).toEqual(Array.from({ length: warnings }, () => 40));
  },
);

const BOTH_FAMILIES = policyOf([{ match: {} }, { match: { dst_cidrs: ['2001:db8::/32'] } }], {
  sources: { ips: [ADDRESSES.client, IPV6.client] },
});

async function changeSetting(ipv6: string): Promise<void> {
  const file = join((rig as NodeRig).node.folder, 'weir.yaml');
  const { dataplane, ...others } = JSON.parse(await readFile(file, 'utf8')) as { dataplane: object };
  await writeFile(file, JSON.stringify({ ...others, dataplane: { ...dataplane, ipv6 } }));
}

test('a node stores a policy with IPv6 addresses only with `dataplane.ipv6: enforce`, and a restart without this setting keeps the stored policy and the policy in the kernel', async () => {
  rig = await createRig('ipv6enf', [443], { dataplane: { ipv6: 'drop' } });
  const { node, topology } = rig;
  await rig.put({ default_policy: 'deny' });
  const refused = await node.request('PUT', '/api/v1/policy', BOTH_FAMILIES);
  const problem = { code: 'ipv6_not_enabled', message: expect.stringContaining('dataplane.ipv6: enforce') as string };
  expect([refused.status, refused.body]).toMatchObject([400, { problems: [problem, problem] }]);

  await changeSetting('enforce');
  await node.end('SIGTERM');
  await node.restart();
  await node.ready();
  const stored = await node.request('PUT', '/api/v1/policy', BOTH_FAMILIES);
  expect(stored.status).toBe(200);
  await node.ready();
  await addIpv6(topology);
  expect(await rig.tcp(443)).toBe('open');

  await changeSetting('drop');
  await node.end('SIGTERM');
  await node.restart();
  await node.ready({ except: ['policy_ready', 'policy_active', 'dataplane_running'] });
  const report = (await node.request('GET', '/ready')).body as { checks: { name: string; detail: string }[] };
  const isNamed = expect.stringContaining('dataplane.ipv6: enforce') as string;
  expect(report.checks).toContainEqual(expect.objectContaining({ name: 'policy_ready', detail: isNamed }));
  const logged = (await node.log()).split('\n').filter((line) => line.includes('the stored policy could not be put'));
  expect(logged).toEqual([expect.stringContaining('dataplane.ipv6: enforce')]);
  expect((await node.request('GET', '/api/v1/policy')).body).toMatchObject(BOTH_FAMILIES as object);
  expect(await rig.tcp(443)).toBe('open');
  const { code } = await topology.client.run('ping', '-6', '-c', '1', '-W', '1', IPV6.server);
  expect(code).not.toBe(0);

  await changeSetting('enforce');
  await node.end('SIGTERM');
  await node.restart();
  await node.ready();
  expect(await rig.tcp(443)).toBe('open');
});

test('a reload with `ipv6: enforce` is refused without the flag allow_open if the default action of the policy in force would allow all IPv6 packets', async () => {
  rig = await createRig('ipv6open', [], { dataplane: { ipv6: 'drop' } });
  const { node } = rig;
  await changeSetting('enforce');
  const reload = async (query = '') => {
    const { status, body } = await node.request('POST', `/api/v1/config/reload${query}`);
    const { type, detail, needs_restart } = body as { type?: string; detail?: string; needs_restart?: string[] };
    return [status, type ?? needs_restart, ...(detail === undefined ? [] : [detail])];
  };
  const refused = (why: string) => [
    409,
    'urn:weir:error:would_open',
    `all IPv6 would pass after a restart: dataplane.ipv6 of the file is enforce, and ${why}`,
  ];
  const accepted = [200, ['/dataplane/ipv6']];
  // `policy.fallback` of the rig is deny.
  expect(await reload()).toEqual(accepted);
  await rig.put({ default_policy: 'ALLOW' });
  const allows = refused('default_policy of the policy in force is allow');
  expect([await reload(), await reload('?dry_run=true')]).toEqual([allows, allows]);
  expect(await reload('?allow_open=true')).toEqual(accepted);
  process.kill(node.pid, 'SIGHUP');
  await eventually(
    async () => expect(await node.log()).toContain('configuration not reloaded: all IPv6 would pass'),
    soon,
  );
  await rig.put({ default_policy: 'deny' });
  expect(await reload()).toEqual(accepted);
});

test('on a node with `ipv6: enforce`, flows, findings, wiretap messages and explanations of IPv6 packets contain their addresses and rules', async () => {
  rig = await createRig('ipv6see', [], { dataplane: { ipv6: 'enforce' } });
  const { node, topology } = rig;
  const rules = [{ id: 'ping', match: { proto: 'icmpv6', icmp_types: [128] } }];
  await rig.put(policyOf(rules, { sources: { cidrs: ['fd77:1::/64'] } }));
  await node.ready();
  await addIpv6(topology);
  const ping = await topology.client.run('ping', '-6', '-c', '2', '-i', '0.2', '-W', '1', IPV6.server);
  expect(ping.code).toBe(0);
  await topology.client.run(
    'sh',
    '-c',
    `echo x >/dev/udp/${IPV6.server}/53 || bash -c 'echo x >/dev/udp/${IPV6.server}/53'`,
  );

  const list = async (query: string) => (await node.request('GET', `/api/v1/flows${query}`)).body as object;
  const flow = { src: IPV6.client, dst: IPV6.server, proto: 58, rule: 'ping', state: 'icmp_replied', verdict: 'allow' };
  expect(await list('?src=fd77:1::/64')).toMatchObject({
    matched: 1,
    items: [{ ...flow, packets: { forward: 2, reply: 2 } }],
  });
  expect(await list('?src=fd77:2::/64')).toMatchObject({ matched: 0, items: [] });
  await eventually(async () => {
    const { body } = await node.request('GET', `/api/v1/audit/findings?dst=fd77:2::/64`);
    expect((body as { items: unknown[] }).items).toMatchObject([
      { finding_type: 'l4_deny', src_ip: IPV6.client, dst_ip: IPV6.server, dst_port: 53, drop_reason: 'policy_deny' },
    ]);
  }, soon);

  const explain = async (asked: object) =>
    (await node.request('POST', '/api/v1/policy/explain', { src: IPV6.client, dst: IPV6.server, ...asked })).body;
  const echo = { proto: 'icmpv6', icmp_type: 128 };
  expect(await explain(echo)).toMatchObject({ decision: 'allow', rule: 'ping' });
  expect(await explain({ proto: 'udp', dst_port: 53 })).toMatchObject({ decision: 'deny', rule: null });
  expect(await explain({ ...echo, interface: 'wan0' })).toMatchObject({
    decision: 'deny',
    reason: expect.stringContaining('spoofed_source') as string,
  });
  expect(await explain({ ...echo, dst: '10.0.0.1' })).toMatchObject({
    problems: [{ pointer: '/dst', code: 'invalid_address' }],
  });
  const reply = { src: IPV6.server, dst: IPV6.client, proto: 'icmpv6', icmp_type: 129 };
  expect(await explain(reply)).toMatchObject({ decision: 'deny', reply_to: { src: IPV6.client, icmp_type: 128 } });
});

test('a node with `ipv6: enforce` lists the IPv6 flows that it has seen, also after a restart, and names the groups of an IPv6 source that the default denied', async () => {
  rig = await createRig('ipv6hist', [], { dataplane: { ipv6: 'enforce' } });
  const { node, topology } = rig;
  const { client } = topology;
  const rules = [{ id: 'ping', match: { proto: 'icmpv6', icmp_types: [128] } }];
  await rig.put(policyOf(rules, { sources: { cidrs: ['fd77:1::/64'] } }));
  await node.ready();
  await addIpv6(topology);
  const temporary = 'fd77:1::5a1c:0:0:77';
  await client.must('ip', 'addr', 'add', `${temporary}/64`, 'dev', 'eth0', 'nodad');
  for (const source of [IPV6.client, temporary])
    expect((await client.run('ping', '-6', '-c', '1', '-W', '1', '-I', source, IPV6.server)).code).toBe(0);
  await client.run('bash', '-c', `echo x >/dev/udp/${IPV6.server}/53`);

  type Seen = Readonly<Record<'src_ip' | 'dst_ip' | 'last_verdict', string>> &
    Readonly<Record<'proto' | 'connections' | 'denied', number>> & { readonly dst_port: number | null };
  const seen = async (query: string) => {
    const { items } = (await node.request('GET', `/api/v1/flows/seen${query}`)).body as { items: Seen[] };
    return items
      .map(({ src_ip: from, dst_ip: to, proto, dst_port: port, connections, denied, last_verdict: verdict }) =>
        [from, to, proto, port, connections, denied, verdict].join(' '),
      )
      .sort();
  };
  const pings = [`fd77:1::2 fd77:2::2 58  1 0 allow`, `fd77:1::5a1c:0:0:77 fd77:2::2 58  1 0 allow`];
  const lookup = expect.stringMatching(/^fd77:1::\S+ fd77:2::2 17 53 0 1 deny$/) as string;
  await eventually(async () => {
    const all = await seen('?dst=fd77:2::/64');
    expect([all.length, all]).toEqual([3, expect.arrayContaining([...pings, lookup])]);
  }, soon);
  expect(await seen(`?src=${temporary}&proto=58`)).toEqual([pings[1]]);
  expect(await seen('?src=fd77:2::/64')).toEqual([]);

  const finding = expect.objectContaining({ dst_ip: IPV6.server, dst_port: 53, source_groups: ['clients'] }) as object;
  await eventually(async () => {
    const { body } = await node.request('GET', '/api/v1/audit/findings?dst=fd77:2::/64');
    expect((body as { items: object[] }).items).toEqual([finding]);
  }, soon);

  await node.end('SIGTERM');
  await node.restart();
  await node.ready();
  expect(await seen('?proto=58')).toEqual(pings);
  const { code, out } = await run(['flows', 'seen', '--src', temporary, '--proto', 'icmpv6', '--server', node.url], {
    WEIR_TOKEN: await node.token(),
  });
  expect([code, out]).toEqual([0, expect.stringMatching(/allow +fd77:1::5a1c:0:0:77 +fd77:2::2 +icmpv6\/128 +1 +0 /)]);
});
