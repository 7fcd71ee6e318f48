import { type Answer, decode, type Packet } from 'dns-packet';
import { describe, expect, test } from 'vitest';
import { parseAddress } from '#addresses/ip-address.js';
import { itemAt } from '#arrays/read.js';
import type { DnsOptions } from '#dns/dns-options.js';
import { InFlight } from '#dns/resolver/in-flight.js';
import { edns, exchange, lookUp, type Opt, query, responseText, TcpClient, UdpClient } from './client.js';
import { a, alwaysAt, FakeUpstream, type ReceivedQuery } from './fake-upstream.js';
import { startProxy } from './proxy.js';
import { passed, settled } from './settled.js';

const NAME = 'www.example.com';
const ADDRESS = '203.0.113.1';
const GOOD = ['NOERROR', `${NAME} A ${ADDRESS}`];
const RD = 0x0100;
const AD = 0x0020;
const CD = 0x0010;
const TC = 0x0200;
const DO = 0x8000;
const NXDOMAIN = 3;

const soa = (ttl: number, minimum: number): Answer => ({
  type: 'SOA',
  name: 'example.com',
  ttl,
  data: { mname: 'ns.example.com', rname: 'host.example.com', serial: 1, refresh: 1, retry: 1, expire: 1, minimum },
});
const optOf = ({ packet }: ReceivedQuery): Opt => packet.additionals?.[0] as Opt;

describe('DNS proxy with repeated questions', () => {
  test('the DNS proxy sends one upstream query for concurrent equal questions, and answers in the letter case of each client', async () => {
    let received: ReceivedQuery | undefined;
    const upstream = await FakeUpstream.start((given) => {
      received ??= given;
    });
    const rig = await startProxy([upstream]);
    const spellings = ['www.example.com', 'WWW.example.com', 'wWw.ExAmPlE.cOm', 'www.example.com'];
    const answers = spellings.map((name) => exchange(rig.at, query(name)));
    await settled(() => [rig.proxy.stats().queriesAllow, received !== undefined], [4, true]);
    if (received !== undefined) alwaysAt(ADDRESS)(received);
    const packets = (await Promise.all(answers)).map((bytes) => decode(bytes));
    expect(packets.map(({ questions }) => questions?.[0]?.name)).toEqual(spellings);
    expect(packets.map(({ answers: records }) => records?.length)).toEqual([1, 1, 1, 1]);
    expect(upstream.received.length).toBe(1);
    expect(rig.grantor.grants).toEqual([`* ${ADDRESS}`]);
  });

  test('the DNS proxy sends a second upstream query if the first answer has TTL 0 and must not be cached', async () => {
    const upstream = await FakeUpstream.start(alwaysAt(ADDRESS, 0));
    const rig = await startProxy([upstream]);
    expect([await lookUp(rig.at, NAME), await lookUp(rig.at, NAME)]).toEqual([GOOD, GOOD]);
    expect(upstream.names).toEqual([NAME, NAME]);
  });
});

