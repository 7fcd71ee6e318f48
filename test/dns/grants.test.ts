import { networkInterfaces } from 'node:os';
import { type Answer, decode, encode } from 'dns-packet';
import { describe, expect, test } from 'vitest';
import type { Lookups } from '#contracts/dns/dns-lookups.js';
import { skipUnless } from '#test/skip-unless.js';
import { edns, exchange, lookUp, type Opt, query } from './client.js';
import { a, alwaysAt, cname, FakeUpstream } from './fake-upstream.js';
import { allowing, pattern, startProxy } from './proxy.js';
import { passed, settled } from './settled.js';

const NAME = 'www.example.com';
const ADDRESS = '203.0.113.1';
const GOOD = ['NOERROR', `${NAME} A ${ADDRESS}`];
const FAILED = ['SERVFAIL'];
const BLOCKED = 15;
const answering = (...answers: Answer[]) => FakeUpstream.start(({ answer }) => answer({ answers }));

/** Returns the Extended DNS Errors (RFC 8914) in the OPT record of a response. */
function extendedErrors(message: Buffer): { code: number; text: string }[] {
  const opt = decode(message).additionals?.find((record): record is Opt => record.type === 'OPT');
  const options = (opt?.options ?? []) as unknown as { code: number; data: Buffer }[];
  return options
    .filter(({ code }) => code === 15)
    .map(({ data }) => ({ code: data.readUInt16BE(0), text: data.toString('utf8', 2) }));
}

describe('DNS grants', () => {
  test('the DNS proxy requests no grants (permissions for answered addresses) for waiting queries until the datapath thread answers in time', async () => {
    const rig = await startProxy(
      [await FakeUpstream.start(alwaysAt(ADDRESS))],
      { grantTimeoutMs: 50 },
      allowing(['*']),
      4_000,
    );
    rig.grantor.reply = 'nothing';
    const lookup = lookUp(rig.at, NAME);
    await passed(300);
    expect(rig.grantor.grants).toEqual([]);
    rig.grantor.reply = 0;
    expect(await lookup).toEqual(GOOD);
  });

  test('the addresses of a name are granted (permitted) for every hostname pattern that matches the queried name, and for no other pattern', async () => {
    const patterns = ['www.example.com', '*.example.com', '*', '^www[.]', 'example.com', '*.www.example.com', '*.test'];
    const rig = await startProxy([await FakeUpstream.start(alwaysAt(ADDRESS))], {}, allowing(patterns));
    expect(await lookUp(rig.at, NAME)).toEqual(GOOD);
    expect(rig.grantor.grants.toSorted()).toEqual(
      ['*', '*.example.com', '^www[.]', 'www.example.com'].map((text) => `${text} ${ADDRESS}`),
    );
  });

  test('the addresses of a name are not granted (permitted) for a hostname pattern that matches only the CNAME target of the queried name', async () => {
    const upstream = await answering(cname(NAME, 'cdn.test'), a('cdn.test', ADDRESS));
    const rig = await startProxy([upstream], {}, allowing(['*.example.com', 'cdn.test']));
    await lookUp(rig.at, NAME);
    expect(rig.grantor.grants).toEqual([`*.example.com ${ADDRESS}`]);
  });

  test('DNS grants (permissions for answered addresses) are requested together for all addresses of an answer, and last for the longest TTL of the answer', async () => {
    const upstream = await answering(a(NAME, ADDRESS, 100), a(NAME, '203.0.113.2', 1_000));
    const rig = await startProxy([upstream]);
    const before = Number(process.hrtime.bigint());
    await lookUp(rig.at, NAME);
    expect(rig.grantor.grants).toEqual([`* ${ADDRESS} 203.0.113.2`]);
    const lives = ((rig.grantor.asked[0]?.expiryNs ?? 0) - before) / 1e9;
    expect([lives >= 1_000, lives < 1_009]).toEqual([true, true]);
  });

  test.each([
    ['a space', 'a b.example.com'],
    ['a plus', 'a+b.example.com'],
    ['a byte above 127', 'käse.example.com'],
  ])(
    'the addresses of a name with an unusual character (%s) are not granted (permitted), although the name is answered',
    async (_, name) => {
      const rig = await startProxy([await FakeUpstream.start(alwaysAt(ADDRESS))]);
      expect(await lookUp(rig.at, name)).toEqual(['NOERROR', `${name} A ${ADDRESS}`]);
      expect(rig.grantor.grants).toEqual([]);
    },
  );

  test('the addresses of a name are not granted (permitted) if the name has a dot byte inside a label, and the query gets NXDOMAIN', async () => {
    const rig = await startProxy(
      [
        await FakeUpstream.start(({ bytes, send }) => {
          const response = Buffer.concat([
            bytes.subarray(0, 12),
            bytes.subarray(12, 12 + 19),
            Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 0, 0, 4, 203, 0, 113, 1]),
          ]);
          response.writeUInt16BE(0x8180, 2);
          response.writeUInt16BE(1, 6);
          response.writeUInt16BE(0, 10);
          send(response);
        }),
      ],
      {},
      allowing(['a.example.com', '^a.example[.]com']),
    );
    const asked = encode({ type: 'query', id: 7, flags: 0x0100, questions: [{ type: 'A', name: 'aXexample.com' }] });
    asked[14] = 0x2e;
    const answer = await exchange(rig.at, asked);
    expect([answer.readUInt16BE(2) & 15, answer.readUInt16BE(6), rig.grantor.grants]).toEqual([3, 0, []]);
  });

  test('DNS grants (permissions for answered addresses) are made only from address records, and address hints are removed from HTTPS records', async () => {
    const data = Buffer.concat([Buffer.from([0, 1, 0]), Buffer.from([0, 4, 0, 4, 203, 0, 113, 1])]);
    const upstream = await FakeUpstream.start(({ bytes, send }) => {
      const question = bytes.subarray(12, bytes.indexOf(0, 12) + 5);
      const head = Buffer.from([0, 0, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
      bytes.copy(head, 0, 0, 2);
      send(Buffer.concat([head, question, Buffer.from([0xc0, 12, 0, 65, 0, 1, 0, 0, 1, 44, 0, data.length]), data]));
    });
    const rig = await startProxy([upstream]);
    const asked = query(NAME);
    asked.writeUInt16BE(65, asked.length - 4);
    const answer = await exchange(rig.at, asked);
    expect(answer.subarray(asked.length + 10)).toEqual(Buffer.from([0, 3, 0, 1, 0]));
    expect([rig.grantor.grants, rig.refused()]).toEqual([[], { left_out_hint: 1 }]);
  });
});

