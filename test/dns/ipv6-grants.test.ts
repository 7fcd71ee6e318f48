import type { Answer } from 'dns-packet';
import { describe, expect, test } from 'vitest';
import { parseAddress, parseCidr } from '#addresses/ip-address.js';
import type { Address, Prefix } from '#contracts/policy/policy-model.js';
import { Rebinding } from '#dns/rebinding/rebinding.js';
import { keyOf } from '#dns/wire/name.js';
import { edns, lookUp } from './client.js';
import { a, aaaa, FakeUpstream } from './fake-upstream.js';
import { allowing, pattern, startProxy } from './proxy.js';
import { settled } from './settled.js';
import { name as wireName } from './wire/message-bytes.js';

const NAME = 'www.example.com';
const IPV4 = '198.20.0.1';
const IPV6 = '2a00:1450:4001::1';

/** A resolver that answers A and AAAA queries with these records. */
const dualStack = (...records: readonly Answer[]) =>
  FakeUpstream.start(({ question, answer }) =>
    answer({ answers: records.filter(({ type }) => type === question.type) }),
  );

describe('DNS proxy with IPv6 policies', () => {
  test('the DNS proxy grants the addresses of A and of AAAA answers to the same patterns, and lists both', async () => {
    const upstream = await dualStack(a(NAME, IPV4), aaaa(NAME, IPV6), aaaa(NAME, '2a00:1450:4001::2'));
    const rig = await startProxy([upstream], { grantsIpv6: true }, allowing(['*.example.com']));
    expect(await lookUp(rig.at, NAME, 'AAAA')).toEqual([
      'NOERROR',
      `${NAME} AAAA ${IPV6}`,
      `${NAME} AAAA 2a00:1450:4001::2`,
    ]);
    expect(await lookUp(rig.at, NAME, 'A')).toEqual(['NOERROR', `${NAME} A ${IPV4}`]);
    expect(rig.grantor.grants).toEqual([`*.example.com ${IPV6} 2a00:1450:4001::2`, `*.example.com ${IPV4}`]);
    expect(rig.proxy.names().map(({ hostname, addresses }) => [hostname, addresses])).toEqual([
      [NAME, [parseAddress(IPV4), parseAddress(IPV6), parseAddress('2a00:1450:4001::2')]],
    ]);
    expect(rig.refused()).toEqual({});
  });

  test('an AAAA answer leaves after its grants are in force, and becomes SERVFAIL if the datapath grants none', async () => {
    const rig = await startProxy([await dualStack(aaaa(NAME, IPV6))], { grantsIpv6: true });
    rig.grantor.reply = 'nothing';
    let isAnswered = false;
    const lookup = lookUp(rig.at, NAME, 'AAAA').finally(() => {
      isAnswered = true;
    });
    await settled(() => rig.grantor.grants, [`* ${IPV6}`]);
    expect(isAnswered).toBe(false);
    rig.grantor.release(null);
    expect(await lookup).toEqual(['SERVFAIL']);
    rig.grantor.reply = 0;
    expect(await lookUp(rig.at, NAME, 'AAAA')).toEqual(['NOERROR', `${NAME} AAAA ${IPV6}`]);
  });

  test('an AAAA grant lasts for the TTL of its record', async () => {
    const rig = await startProxy([await dualStack(aaaa(NAME, IPV6, 1_000))], { grantsIpv6: true });
    const before = Number(process.hrtime.bigint());
    await lookUp(rig.at, NAME, 'AAAA');
    const seconds = ((rig.grantor.asked[0]?.expiryNs ?? 0) - before) / 1e9;
    expect([seconds >= 1_000, seconds < 1_009]).toEqual([true, true]);
  });

  test('without IPv6 policies, the DNS proxy removes AAAA records and grants none of their addresses', async () => {
    const rig = await startProxy([await dualStack(a(NAME, IPV4), aaaa(NAME, IPV6))]);
    expect(await lookUp(rig.at, NAME, 'AAAA')).toEqual(['NOERROR']);
    expect(await lookUp(rig.at, NAME, 'A')).toEqual(['NOERROR', `${NAME} A ${IPV4}`]);
    expect([rig.grantor.grants, rig.refused()]).toEqual([[`* ${IPV4}`], { left_out_ipv6: 1 }]);
  });
});