describe('limits of DNS queries in flight', () => {
  test('the DNS proxy keeps 2,000 queries of one client in flight, and answers a further query with SERVFAIL, while other clients get answers', async () => {
    const upstream = await FakeUpstream.start((received) => {
      if (received.question.name === NAME) alwaysAt(ADDRESS)(received);
    });
    const rig = await startProxy([upstream]);
    const greedy = await UdpClient.at(rig.at, '127.0.0.2');
    for (let sent = 0; sent < 2_000; sent += 100) {
      for (let number = 0; number < 100; number++) greedy.send(query(`n${sent + number}.example.com`));
      await settled(() => rig.proxy.stats().queriesAllow, sent + 100);
    }
    expect(rig.refused()).toEqual({});
    greedy.send(query(NAME));
    expect(responseText(decode(await greedy.receive()))).toEqual(['SERVFAIL']);
    greedy.close();
    expect(rig.refused()).toEqual({ too_many_in_flight: 1 });
    // The proxy repeats the 2,000 queries every 380 ms. Such a burst can overflow the receive buffer of the
    // fake resolver, so the client asks again like a stub resolver.
    await expect.poll(() => lookUp(rig.at, NAME)).toEqual(GOOD);
  });

  test('`InFlight` limits the queries of all clients together and the queries of each client', () => {
    const inFlight = new InFlight(3, 2);
    expect([1, 1, 1, 2, 3].map((source) => inFlight.enter(source))).toEqual([true, true, false, true, false]);
    inFlight.leave(1);
    expect([3, 1].map((source) => inFlight.enter(source))).toEqual([true, false]);
  });

  test('`InFlight` counts all IPv6 addresses of a /64 prefix as one client', () => {
    const inFlight = new InFlight(10, 2);
    const sources = ['2001:db8::1', '2001:db8::2', '2001:db8::3', '2001:db8:0:1::1', '0.0.0.0'].map(
      (text) => parseAddress(text) ?? 0,
    );
    expect(sources.map((source) => inFlight.enter(source))).toEqual([true, true, false, true, true]);
    inFlight.leave(itemAt(sources, 2));
    expect(inFlight.enter(itemAt(sources, 0))).toBe(true);
  });

  test('the limits of queries in flight do not affect 1,000 different questions, sent 100 at a time: each gets the matching answer', async () => {
    const upstream = await FakeUpstream.start((received) => {
      const number = Number(/^n(\d+)/.exec(received.question.name)?.[1]);
      received.answer({ answers: [a(received.question.name, `203.0.${number >> 8}.${number & 255}`)] });
    });
    const rig = await startProxy([upstream]);
    const client = await UdpClient.at(rig.at);
    const answers = new Map<string, string>();
    for (let from = 0; from < 1_000; from += 100) {
      for (let number = from; number < from + 100; number++) client.send(query(`n${number}.example.com`));
      for (let number = 0; number < 100; number++) {
        const [record] = decode(await client.receive()).answers ?? [];
        if (record?.type === 'A') answers.set(record.name, record.data);
      }
    }
    client.close();
    const wanted = Array.from({ length: 1_000 }, (_, at) => [`n${at}.example.com`, `203.0.${at >> 8}.${at & 255}`]);
    expect(Object.fromEntries(answers)).toEqual(Object.fromEntries(wanted));
    expect(new Set(rig.grantor.grants.flatMap((words) => words.split(' ').slice(1))).size).toBe(1_000);
  });
});

