import type { ChildProcess } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { firstLine } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { DNS_SECTION, type Dug, data, dig, startUpstream } from './names.js';
import { readWiretap } from './reader.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

const NO_ANSWER = 'refused ETIMEDOUT';
const soon = { timeout: 10_000, interval: 100 };
let rig: NodeRig;
let upstream: ChildProcess;

const ask = (...words: string[]): Promise<Dug> => dig(rig, ADDRESSES.nodeLan, ...words);

/**
 * Asks POST /api/v1/policy/explain about a TCP connection from the client to `port` of the server. Returns
 * the effective action and the list `unknown` of the reply.
 */
async function explained(port: number) {
  const question = { src: ADDRESSES.client, dst: ADDRESSES.server, proto: 'tcp', src_port: 40_000, dst_port: port };
  const { body } = await rig.node.request('POST', '/api/v1/policy/explain', question);
  const { effective_action: action, unknown } = body as { effective_action: string; unknown: readonly string[] };
  return [action, unknown];
}

beforeAll(async () => {
  rig = await createRig('dns', [443, 444], {
    sections: {
      dns: { ...DNS_SECTION, min_grant: '2s' },
    },
  });
  upstream = await startUpstream(rig);
  await rig.put(policyOf([{ match: { dns_hostname: '*.example.com', proto: 'tcp', dst_ports: [443] } }]));
  await rig.node.ready();
});
afterAll(() => rig?.remove());

test('`weir policy explain` predicts the answer to names that the DNS proxy answers itself, before it applies the policy', async () => {
  const rows = [
    ['use-application-dns.net', 'NXDOMAIN', 'dns.canary_names'],
    ['_dns.resolver.arpa', 'NOERROR', 'resolver.arpa'],
  ] as const;
  for (const [name, status, setting] of rows) {
    expect(await ask(name)).toMatchObject({ status, answers: [] });
    const question = { policy: { default_policy: 'allow' }, src: ADDRESSES.client, query: name };
    const { body } = await rig.node.request('POST', '/api/v1/policy/explain', question);
    expect(body).toMatchObject({ effective_action: 'deny', reason: expect.stringContaining(setting), walk: [] });
  }
});

describe('an allowed name', () => {
  test('an allowed name is reachable as soon as a client has queried it, on the port of the rule and not on another port', async () => {
    expect(await explained(443)).toEqual(['deny', []]);
    expect(await rig.tcp(443)).toBe(NO_ANSWER);
    expect(data(await ask('api.example.com'))).toEqual([`api.example.com. A ${ADDRESSES.server}`]);
    expect(await rig.tcp(443)).toBe('open');
    expect(await rig.tcp(444)).toBe(NO_ANSWER);
    expect(await explained(443)).toEqual(['allow', []]);
    expect(await explained(444)).toEqual(['deny', []]);
  });

  test('a DNS query for an allowed name is answered with its CNAME, in the letter case of the query', async () => {
    const [alias, address] = data(await ask('wWw.eXample.com'));
    expect(alias).toMatch(/^wWw\.eXample\.com\. CNAME api\.example\.com\.$/i);
    expect(alias?.split(' ')[0]).toBe('wWw.eXample.com.');
    expect(address?.toLowerCase()).toBe(`api.example.com. a ${ADDRESSES.server}`);
  });

  test('a DNS query over TCP for an allowed name is answered', async () => {
    expect(data(await ask('+tcp', 'api.example.com'))).toEqual([`api.example.com. A ${ADDRESSES.server}`]);
  });

  test('an allowed name is answered for type TXT, and for type AAAA without records, because the datapath forwards no IPv6', async () => {
    expect(data(await ask('text.example.com', 'TXT'))).toEqual(['text.example.com. TXT "hello"']);
    const six = await ask('six.example.com', 'AAAA');
    expect([six.status, six.answers]).toEqual(['NOERROR', []]);
  });

  test('an allowed name that does not exist is answered with the NXDOMAIN of the upstream resolver', async () => {
    expect((await ask('nothing.example.com')).status).toBe('NXDOMAIN');
  });

  test('an allowed name that was queried is listed by GET /api/v1/dns-cache with its granted addresses', async () => {
    const reply = await rig.node.request('GET', '/api/v1/dns-cache');
    const { items } = reply.body as { items: { hostname: string; ips: string[]; patterns: string[] }[] };
    const named = items.filter(({ hostname }) => hostname === 'api.example.com');
    expect(named.map(({ ips, patterns }) => ({ ips, patterns }))).toEqual([
      { ips: [ADDRESSES.server], patterns: ['*.example.com'] },
    ]);
  });
});