describe('a resolver with an IPv6 address', () => {
  const host = '::1';
  const port = 20_000 + (process.pid % 20_000);
  const TC = 0x0200;

  test('the DNS proxy asks an upstream by IPv6, over UDP and after a truncated answer over TCP, and names it in brackets', async () => {
    const upstream = await FakeUpstream.start(
      ({ question, stream, answer }) =>
        answer(
          question.type === 'AAAA' && stream === null
            ? { flags: TC }
            : { answers: [question.type === 'A' ? a(NAME, IPV4) : aaaa(NAME, IPV6)] },
        ),
      { host, port },
    );
    const rig = await startProxy([upstream], { grantsIpv6: true });
    expect(await lookUp(rig.at, NAME, 'A')).toEqual(['NOERROR', `${NAME} A ${IPV4}`]);
    expect(await lookUp(rig.at, NAME, 'AAAA')).toEqual(['NOERROR', `${NAME} AAAA ${IPV6}`]);
    expect(upstream.received.map(({ stream }) => stream !== null)).toEqual([false, false, true]);
    expect(rig.proxy.stats().upstreams).toMatchObject([{ address: `[::1]:${port}`, alive: true, queries: 2 }]);
  });

  test('the DNS proxy uses an upstream by IPv4 while no process answers at the IPv6 address of another', async () => {
    const other = await FakeUpstream.start(({ question, answer }) => answer({ answers: [a(question.name, IPV4)] }));
    const rig = await startProxy([{ at: { host, port: port + 1 } }, other]);
    expect(await lookUp(rig.at, NAME, 'A')).toEqual(['NOERROR', `${NAME} A ${IPV4}`]);
  });
});

describe('rebind protection of IPv6 addresses', () => {
  const NEVER = [
    '::',
    '::1',
    '::ffff:9.9.9.9',
    'fe80::1',
    'febf::1',
    'ff02::1',
    '::9.9.9.9',
    '4000::1',
    'fe00::1',
    '64:ff9b::127.0.0.1',
    '64:ff9b::169.254.169.254',
  ];
  const PRIVATE = [
    'fc00::1',
    'fdff::1',
    'fec0::1',
    '2001:db8::1',
    '3fff:fff::1',
    '2001::1',
    '2001:2::1',
    '2002:a00:1::1',
    '5f00::1',
    '100::1',
    '64:ff9b:1::1',
    '64:ff9b::10.0.0.1',
    '64:ff9b::192.168.1.1',
  ];
  const PUBLIC = [
    '2000::1',
    '2a00:1450:4001::1',
    '3ffe::1',
    '2001:200::1',
    '2001:20::1',
    '2620:4f:8000::1',
    '64:ff9b::9.9.9.9',
  ];
  const all = [...NEVER, ...PRIVATE, ...PUBLIC];

  async function left(name: string, options: Parameters<typeof startProxy>[1]): Promise<unknown> {
    const upstream = await dualStack(...all.map((address) => aaaa(name, address)));
    const rig = await startProxy([upstream], { rebindAllow: [], grantsIpv6: true, ...options });
    const [, ...records] = await lookUp(rig.at, name, 'AAAA', { additionals: [edns()] });
    const granted = rig.grantor.grants.flatMap((words) => words.split(' ').slice(1));
    expect(records.map((words) => parseAddress(words.split(' ')[2] ?? ''))).toEqual(granted.map(parseAddress));
    return granted.map(parseAddress);
  }

  test.each([
    ['a public name', NAME, {}, PUBLIC],
    ['a name in rebind_allow', NAME, { rebindAllow: [pattern('*.example.com')] }, [...PRIVATE, ...PUBLIC]],
    ['a name under home.arpa', 'nas.home.arpa', {}, [...PRIVATE, ...PUBLIC]],
    ['any name while rebind protection is off', NAME, { rebindProtection: false }, all],
  ])(
    'DNS rebind protection removes special-purpose IPv6 addresses from answers and grants: %s',
    async (_, name, options, wanted) => {
      const found = await left(name, options);
      expect(found).toEqual(all.filter((text) => wanted.includes(text)).map(parseAddress));
    },
  );

  const key = keyOf(wireName(NAME));
  const own = {
    addresses: new Set<Address>([parseAddress('192.0.2.1') ?? 0, parseAddress('2a00:1::1') ?? 0n]),
    networks: [parseCidr('2a00:1::/64')?.prefix as Prefix<bigint>],
  };
  test.each([
    [
      'an address of the node',
      '2a00:1::1',
      'own_address; allowed only without dns.rebind_protection',
      'own_address; allowed only without dns.rebind_protection',
    ],
    [
      'an address of the node behind NAT64',
      '64:ff9b::192.0.2.1',
      'own_address; allowed only without dns.rebind_protection',
      'own_address; allowed only without dns.rebind_protection',
    ],
    [
      'an address in a network of the node',
      '2a00:1::5',
      'own_network; allowed only for names in dns.rebind_allow',
      null,
    ],
    ['an address next to a network of the node', '2a00:1:0:1::5', null, null],
  ])('DNS rebind protection removes %s from answers for public names', (_, address, ofPublic, ofAllowed) => {
    const reasons = [[], [pattern(NAME)]].map((allowed) =>
      new Rebinding(true, allowed, () => own).reasonsFor(key, 0)(parseAddress(address) ?? 0),
    );
    expect(reasons).toEqual([ofPublic, ofAllowed]);
  });
});