describe('DNS answer with new addresses', () => {
  test('a DNS answer with new addresses is sent to the client only after the grants for these addresses are in force', async () => {
    const rig = await startProxy([await FakeUpstream.start(alwaysAt(ADDRESS))]);
    rig.grantor.reply = 'nothing';
    let answered: readonly string[] | null = null;
    const answer = lookUp(rig.at, NAME).then((responses) => {
      answered = responses;
    });
    await settled(() => rig.grantor.grants, [`* ${ADDRESS}`]);
    await passed(30);
    expect(answered).toBe(null);
    expect(rig.proxy.stats().learning).toBe(null);
    rig.grantor.release(0);
    await answer;
    expect(answered).toEqual(GOOD);
    expect(rig.proxy.stats().learning?.medianMs).toBeGreaterThanOrEqual(30);
  });

  test('a DNS answer becomes SERVFAIL if its grants are not in force within `grantTimeoutMs`, and the next answer reaches the client', async () => {
    const upstream = await FakeUpstream.start(alwaysAt(ADDRESS));
    const rig = await startProxy([upstream], { grantTimeoutMs: 100 });
    rig.grantor.reply = 'nothing';
    const since = performance.now();
    expect(await lookUp(rig.at, NAME)).toEqual(FAILED);
    expect(performance.now() - since).toBeGreaterThanOrEqual(100);
    expect(rig.refused()).toEqual({ not_granted: 1 });
    rig.grantor.release(0);
    rig.grantor.reply = 0;
    expect(await lookUp(rig.at, NAME)).toEqual(GOOD);
    expect(rig.grantor.grants).toEqual([`* ${ADDRESS}`, `* ${ADDRESS}`]);
  });

  test('a DNS answer with new addresses becomes SERVFAIL if the datapath replies that no address was granted', async () => {
    const rig = await startProxy([await FakeUpstream.start(alwaysAt(ADDRESS))]);
    rig.grantor.reply = null;
    expect(await lookUp(rig.at, NAME)).toEqual(FAILED);
    expect([rig.refused(), rig.proxy.stats().servfail, rig.proxy.names()]).toEqual([{ not_granted: 1 }, 1, []]);
  });

  test('a DNS answer is sent although the datapath has no room for an address, and each later answer requests the grant again', async () => {
    const rig = await startProxy([await FakeUpstream.start(alwaysAt(ADDRESS))]);
    rig.grantor.reply = 1;
    expect([await lookUp(rig.at, NAME), await lookUp(rig.at, NAME)]).toEqual([GOOD, GOOD]);
    const { refused, grants, cacheHits } = rig.proxy.stats();
    expect([refused, grants, cacheHits]).toEqual([{ no_room_to_learn: 2 }, 0, 1]);
    rig.grantor.reply = 0;
    expect([await lookUp(rig.at, NAME), await lookUp(rig.at, NAME)]).toEqual([GOOD, GOOD]);
    expect([rig.grantor.asked.length, rig.proxy.stats().grants]).toEqual([3, 1]);
  });

  test.each([
    ['is closed', async (rig: Awaited<ReturnType<typeof startProxy>>) => rig.grantor.close()],
    ['is removed', async (rig: Awaited<ReturnType<typeof startProxy>>) => rig.proxy.granter.use(null)],
  ])(
    'a DNS answer becomes SERVFAIL if the MessagePort to the datapath %s while the answer waits for grants',
    async (_, lose) => {
      const rig = await startProxy([await FakeUpstream.start(alwaysAt(ADDRESS))]);
      rig.grantor.reply = 'nothing';
      const answer = lookUp(rig.at, NAME);
      await settled(() => rig.grantor.grants.length, 1);
      await lose(rig);
      expect(await answer).toEqual(FAILED);
      expect(await lookUp(rig.at, NAME)).toEqual(FAILED);
      expect(rig.refused()).toEqual({ not_granted: 2 });
    },
  );
});

