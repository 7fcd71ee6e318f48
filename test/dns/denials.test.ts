import { decode, type RecordType } from 'dns-packet';
import { describe, expect, test } from 'vitest';
import { lookupsOf } from '#contracts/dns/dns-lookups.js';
import { VERDICT_NUMBER } from '#contracts/policy/verdict-word.js';
import { compile } from '#policy/compile/compile.js';
import { address, group, policy, rule } from '#test/policy/sample.js';
import { edns, exchange, lookUp, query, responseText, UdpClient } from './client.js';
import { alwaysAt, FakeUpstream } from './fake-upstream.js';
import { allowing, pattern, startProxy } from './proxy.js';
import { settled } from './settled.js';

const NAME = 'www.example.com';
const DENIED = 'www.example.net';
const ADDRESS = '203.0.113.1';
const GOOD = ['NOERROR', `${NAME} A ${ADDRESS}`];
const ONLY = allowing(['*.example.com'], ['127.0.0.2'], 7);

async function ask(to: Parameters<typeof exchange>[0], name: string, from: string) {
  return responseText(decode(await exchange(to, query(name), from)));
}

describe('DNS proxy with a denied name', () => {
  test.each([
    ['nxdomain', 'NXDOMAIN', { nxdomainPolicy: 1 }],
    ['refused', 'REFUSED', { nxdomainPolicy: 0 }],
  ] as const)(
    'the DNS proxy answers a query for a denied name with the configured response %s, adds an Extended DNS Error for EDNS clients, and asks no resolver',
    async (deniedResponse, rcode, counts) => {
      const upstream = await FakeUpstream.start(alwaysAt(ADDRESS));
      const rig = await startProxy([upstream], { deniedResponse }, allowing(['*.example.com']));
      const answer = await exchange(rig.at, query(DENIED, 'A', { additionals: [edns()] }));
      expect(responseText(decode(answer))).toEqual([rcode]);
      const text = Buffer.from('denied by policy');
      const error = Buffer.concat([Buffer.from([0, 15, 0, 2 + text.length, 0, 18]), text]);
      expect(answer.subarray(-error.length)).toEqual(error);
      const { queriesAllow, queriesDeny, nxdomainPolicy } = rig.proxy.stats();
      expect({ queriesAllow, queriesDeny, nxdomainPolicy }).toEqual({ queriesAllow: 0, queriesDeny: 1, ...counts });
      expect([upstream.names, rig.grantor.grants]).toEqual([[], []]);
    },
  );

  test('the DNS proxy denies a name even if the cache has an answer for another client, for which the name is allowed', async () => {
    const rig = await startProxy([await FakeUpstream.start(alwaysAt(ADDRESS))], {}, ONLY);
    expect(await ask(rig.at, NAME, '127.0.0.2')).toEqual(GOOD);
    expect(await ask(rig.at, NAME, '127.0.0.3')).toEqual(['NXDOMAIN']);
    expect(rig.grantor.grants).toEqual([`*.example.com ${ADDRESS}`]);
  });

  test('the DNS proxy reports equal denied queries as one item with source, name, type and count', async () => {
    const rig = await startProxy([await FakeUpstream.start(alwaysAt(ADDRESS))], {}, ONLY);
    for (const name of [DENIED, 'WWW.example.NET', DENIED]) await ask(rig.at, name, '127.0.0.2');
    await ask(rig.at, DENIED, '127.0.0.3');
    await lookUp(rig.at, 'odd\tname.example.net', 'TXT');
    const told = rig.proxy.drainSeen().lookups;
    const now = Date.now();
    expect(told.map(({ lastMs, word }) => [Math.abs(now - lastMs) < 5_000, word & 7])).toEqual(
      Array(3).fill([true, VERDICT_NUMBER.deny]),
    );
    const of = (source: string, hostname: string, type: number, count: number) => ({
      source: address(source),
      hostname,
      type,
      count,
      generation: 7,
      word: told[0]?.word,
      lastMs: expect.any(Number),
    });
    expect(told).toEqual([
      of('127.0.0.2', DENIED, 1, 3),
      of('127.0.0.3', DENIED, 1, 1),
      of('127.0.0.1', 'odd\\009name.example.net', 16, 1),
    ]);
    expect(rig.proxy.drainSeen().lookups).toEqual([]);
  });

  test('the DNS proxy reports at most 1,024 different denied queries per call of `drainSeen`, and counts the other denied queries', async () => {
    const rig = await startProxy([await FakeUpstream.start(alwaysAt(ADDRESS))], {}, ONLY);
    const client = await UdpClient.at(rig.at);
    for (let sent = 0; sent < 1_100; sent += 100) {
      for (let number = 0; number < 100; number++) client.send(query(`n${sent + number}.example.net`));
      await settled(() => rig.proxy.stats().queriesDeny, sent + 100);
    }
    client.close();
    expect(rig.proxy.drainSeen().lookups.length).toBe(1_024);
    expect(rig.refused()).toEqual({ denial_not_told: 76 });
    await ask(rig.at, DENIED, '127.0.0.2');
    expect(rig.proxy.drainSeen().lookups.map(({ hostname }) => hostname)).toEqual([DENIED]);
    expect(rig.refused()).toEqual({ denial_not_told: 76 });
  });
});

