import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { firstLine } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { addIpv6, IPV6 } from '#test/kernel/ipv6.js';
import { DNS_SECTION, data, dig, startUpstream } from './names.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

const HTTP = 8_080;
const OTHER = 8_081;
const DUAL = 'dual.example.com';
/** A name with an IPv6 address at which no host answers. */
const SILENT = 'silent.example.com';
const NO_CONNECTION = [28, ''];
const soon = { timeout: 15_000, interval: 100 };
const SOURCES = { sources: { ips: [ADDRESSES.client, IPV6.client] } };

let rig: NodeRig;

/**
 * Runs curl on the client with the node as resolver, and with `words` as further arguments. Returns the exit
 * code and the address of the server.
 */
const curl = (url: string, ...words: string[]): Promise<unknown> => curlBy(ADDRESSES.nodeLan, url, ...words);

async function curlBy(resolver: string, url: string, ...words: string[]): Promise<unknown> {
  const resolv = join(rig.node.folder, 'resolv.conf');
  await writeFile(resolv, `nameserver ${resolver}\n`);
  const options = `-sS -o /dev/null --max-time 2 -w '%{remote_ip}' ${words.join(' ')}`;
  const fetch = `mount --bind ${resolv} /etc/resolv.conf && exec curl ${options} '${url}'`;
  const { code, stdout } = await rig.topology.client.run('unshare', '--mount', 'sh', '-c', fetch);
  return [code, stdout];
}
const viaName = (port = HTTP): string => `http://${DUAL}:${port}/`;
const viaIpv6 = (port = HTTP): string => `http://[${IPV6.server}]:${port}/`;
const rule = (more: object = {}): { readonly match: Readonly<Record<string, unknown>> } => ({
  match: { dns_hostname: '*.example.com', proto: 'tcp', dst_ports: [HTTP], ...more },
});

beforeAll(async () => {
  rig = await createRig('v6names', [], { dataplane: { ipv6: 'enforce' }, sections: { dns: DNS_SECTION } });
  await addIpv6(rig.topology);
  const silent = `${SILENT},${ADDRESSES.server},${IPV6.server}99`;
  await startUpstream(rig, [`${DUAL},${ADDRESSES.server},${IPV6.server}`, silent, 'inner.example.org,fd00::1']);
  const serve = `for (const port of [${HTTP}, ${OTHER}]) require('http').createServer((_, reply) => reply.end()).listen(port, '::', () => console.log())`;
  await firstLine(rig.topology.server.start(process.execPath, ['-e', serve]));
  await rig.put(policyOf([rule()], SOURCES));
  await rig.node.ready();
});
afterAll(() => rig?.remove());

test('an IPv6 address is denied before a client has looked up an allowed name with this address', async () => {
  expect(await curl(viaIpv6())).toEqual(NO_CONNECTION);
});

test('a client reaches a name with addresses of both families by IPv6 and by IPv4 at the first attempt, on the port of the rule alone', async () => {
  expect(await curl(viaName(), '-6')).toEqual([0, IPV6.server]);
  expect(await curl(viaName(), '-4')).toEqual([0, ADDRESSES.server]);
  expect(await curl(viaName())).toEqual([0, IPV6.server]);
  expect(await curl(viaIpv6())).toEqual([0, IPV6.server]);
  expect(await curl(viaName(OTHER), '-6')).toEqual(NO_CONNECTION);
});