describe('DNS grant', () => {
  test('a DNS grant is requested once while it is in force, although clients query the name repeatedly', async () => {
    const rig = await startProxy([await FakeUpstream.start(alwaysAt(ADDRESS))]);
    for (let time = 0; time < 20; time++) expect(await lookUp(rig.at, NAME)).toEqual(GOOD);
    expect(rig.grantor.grants).toEqual([`* ${ADDRESS}`]);
    const { grants, cacheHits } = rig.proxy.stats();
    expect([grants, cacheHits]).toEqual([1, 19]);
  });

  test('a DNS grant is renewed if a cached answer is used while the grant is about to expire', async () => {
    const upstream = await FakeUpstream.start(alwaysAt(ADDRESS));
    const rig = await startProxy([upstream], { minGrantMs: 1_000, maxGrantMs: 2_000 });
    expect(await lookUp(rig.at, NAME)).toEqual(GOOD);
    await passed(1_600);
    expect(await lookUp(rig.at, NAME)).toEqual(GOOD);
    await settled(() => rig.grantor.asked.length, 2);
    const [first, second] = rig.grantor.asked.map(({ expiryNs }) => expiryNs / 1e9);
    expect((second ?? 0) - (first ?? 0)).toBeGreaterThanOrEqual(1);
    expect(upstream.received.length).toBe(1);
  });

  test('a DNS grant is requested again after a policy change, for the patterns of the new policy that match the name', async () => {
    const upstream = await FakeUpstream.start(alwaysAt(ADDRESS));
    const rig = await startProxy([upstream], {}, allowing(['*', '*.example.com']));
    const given: Lookups[] = [
      allowing(['*.example.com', '*.test'], ['0.0.0.0/0'], 2),
      allowing(['*.test'], ['0.0.0.0/0'], 3),
    ];
    const responses = [await lookUp(rig.at, NAME)];
    for (const lookups of given) {
      rig.proxy.resolver.use(lookups);
      responses.push(await lookUp(rig.at, NAME));
    }
    expect(responses).toEqual([GOOD, GOOD, ['NXDOMAIN']]);
    expect(rig.grantor.grants.toSorted()).toEqual([
      `* ${ADDRESS}`,
      `*.example.com ${ADDRESS}`,
      `*.example.com ${ADDRESS}`,
    ]);
    expect(upstream.received.length).toBe(1);
  });

  test('a DNS grant is requested for the patterns of the policy that is in force when the answer of the resolver arrives', async () => {
    const upstream = await FakeUpstream.start((received) => {
      rig.proxy.resolver.use(allowing(['*.example.com'], ['0.0.0.0/0'], 2));
      alwaysAt(ADDRESS)(received);
    });
    const rig = await startProxy([upstream], {}, allowing(['*']));
    expect(await lookUp(rig.at, NAME)).toEqual(GOOD);
    expect(rig.grantor.grants).toEqual([`*.example.com ${ADDRESS}`]);
  });

  test('DNS grants are listed with the queried name, the addresses, the patterns and the expiry', async () => {
    const rig = await startProxy(
      [await FakeUpstream.start(alwaysAt(ADDRESS, 600))],
      {},
      allowing(['*', '*.example.com']),
    );
    await lookUp(rig.at, NAME);
    const [shown] = rig.proxy.names();
    expect({ ...shown, patterns: shown?.patterns.toSorted(), expiresAtMs: 0, lastSeenMs: 0 }).toEqual({
      hostname: NAME,
      addresses: [0xcb007101],
      patterns: ['*', '*.example.com'],
      expiresAtMs: 0,
      lastSeenMs: 0,
    });
    const seconds = ((shown?.expiresAtMs ?? 0) - Date.now()) / 1_000;
    expect([seconds > 599, seconds <= 609]).toEqual([true, true]);
  });
});