describe('DNS proxy with a name that it does not forward', () => {
  const canaryNames = ['use-application-dns.net', '*.canary.test'].map(pattern);
  const NODATA = ['NOERROR'];
  const NXDOMAIN = ['NXDOMAIN'];

  test.each([
    ['resolver.arpa', 'SOA', NODATA],
    ['_dns.resolver.arpa', 'SVCB', NODATA],
    ['_dns.Resolver.ARPA', 'A', NODATA],
    ['a._dns.resolver.arpa', 'SRV', NODATA],
    ['use-application-dns.net', 'A', NXDOMAIN],
    ['USE-application-dns.NET', 'AAAA', NXDOMAIN],
    ['a.b.canary.test', 'SVCB', NXDOMAIN],
  ] as const)(
    'the DNS proxy answers a query for the special name %s and the type %s without records and without asking a resolver, even if the policy denies the name',
    async (name, type, answer) => {
      for (const lookups of [allowing(['*']), ONLY]) {
        const upstream = await FakeUpstream.start(alwaysAt(ADDRESS));
        const rig = await startProxy([upstream], { canaryNames, deniedResponse: 'refused' }, lookups);
        const reply = decode(await exchange(rig.at, query(name, type as RecordType)));
        expect([responseText(reply), reply.authorities, reply.additionals]).toEqual([answer, [], []]);
        const reason = answer === NODATA ? 'resolver_arpa' : 'canary_name';
        expect([upstream.names, rig.grantor.grants, rig.refused()]).toEqual([[], [], { [reason]: 1 }]);
        expect(rig.proxy.drainSeen().lookups).toEqual([]);
      }
    },
  );

  test('the DNS proxy forwards names that only resemble resolver.arpa or canary names, and canary names that a change has removed', async () => {
    const rig = await startProxy([await FakeUpstream.start(alwaysAt(ADDRESS))], { canaryNames });
    const others = ['resolver.arpa.test', 'xresolver.arpa', 'a.use-application-dns.net', 'canary.test', 'xcanary.test'];
    for (const name of others) expect(await lookUp(rig.at, name)).toEqual(['NOERROR', `${name} A ${ADDRESS}`]);
    await rig.change({ canaryNames: [] });
    for (const name of ['use-application-dns.net', 'a.canary.test'])
      expect(await lookUp(rig.at, name)).toEqual(['NOERROR', `${name} A ${ADDRESS}`]);
    expect(await lookUp(rig.at, '_dns.resolver.arpa')).toEqual(NODATA);
  });

  test('the DNS proxy tells EDNS clients which setting contains a canary name', async () => {
    const rig = await startProxy([await FakeUpstream.start(alwaysAt(ADDRESS))], { canaryNames });
    const reply = await exchange(rig.at, query('use-application-dns.net', 'A', { additionals: [edns()] }));
    const text = Buffer.from('dns.canary_names contains this name');
    const error = Buffer.concat([Buffer.from([0, 15, 0, 2 + text.length, 0, 15]), text]);
    expect(reply.subarray(-error.length)).toEqual(error);
  });
});

test('in audit mode the DNS proxy answers a query for a denied name, grants the address and reports the query', async () => {
  const denying = rule({ hostname: pattern(NAME), action: 'deny', mode: 'audit' });
  const lookups = lookupsOf(
    compile(policy([group(['0.0.0.0/0'], [denying, rule({ hostname: pattern('*'), protocol: 6 })])])),
    3,
  );
  const rig = await startProxy([await FakeUpstream.start(alwaysAt(ADDRESS))], {}, lookups);
  expect(await lookUp(rig.at, NAME)).toEqual(GOOD);
  expect(rig.grantor.grants.toSorted()).toEqual([`* ${ADDRESS}`, `${NAME} ${ADDRESS}`]);
  expect(rig.proxy.drainSeen().lookups.map(({ hostname, count }) => [hostname, count])).toEqual([[NAME, 1]]);
  const { queriesAllow, queriesDeny } = rig.proxy.stats();
  expect([queriesAllow, queriesDeny]).toEqual([1, 0]);
});

test('the DNS proxy answers a query with SERVFAIL while it has received no policy', async () => {
  const upstream = await FakeUpstream.start(alwaysAt(ADDRESS));
  const rig = await startProxy([upstream], {}, null);
  expect([await lookUp(rig.at, NAME), upstream.names]).toEqual([['SERVFAIL'], []]);
});