test('the cache of names, the statistics, the list of findings and explanations have the IPv6 address of a name', async () => {
  const get = async (path: string) => (await rig.node.request('GET', path)).body as Record<string, never>;
  const { items } = (await get('/api/v1/dns-cache')) as unknown as { items: { hostname: string }[] };
  expect(items.find(({ hostname }) => hostname === DUAL)).toMatchObject({
    ips: [ADDRESSES.server, IPV6.server],
    patterns: ['*.example.com'],
  });
  const { dataplane } = (await get('/api/v1/stats')) as unknown as { dataplane: { maps: Record<string, object> } };
  expect([dataplane.maps.grants, dataplane.maps.grants_ipv6]).toMatchObject([{ entries: 1 }, { entries: 1 }]);
  const question = { src: IPV6.client, dst: IPV6.server, proto: 'tcp' };
  const explain = async (port: number) =>
    (await rig.node.request('POST', '/api/v1/policy/explain', { ...question, dst_port: port })).body;
  expect(await explain(HTTP)).toMatchObject({ decision: 'allow', rule: 'r0' });
  expect(await explain(OTHER)).toMatchObject({ decision: 'deny', rule: null });
});

test('an AAAA record with a special-purpose address is removed from the answer for a public name, and causes a finding', async () => {
  await rig.put(policyOf([rule(), { match: { dns_hostname: '*.example.org', proto: 'tcp' } }], SOURCES));
  const { status, answers, text } = await dig(rig, ADDRESSES.nodeLan, 'inner.example.org', 'AAAA');
  expect([status, answers]).toEqual(['NOERROR', []]);
  expect(text).toContain('fd00::1 is unique_local');
  const findings = async (): Promise<unknown> =>
    (await rig.node.request('GET', '/api/v1/audit/findings?finding_type=dns_deny')).body;
  await expect.poll(findings, soon).toMatchObject({ items: [{ dst_ip: 'fd00::1', hostname: 'inner.example.org' }] });
  await rig.put(policyOf([rule()], SOURCES));
});

test('a rule with a name and IPv6 destinations admits the lookup, and matches the IPv6 address alone', async () => {
  await rig.put(policyOf([rule({ dst_cidrs: ['fd77:2::/64'] })], SOURCES));
  expect(await curl(viaName(), '-6')).toEqual([0, IPV6.server]);
  expect(await curl(viaName(), '-4')).toEqual(NO_CONNECTION);
  await rig.put(policyOf([rule()], SOURCES));
});

test('the DNS proxy asks an upstream by IPv6 after a reload of the configuration', async () => {
  const { node, topology } = rig;
  const words = '--no-daemon --conf-file=/dev/null --no-resolv --no-hosts --bind-interfaces --user=root --pid-file=';
  const only = ['--listen-address', IPV6.server, `--host-record=only6.example.com,${IPV6.server}`];
  topology.server.start('dnsmasq', [...words.split(' '), '--port=5353', ...only]);
  const file = join(node.folder, 'weir.yaml');
  const { dns, ...others } = JSON.parse(await readFile(file, 'utf8')) as { dns: object };
  await writeFile(file, JSON.stringify({ ...others, dns: { ...dns, upstreams: [`[${IPV6.server}]:5353`] } }));
  expect((await node.request('POST', '/api/v1/config/reload')).body).toMatchObject({ applied: ['/dns/upstreams'] });
  const look = async () => data(await dig(rig, ADDRESSES.nodeLan, 'only6.example.com', 'AAAA'));
  await expect.poll(look, soon).toEqual([`only6.example.com. AAAA ${IPV6.server}`]);
  await writeFile(file, JSON.stringify({ ...others, dns }));
  expect((await node.request('POST', '/api/v1/config/reload')).status).toBe(200);
});