describe('rebind protection', () => {
  const own = Object.values(networkInterfaces())
    .flatMap((all) => all ?? [])
    .find(({ family, internal }) => family === 'IPv4' && !internal)?.address;
  const PRIVATE = [
    '10.1.2.3',
    '172.16.0.1',
    '172.31.255.255',
    '192.168.1.1',
    '100.64.0.1',
    '100.127.255.255',
    '198.18.0.1',
    '198.19.255.255',
    '192.0.0.0',
    '192.0.0.8',
    '192.0.0.170',
    '192.0.0.171',
    '192.0.0.255',
    '192.0.2.1',
    '192.88.99.1',
    '192.88.99.2',
    '198.51.100.7',
    '203.0.113.255',
  ];
  const NEVER_REMOTE = [
    '0.0.0.0',
    '0.1.2.3',
    '127.0.0.1',
    '127.255.255.255',
    '169.254.169.254',
    '224.0.0.1',
    '239.255.255.255',
    '240.0.0.1',
    '255.255.255.255',
  ];
  const PUBLIC = [
    '9.255.255.255',
    '11.0.0.0',
    '100.63.255.255',
    '100.128.0.0',
    '126.255.255.255',
    '128.0.0.0',
    '169.253.255.255',
    '169.255.0.0',
    '172.15.255.255',
    '172.32.0.0',
    '192.0.1.0',
    '192.0.0.9',
    '192.0.0.10',
    '192.0.3.0',
    '192.31.196.1',
    '192.52.193.1',
    '192.175.48.1',
    '198.51.99.255',
    '198.51.101.0',
    '203.0.112.255',
    '203.0.114.0',
    '192.167.255.255',
    '192.169.0.0',
    '198.17.255.255',
    '198.20.0.0',
    '223.255.255.255',
  ];
  const all = [...PRIVATE, ...NEVER_REMOTE, ...PUBLIC];

  async function brought(name: string, addresses: readonly string[], options: Parameters<typeof startProxy>[1]) {
    const upstream = await answering(...addresses.map((address) => a(name, address)));
    const rig = await startProxy([upstream], { rebindAllow: [], ...options });
    const [, ...records] = await lookUp(rig.at, name, 'A', { additionals: [edns()] });
    const granted = rig.grantor.grants.flatMap((words) => words.split(' ').slice(1));
    return { responses: records.map((words) => words.split(' ')[2]), granted };
  }

  test.each([
    ['a public name', NAME, {}, PUBLIC],
    [
      'a name in rebind_allow (without loopback, link-local, multicast and reserved addresses)',
      NAME,
      { rebindAllow: [pattern('*.example.com')] },
      [...PRIVATE, ...PUBLIC],
    ],
    [
      'a name whose text, but not whose labels, ends like a name in rebind_allow',
      'www.notexample.com',
      { rebindAllow: [pattern('*.example.com')] },
      PUBLIC,
    ],
    ['a name under home.arpa', 'nas.home.arpa', {}, [...PRIVATE, ...PUBLIC]],
    ['a name under internal', 'x.internal', {}, [...PRIVATE, ...PUBLIC]],
    ['a name with a similar ending to internal', 'x.notinternal', {}, PUBLIC],
    ['any name while rebind protection is off', NAME, { rebindProtection: false }, all],
  ])(
    'DNS rebind protection removes the same special-purpose addresses from the answer and from the grants, depending on name and settings (%s)',
    async (_, name, options, left) => {
      expect(await brought(name, all, options)).toEqual({ responses: left, granted: left });
    },
  );

  skipUnless(own !== undefined, 'this machine has no IPv4 address but 127.0.0.1').test(
    'rebind protection removes an address of the node itself even for a name under home.arpa',
    async () => {
      expect(await brought('node.home.arpa', [own ?? '', '10.1.2.3'], {})).toEqual({
        responses: ['10.1.2.3'],
        granted: ['10.1.2.3'],
      });
    },
  );

  test('DNS rebind protection reports and counts removed addresses, and adds an Extended DNS Error to the answer', async () => {
    const upstream = await answering(a(NAME, '10.1.2.3'), a(NAME, '9.9.9.9'));
    const rig = await startProxy([upstream], { rebindAllow: [] });
    const ask = (): Promise<Buffer> => exchange(rig.at, query(NAME, 'A', { additionals: [edns()] }));
    const text = 'rebind protection: 10.1.2.3 is private_use; allowed only for names in dns.rebind_allow';
    expect(extendedErrors(await ask())).toEqual([{ code: BLOCKED, text }]);
    expect(extendedErrors(await ask())).toEqual([{ code: BLOCKED, text }]);
    expect(extendedErrors(await exchange(rig.at, query(NAME)))).toEqual([]);
    expect(rig.refused()).toEqual({ left_out_rebinding: 1 });
    const { rebindings } = rig.proxy.drainSeen();
    expect(rebindings).toEqual([
      {
        source: 0x7f000001,
        hostname: NAME,
        address: 0x0a010203,
        reason: 'private_use; allowed only for names in dns.rebind_allow',
        generation: 1,
        count: 3,
        lastMs: expect.any(Number),
      },
    ]);
    expect(rig.proxy.drainSeen().rebindings).toEqual([]);
  });

  test.each([
    ['a loopback address', '127.9.9.9', 'loopback; allowed only without dns.rebind_protection'],
    ['a documentation address', '192.0.2.1', 'documentation; allowed only for names in dns.rebind_allow'],
    ['a benchmarking address', '198.18.0.1', 'benchmarking; allowed only for names in dns.rebind_allow'],
  ])(
    'DNS rebind protection reports the removal of a special-purpose address (%s) with the reason for the removal',
    async (_, address, reason) => {
      const rig = await startProxy([await answering(a(NAME, address))], { rebindAllow: [] });
      expect(await lookUp(rig.at, NAME)).toEqual(['NOERROR']);
      expect(rig.proxy.drainSeen().rebindings).toMatchObject([{ hostname: NAME, reason, count: 1 }]);
    },
  );

  test('DNS rebind protection reports only the first eight removed addresses of an answer, but counts all removed addresses', async () => {
    const many = Array.from({ length: 40 }, (_, last) => a(NAME, `10.9.9.${last}`));
    const rig = await startProxy([await answering(...many)], { rebindAllow: [] });
    await lookUp(rig.at, NAME);
    expect(rig.proxy.drainSeen().rebindings.length).toBe(8);
    expect(rig.refused()).toEqual({ left_out_rebinding: 40 });
  });
});