describe('observation of DNS queries', () => {
  test('a wiretap reader gets DNS queries and the DNS names of flow destinations, and a denied DNS query causes a finding', async () => {
    const { messages, socket } = await readWiretap(rig.node);
    // The DNS proxy may answer the first query before it knows that a wiretap reader exists. So the test
    // repeats the query.
    await expect
      .poll(async () => {
        await ask('api.example.com');
        return messages.find(({ type, verdict }) => type === 'dns' && verdict === 'allow');
      }, soon)
      .toMatchObject({ hostname: 'api.example.com', query_type: 'A', source_group: 'clients', rule: 'r0' });
    expect(await rig.tcp(443)).toBe('open');
    await expect
      .poll(() => messages.find(({ type, dst_port: port }) => type === 'flow' && port === 443), soon)
      .toMatchObject({
        dst: ADDRESSES.server,
        dst_names: expect.arrayContaining(['api.example.com']) as string[],
        rule: 'r0',
      });
    await ask('denied.example.net');
    const finding = async () => {
      const { body } = await rig.node.request('GET', '/api/v1/audit/findings?finding_type=dns_deny');
      return (body as { items: Record<string, unknown>[] }).items[0];
    };
    await expect
      .poll(finding, soon)
      .toMatchObject({ hostname: 'denied.example.net', effective_action: 'deny', decided_by: 'policy_default' });
    socket.close();
  });
});

describe('a denied name', () => {
  test('a DNS query for a denied name is answered with NXDOMAIN and the extended DNS error 18 (Prohibited)', async () => {
    const denied = await ask('other.example.org');
    expect([denied.status, denied.answers]).toEqual(['NXDOMAIN', []]);
    expect(denied.text).toContain('EDE: 18 (Prohibited)');
  });

  test('a DNS query for a denied name is counted as denied in GET /api/v1/stats', async () => {
    const reply = await rig.node.request('GET', '/api/v1/stats');
    const { dns } = reply.body as { dns: { queries_deny: number; nxdomain_policy: number } };
    expect(dns.queries_deny).toBeGreaterThan(0);
    expect(dns.nxdomain_policy).toBe(dns.queries_deny);
  });

  test('GET /api/v1/stats/series counts denied DNS queries per time step; after a restart, its steps are null until the first complete step', async () => {
    const series = async (steps: number) => {
      const { body } = await rig.node.request('GET', `/api/v1/stats/series?steps=${steps}`);
      const { to, dns, dataplane } = body as {
        to: string;
        dns: { queries_deny: (number | null)[] };
        dataplane: { active_flows: (number | null)[]; packets: { allow: (number | null)[] } };
      };
      return { to: Date.parse(to), denied: dns.queries_deny, dataplane };
    };
    const within = { timeout: 25_000, interval: 200 };
    await expect.poll(async () => (await series(1)).denied, within).toEqual([expect.any(Number)]);
    const { to: from } = await series(1);
    for (let query = 0; query < 3; query++) await ask('other.example.org');
    const since = async () => {
      const { denied, to } = await series(30);
      return denied.slice(30 - (to - from) / 10_000).reduce<number>((sum, count) => sum + (count ?? 0), 0);
    };
    await expect.poll(since, within).toBe(3);
    const { dataplane } = await series(1);
    expect([dataplane.active_flows, dataplane.packets.allow]).toEqual([[expect.any(Number)], [expect.any(Number)]]);
    await rig.node.end('SIGKILL');
    await rig.node.restart();
    await rig.node.ready();
    expect((await series(360)).denied).toEqual(Array<null>(360).fill(null));
  });
});