describe('a DNS proxy at an IPv6 address', () => {
  const viaIpv6Alone = { sources: { ips: [IPV6.client] } };
  const DUAL_RECORDS = [`${DUAL}. A ${ADDRESSES.server}`, `${DUAL}. AAAA ${IPV6.server}`];
  beforeAll(async () => {
    const { node } = rig;
    const file = join(node.folder, 'weir.yaml');
    const { dns, ...others } = JSON.parse(await readFile(file, 'utf8')) as { dns: { listen: string[] } };
    const listen = [...dns.listen, `[${IPV6.nodeLan}]:53`];
    await writeFile(file, JSON.stringify({ ...others, dns: { ...dns, listen } }));
    expect((await node.request('POST', '/api/v1/config/reload')).body).toMatchObject({ applied: ['/dns/listen'] });
    await node.ready();
  });
  afterAll(() => rig.put(policyOf([rule()], SOURCES)));

  test.each([[[]], [['+tcp']]])(
    'it answers `dig -6` with %j by the group of the IPv6 source, and denies the IPv4 source that is in no group',
    async (words) => {
      await rig.put(policyOf([rule()], viaIpv6Alone));
      const ask = (server: string, type: string) => dig(rig, server, ...words, DUAL, type);
      const answers = await Promise.all(['A', 'AAAA'].map((type) => ask(IPV6.nodeLan, type)));
      expect(answers.flatMap(data)).toEqual(DUAL_RECORDS);
      expect(await ask(ADDRESSES.nodeLan, 'A')).toMatchObject({ status: 'NXDOMAIN', answers: [] });
      await rig.put(policyOf([rule()], { sources: { ips: [ADDRESSES.client] } }));
      expect(await ask(IPV6.nodeLan, 'A')).toMatchObject({ status: 'NXDOMAIN', answers: [] });
      expect(data(await ask(ADDRESSES.nodeLan, 'A'))).toEqual(DUAL_RECORDS.slice(0, 1));
    },
  );

  test('a client that asks it alone reaches a name by the granted IPv6 address, and a name with a silent IPv6 address by IPv4', async () => {
    await rig.put(policyOf([rule()], viaIpv6Alone));
    expect(await curlBy(IPV6.nodeLan, viaName())).toEqual([0, IPV6.server]);
    expect(await curlBy(IPV6.nodeLan, viaName(OTHER))).toEqual(NO_CONNECTION);
    expect(await curlBy(IPV6.nodeLan, `http://${SILENT}:${HTTP}/`)).toEqual(NO_CONNECTION);
    await rig.put(policyOf([rule()], SOURCES));
    expect(await curlBy(IPV6.nodeLan, `http://${SILENT}:${HTTP}/`)).toEqual([0, ADDRESSES.server]);
  });

  test('a denied lookup of an IPv6 client is a finding with its address, and explain gives the decision for this source', async () => {
    await rig.put(policyOf([rule()], viaIpv6Alone));
    expect(await dig(rig, IPV6.nodeLan, 'other.example.org')).toMatchObject({ status: 'NXDOMAIN' });
    const findings = async (): Promise<unknown> =>
      (await rig.node.request('GET', `/api/v1/audit/findings?finding_type=dns_deny&src=${IPV6.client}`)).body;
    const denied = expect.objectContaining({
      src_ip: IPV6.client,
      hostname: 'other.example.org',
      source_groups: ['clients'],
    });
    await expect.poll(findings, soon).toMatchObject({ items: expect.arrayContaining([denied]) });
    const explain = async (src: string) =>
      (await rig.node.request('POST', '/api/v1/policy/explain', { src, query: DUAL })).body;
    expect(await explain(IPV6.client)).toMatchObject({ decision: 'allow', rule: 'r0' });
    expect(await explain(ADDRESSES.client)).toMatchObject({ decision: 'deny', rule: null });
  });
});

test('a client reaches the IPv6 address of a name while the node is dead, and after its restart', async () => {
  expect(data(await dig(rig, ADDRESSES.nodeLan, DUAL, 'AAAA'))).toEqual([`${DUAL}. AAAA ${IPV6.server}`]);
  await rig.node.end('SIGKILL');
  expect(await curl(viaIpv6())).toEqual([0, IPV6.server]);
  await rig.node.restart();
  await rig.node.ready();
  expect(await curl(viaIpv6())).toEqual([0, IPV6.server]);
  expect(data(await dig(rig, IPV6.nodeLan, DUAL, 'AAAA'))).toEqual([`${DUAL}. AAAA ${IPV6.server}`]);
});