describe('answer cache', () => {
  async function asked(given: Partial<Packet>, ms: number, options: Partial<DnsOptions> = {}) {
    const upstream = await FakeUpstream.start(({ answer }) => answer(given));
    const rig = await startProxy([upstream], options);
    await lookUp(rig.at, NAME);
    await lookUp(rig.at, NAME);
    const early = upstream.received.length;
    if (ms > 0) {
      await passed(ms);
      await lookUp(rig.at, NAME);
    }
    const { cacheHits, cacheMisses } = rig.proxy.stats();
    return { early, late: upstream.received.length, cacheHits, cacheMisses };
  }

  test.each([
    ['the TTL of its record', { answers: [a(NAME, ADDRESS, 1)] }],
    ['the least TTL of its records', { answers: [a(NAME, ADDRESS, 300), a(NAME, '203.0.113.2', 1)] }],
    ['the SOA minimum, if the name does not exist', { flags: NXDOMAIN, authorities: [soa(300, 1)] }],
    ['the TTL of the SOA, if the type does not exist', { authorities: [soa(1, 300)] }],
  ])('the DNS answer cache uses an answer no longer than the answer permits (limit: %s)', async (_, given) => {
    expect(await asked(given, 1_010)).toEqual({ early: 1, late: 2, cacheHits: 1, cacheMisses: 2 });
  });

  test('the DNS answer cache uses an answer no longer than the maximum duration of a DNS grant', async () => {
    const given = { answers: [a(NAME, ADDRESS, 2 ** 31 - 1)] };
    const options = { minGrantMs: 1_000, maxGrantMs: 1_000 };
    expect(await asked(given, 1_010, options)).toEqual({ early: 1, late: 2, cacheHits: 1, cacheMisses: 2 });
  });

  test.each([
    ['an error', { flags: 2 }],
    ['an empty answer without an SOA', {}],
    ['NXDOMAIN without an SOA', { flags: NXDOMAIN }],
    [
      'NXDOMAIN with the SOA of another zone',
      { flags: NXDOMAIN, authorities: [{ ...soa(300, 300), name: 'example.net' }] },
    ],
    ['an address with TTL 0', { answers: [a(NAME, ADDRESS, 0)] }],
  ])('the DNS answer cache does not store an answer that must not be cached: %s', async (_, given) => {
    expect(await asked(given as Partial<Packet>, 0)).toEqual({ early: 2, late: 2, cacheHits: 0, cacheMisses: 2 });
  });

  test('the DNS answer cache stores separate answers for queries that differ in the flags CD, RD or DO', async () => {
    const upstream = await FakeUpstream.start(alwaysAt(ADDRESS));
    const rig = await startProxy([upstream]);
    const queries = [
      { flags: RD },
      { flags: RD | CD },
      { flags: 0 },
      { flags: RD, additionals: [edns({ flags: DO })] },
    ];
    for (const query of [...queries, ...queries]) expect(await lookUp(rig.at, NAME, 'A', query)).toEqual(GOOD);
    const asked = upstream.received.map(({ packet, ...received }) => [
      (packet.flags ?? 0) & (RD | CD | AD),
      optOf({ packet, ...received }).flags & DO,
    ]);
    expect(asked).toEqual([
      [RD | AD, 0],
      [RD | AD | CD, 0],
      [AD, 0],
      [RD | AD, DO],
    ]);
  });

  test('the DNS answer cache sets the flag AD in an answer only if the client set AD in the query', async () => {
    const upstream = await FakeUpstream.start(({ answer }) => answer({ flags: AD, answers: [a(NAME, ADDRESS)] }));
    const rig = await startProxy([upstream]);
    const authentic: boolean[] = [];
    for (const flags of [RD, RD | AD, RD]) {
      authentic.push(((decode(await exchange(rig.at, query(NAME, 'A', { flags }))).flags ?? 0) & AD) !== 0);
    }
    expect([authentic, upstream.received.length]).toEqual([[false, true, false], 1]);
  });

  test('the DNS answer cache reduces the TTL of a cached answer by the age of the answer', async () => {
    const upstream = await FakeUpstream.start(alwaysAt(ADDRESS, 100));
    const rig = await startProxy([upstream]);
    const ttl = async (): Promise<number | undefined> => {
      const [record] = decode(await exchange(rig.at, query(NAME))).answers ?? [];
      return record?.type === 'A' ? record.ttl : undefined;
    };
    const first = await ttl();
    await passed(1_010);
    expect([first, await ttl()]).toEqual([100, 99]);
  });

  test('the DNS answer cache removes old answers so that the total size of all answers does not exceed `cacheBytes`', async () => {
    const text: Answer = { type: 'TXT', name: NAME, ttl: 300, data: 'x'.repeat(200) };
    const upstream = await FakeUpstream.start(({ question, answer }) =>
      answer({ answers: [{ ...text, name: question.name }] }),
    );
    const rig = await startProxy([upstream], { cacheBytes: 20_000 });
    for (let number = 0; number < 60; number++) await lookUp(rig.at, `n${number}.example.com`, 'TXT');
    const { cacheBytes, cacheEntries } = rig.proxy.stats();
    expect(cacheBytes).toBeLessThanOrEqual(20_000);
    expect(cacheBytes).toBeGreaterThan(18_000);
    expect(cacheEntries).toBeLessThan(30);
    await lookUp(rig.at, 'n59.example.com', 'TXT');
    await lookUp(rig.at, 'n0.example.com', 'TXT');
    expect(upstream.received.length).toBe(61);
  });

  test('the DNS answer cache counts in `cacheBytes` the memory of parsed addresses in addition to the bytes of the answer', async () => {
    const addresses = Array.from({ length: 60 }, (_, at) => a(NAME, `203.0.113.${at + 1}`));
    const upstream = await FakeUpstream.start(({ answer }) => answer({ answers: addresses }));
    const rig = await startProxy([upstream]);
    await lookUp(rig.at, NAME);
    expect(rig.proxy.stats().cacheBytes).toBeGreaterThan(60 * (16 + 48));
  });
});