test('a DNS query counts as a hit of the rule that decided the query, and the hits survive kill -9 of the node', async () => {
  const hits = async (query = '') => {
    const { body } = await rig.node.request('GET', `/api/v1/policy/hits${query}`);
    const { items } = body as { items: { rule: string | null; packets: number }[] };
    return items.flatMap(({ rule, packets }) => (rule === null ? [] : [`${rule} ${packets}`]));
  };
  const policy = policyOf([
    { id: 'other-name', match: { dns_hostname: 'other.example.com' } },
    { id: 'denies-name', action: 'deny', match: { dns_hostname: 'bad.example.com' } },
    { id: 'allows-name', match: { dns_hostname: '*.example.com', proto: 'tcp', dst_ports: [443] } },
  ]);
  await rig.put(policy);
  expect((await ask('bad.example.com')).status).toBe('NXDOMAIN');
  for (const words of [['api.example.com'], ['+tcp', 'api.example.com']]) await ask(...words);
  const decided = ['other-name 0', 'denies-name 1', 'allows-name 2'];
  await expect.poll(() => hits(), soon).toEqual(decided);
  expect(await hits('?unused=true')).toEqual(['other-name 0']);
  await rig.node.end('SIGKILL');
  await rig.node.restart();
  await rig.node.ready();
  expect(await hits()).toEqual(decided);
  await rig.put(policyOf([{ match: { dns_hostname: '*.example.com', proto: 'tcp', dst_ports: [443] } }]));
});

test('a DNS query for an allowed public name is answered without the private addresses of the name', async () => {
  await rig.put(policyOf([{ match: { dns_hostname: '*', proto: 'tcp', dst_ports: [443] } }]));
  const inside = await ask('inside.example.org');
  expect([inside.status, inside.answers]).toEqual(['NOERROR', []]);
});

describe('curl with the node as resolver', () => {
  const HTTP = 8_080;
  /** Runs curl on the client with the node as resolver. Returns the exit code and the output. */
  const curl = async (host: string): Promise<readonly [number | null, string]> => {
    const resolv = join(rig.node.folder, 'resolv.conf');
    await writeFile(resolv, `nameserver ${ADDRESSES.nodeLan}\n`);
    const fetched = `mount --bind ${resolv} /etc/resolv.conf && exec curl -sS --max-time 2 http://${host}:${HTTP}/`;
    const { code, stdout } = await rig.topology.client.run('unshare', '--mount', 'sh', '-c', fetched);
    return [code, stdout];
  };

  beforeAll(async () => {
    const serve = `require('http').createServer((asked, said) => said.end(asked.headers.host)).listen(${HTTP}, () => console.log())`;
    await firstLine(rig.topology.server.start(process.execPath, ['-e', serve]));
    await rig.put(policyOf([{ match: { dns_hostname: '*.example.com', proto: 'tcp', dst_ports: [HTTP] } }]));
  });

  test('curl that resolves by the node reaches an allowed name and an alias of the name at the first attempt', async () => {
    expect(await curl('www.example.com')).toEqual([0, `www.example.com:${HTTP}`]);
    expect(await curl('api.example.com')).toEqual([0, `api.example.com:${HTTP}`]);
  });

  test('curl that resolves by the node gets no address for a denied name, although an allowed name has the same address', async () => {
    expect(await curl('other.example.org')).toEqual([6, '']);
  });

  test('curl cannot connect to an address before a client has queried an allowed name with that address', async () => {
    await rig.put(policyOf([{ match: { dns_hostname: 'www.example.com', proto: 'tcp', dst_ports: [HTTP] } }]));
    expect(await curl(ADDRESSES.server)).toEqual([28, '']);
    expect(await curl('www.example.com')).toEqual([0, `www.example.com:${HTTP}`]);
  });
});