describe('DNS answer over UDP', () => {
  const many = Array.from({ length: 80 }, (_, at) => a(NAME, `203.0.113.${at + 1}`));
  const some = many.slice(0, 40);

  test.each([
    ['512 bytes without EDNS', some, null, 512],
    ['512 bytes if the client announces less', some, 100, 512],
    ['the size that the client announces', some, 700, 700],
    ['1,232 bytes if the client announces more', many, 4_096, 1_232],
  ])(
    'a DNS answer over UDP is truncated if it exceeds the size limit (%s), and complete over TCP',
    async (_, answers, udpPayloadSize, limit) => {
      const upstream = await FakeUpstream.start(({ stream, answer }) =>
        stream === null ? answer({ flags: TC }) : answer({ answers }),
      );
      const rig = await startProxy([upstream]);
      const additionals = udpPayloadSize === null ? [] : [edns({ udpPayloadSize })];
      const fits = 29 + 4 + 16 * answers.length + additionals.length * 11 <= limit;
      const bytes = await exchange(rig.at, query(NAME, 'A', { additionals }));
      const packet = decode(bytes);
      expect([bytes.length <= limit, packet.flag_tc, packet.answers?.length]).toEqual([
        true,
        !fits,
        fits ? answers.length : 0,
      ]);
      const client = await TcpClient.to(rig.at);
      client.send(query(NAME, 'A', { additionals }));
      await settled(() => client.responses, [['NOERROR', ...answers.map(({ data }) => `${NAME} A ${data}`)]]);
      client.close();
      expect(upstream.received.length).toBe(2);
    },
  );
});

describe('DNS cookies', () => {
  const COOKIE = 10;
  type Option = { readonly code: number; readonly data: Buffer };
  const cookie = (hex: string): Opt => {
    const option: Option = { code: COOKIE, data: Buffer.from(hex, 'hex') };
    return edns({ options: [option] as unknown as Opt['options'] });
  };
  const cookiesOf = ({ additionals = [] }: Packet): string[] => {
    const options = additionals.flatMap((record) => (record.type === 'OPT' ? record.options : []));
    return (options as unknown as Option[]).flatMap(({ code, data }) =>
      code === COOKIE ? [data.toString('hex')] : [],
    );
  };

  test('DNS cookies are sent upstream, and an answer with a server cookie goes only to the client that sent the client cookie', async () => {
    const upstream = await FakeUpstream.start((received) => {
      const [own = ''] = cookiesOf(received.packet);
      const additionals = own === '' ? [] : [cookie(`${own}aabbccddeeff0011`)];
      received.answer({ answers: [a(NAME, ADDRESS)], additionals });
    });
    const rig = await startProxy([upstream]);
    const sent = ['0102030405060708', '1112131415161718', ''];
    const got: string[][] = [];
    for (const hex of sent) {
      const additionals = hex === '' ? [edns()] : [cookie(hex)];
      const packet = decode(await exchange(rig.at, query(NAME, 'A', { additionals })));
      expect(responseText(packet)).toEqual(GOOD);
      got.push(cookiesOf(packet));
    }
    expect(got).toEqual([['0102030405060708aabbccddeeff0011'], ['1112131415161718aabbccddeeff0011'], []]);
    expect(upstream.received.map(({ packet }) => cookiesOf(packet))).toEqual([
      ['0102030405060708'],
      ['1112131415161718'],
    ]);
  });
});