describe('a DNS query with the forged source address of a client', () => {
  const ATTACK = `
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_IP, 19, 1)  # IP_TRANSPARENT: any source
s.bind((sys.argv[1], 40053))
name = b''.join(bytes([len(l)]) + l for l in b'api.example.com'.split(b'.')) + bytes(1)
for number in range(20):
    s.sendto(bytes([0, number, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]) + name + bytes([0, 1, 0, 1]), ('${ADDRESSES.nodeLan}', 53))`;
  const asked = async (): Promise<number> => {
    const { body } = await rig.node.request('GET', '/api/v1/stats');
    const { queries_allow: allowed, queries_deny: denied } = (body as { dns: Record<string, number> }).dns;
    return Number(allowed) + Number(denied);
  };
  beforeAll(async () => {
    const { node, server } = rig.topology;
    const onNode = `ip link add ext0 type veth peer name ext1 netns ${server.name}
      ip addr add 10.79.1.1/24 dev ext0; ip link set ext0 up
      for name in all default lan0 wan0 ext0; do echo 0 > /proc/sys/net/ipv4/conf/$name/rp_filter; done`;
    await node.must('sh', '-ec', onNode);
    await server.must('sh', '-ec', 'ip addr add 10.79.1.2/24 dev ext1; ip link set ext1 up');
    // This policy has a new pattern, for which no address is granted yet.
    await rig.put(policyOf([{ match: { dns_hostname: 'api.example.com', proto: 'tcp', dst_ports: [443] } }]));
  });
  const towards = (device: string, by: string): Promise<string> =>
    rig.topology.server.must('ip', 'route', 'replace', `${ADDRESSES.nodeLan}/32`, 'via', by, 'dev', device);
  const attack = async (source: string): Promise<number> => {
    const before = await asked();
    await rig.topology.server.must('/usr/bin/python3', '-c', ATTACK, source);
    // The DNS proxy reads datagrams in order. So it has handled all forged queries when it answers this
    // query.
    await ask('other.example.org');
    return (await asked()) - before - 1;
  };

  test('a DNS query with a forged source on an unpoliced interface is ignored, while a query with its true source is counted', async () => {
    await towards('ext1', '10.79.1.1');
    expect(await attack(ADDRESSES.client)).toBe(0);
    expect(await attack('10.79.1.2')).toBe(20);
  });

  test.each([1, 0])(
    'a DNS query with the forged source address of a client on another policed interface with forwarding=%i is ignored',
    async (forwarding) => {
      await towards('eth0', ADDRESSES.nodeWan);
      await rig.topology.node.must('sh', '-c', `echo ${forwarding} > /proc/sys/net/ipv4/conf/wan0/forwarding`);
      try {
        expect(await attack(ADDRESSES.client)).toBe(0);
      } finally {
        await rig.topology.node.must('sh', '-c', 'echo 1 > /proc/sys/net/ipv4/conf/wan0/forwarding');
      }
    },
  );

  test('a DNS query with the forged source address of a client does not permit the client to connect to the queried name', async () => {
    expect(await rig.tcp(443)).toBe(NO_ANSWER);
    await ask('api.example.com');
    expect(await rig.tcp(443)).toBe('open');
  });
});

test('after a policy change and a new DNS query, a name is reachable only on the port of the new rule', async () => {
  await rig.put(policyOf([{ match: { dns_hostname: 'api.example.com', proto: 'tcp', dst_ports: [444] } }]));
  expect(await rig.tcp(443)).toBe(NO_ANSWER);
  await ask('api.example.com');
  expect(await Promise.all([rig.tcp(444), rig.tcp(443)])).toEqual(['open', NO_ANSWER]);
});

test('while the node is dead, a client can still connect to a name that it has queried; a restarted node answers queries again', async () => {
  await ask('api.example.com');
  await rig.node.end('SIGKILL');
  expect(await rig.tcp(444)).toBe('open');
  expect((await ask('api.example.com', '+time=1')).status).toBe('none');
  await rig.node.restart();
  await rig.node.ready();
  expect(data(await ask('api.example.com'))).toEqual([`api.example.com. A ${ADDRESSES.server}`]);
  expect(await rig.tcp(444)).toBe('open');
});

test('while no upstream answers, DNS queries for allowed names that are not cached get SERVFAIL, and GET /ready names the upstream', async () => {
  upstream.kill('SIGKILL');
  const failed = await ask('cold.api.example.com', '+time=4');
  await rig.put(policyOf([{ match: { dns_hostname: '*.example.com', proto: 'tcp' } }]));
  const after = await Promise.all(['a', 'b', 'c', 'd'].map((label) => ask(`${label}.example.com`, '+time=4')));
  expect([failed.status, ...after.map(({ status }) => status)]).toEqual(['NXDOMAIN', ...Array(4).fill('SERVFAIL')]);
  const reply = await rig.node.request('GET', '/ready');
  const { checks } = reply.body as { checks: { name: string; state: string; detail: string }[] };
  const { state, detail } = checks.find(({ name }) => name === 'dns_allowlist') ?? { state: '', detail: '' };
  expect([state, detail]).toEqual([
    'without_upstreams',
    `no upstream responds; the proxy serves answers from its cache: ${ADDRESSES.server}:53`,
  ]);
});
