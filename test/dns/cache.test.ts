import { type Answer, decode, type Packet } from 'dns-packet';
import { describe, expect, test } from 'vitest';
import type { DnsOptions } from '#dns/dns-options.js';
import { InFlight } from '#dns/in-flight.js';
import { edns, exchange, lookUp, type Opt, query, said, TcpClient, UdpClient } from './client.js';
import { a, alwaysAt, FakeUpstream, type Heard } from './fake-upstream.js';
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
const optOf = ({ packet }: Heard): Opt => packet.additionals?.[0] as Opt;

describe('a question that is asked already', () => {
  test('is not asked again, in whatever letters, and each asker is answered in his own', async () => {
    let heard: Heard | undefined;
    const upstream = await FakeUpstream.start((given) => {
      heard ??= given;
    });
    const rig = await startProxy([upstream]);
    const spellings = ['www.example.com', 'WWW.example.com', 'wWw.ExAmPlE.cOm', 'www.example.com'];
    const answers = spellings.map((name) => exchange(rig.at, query(name)));
    await settled(() => [rig.proxy.stats().queriesAllow, heard !== undefined], [4, true]);
    if (heard !== undefined) alwaysAt(ADDRESS)(heard);
    const packets = (await Promise.all(answers)).map((bytes) => decode(bytes));
    expect(packets.map(({ questions }) => questions?.[0]?.name)).toEqual(spellings);
    expect(packets.map(({ answers: records }) => records?.length)).toEqual([1, 1, 1, 1]);
    expect(upstream.heard.length).toBe(1);
    expect(rig.grantor.grants).toEqual([`* ${ADDRESS}`]);
  });

  test('is asked again once it was answered with nothing to keep', async () => {
    const upstream = await FakeUpstream.start(alwaysAt(ADDRESS, 0));
    const rig = await startProxy([upstream]);
    expect([await lookUp(rig.at, NAME), await lookUp(rig.at, NAME)]).toEqual([GOOD, GOOD]);
    expect(upstream.names).toEqual([NAME, NAME]);
  });
});

describe('many questions at once', () => {
  test('of one client: 2,000 are waited for, and the others’ are answered meanwhile', async () => {
    const upstream = await FakeUpstream.start((heard) => {
      if (heard.question.name === NAME) alwaysAt(ADDRESS)(heard);
    });
    const rig = await startProxy([upstream]);
    const greedy = await UdpClient.at(rig.at, '127.0.0.2');
    for (let sent = 0; sent < 2_000; sent += 100) {
      for (let number = 0; number < 100; number++) greedy.send(query(`n${sent + number}.example.com`));
      await settled(() => rig.proxy.stats().queriesAllow, sent + 100);
    }
    expect(rig.refused()).toEqual({});
    greedy.send(query(NAME));
    expect(said(decode(await greedy.receive()))).toEqual(['SERVFAIL']);
    greedy.close();
    expect(rig.refused()).toEqual({ too_many_in_flight: 1 });
    expect(await lookUp(rig.at, NAME)).toEqual(GOOD);
  });

  test('are counted, of all and of each', () => {
    const inFlight = new InFlight(3, 2);
    expect([1, 1, 1, 2, 3].map((source) => inFlight.enter(source))).toEqual([true, true, false, true, false]);
    inFlight.leave(1);
    expect([3, 1].map((source) => inFlight.enter(source))).toEqual([true, false]);
  });

  test('are answered, each with its own', async () => {
    const upstream = await FakeUpstream.start((heard) => {
      const number = Number(/^n(\d+)/.exec(heard.question.name)?.[1]);
      heard.answer({ answers: [a(heard.question.name, `203.0.${number >> 8}.${number & 255}`)] });
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

describe('an answer is kept', () => {
  async function asked(given: Partial<Packet>, ms: number, options: Partial<DnsOptions> = {}) {
    const upstream = await FakeUpstream.start(({ answer }) => answer(given));
    const rig = await startProxy([upstream], options);
    await lookUp(rig.at, NAME);
    await lookUp(rig.at, NAME);
    const early = upstream.heard.length;
    if (ms > 0) {
      await passed(ms);
      await lookUp(rig.at, NAME);
    }
    const { cacheHits, cacheMisses } = rig.proxy.stats();
    return { early, late: upstream.heard.length, cacheHits, cacheMisses };
  }

  test.each([
    ['for its TTL', { answers: [a(NAME, ADDRESS, 1)] }],
    ['for the least of its TTLs', { answers: [a(NAME, ADDRESS, 300), a(NAME, '203.0.113.2', 1)] }],
    ['for the minimum of its zone, where there is no such name', { flags: NXDOMAIN, authorities: [soa(300, 1)] }],
    ['for the TTL of its SOA, where there is nothing of the type', { authorities: [soa(1, 300)] }],
  ])('%s', async (_, given) => {
    expect(await asked(given, 1_010)).toEqual({ early: 1, late: 2, cacheHits: 1, cacheMisses: 2 });
  });

  test('for no longer than anything is granted', async () => {
    const given = { answers: [a(NAME, ADDRESS, 2 ** 31 - 1)] };
    const options = { minGrantMs: 1_000, maxGrantMs: 1_000 };
    expect(await asked(given, 1_010, options)).toEqual({ early: 1, late: 2, cacheHits: 1, cacheMisses: 2 });
  });

  test.each([
    ['an error', { flags: 2 }],
    ['nothing, and no SOA', {}],
    ['no such name, and no SOA', { flags: NXDOMAIN }],
    [
      'no such name, and the SOA of somebody else',
      { flags: NXDOMAIN, authorities: [{ ...soa(300, 300), name: 'example.net' }] },
    ],
    ['an address for no time', { answers: [a(NAME, ADDRESS, 0)] }],
  ])('not at all, where it says %s', async (_, given) => {
    expect(await asked(given as Partial<Packet>, 0)).toEqual({ early: 2, late: 2, cacheHits: 0, cacheMisses: 2 });
  });

  test('apart for those who check themselves, and for those who want signatures', async () => {
    const upstream = await FakeUpstream.start(alwaysAt(ADDRESS));
    const rig = await startProxy([upstream]);
    const ways = [{ flags: RD }, { flags: RD | CD }, { flags: 0 }, { flags: RD, additionals: [edns({ flags: DO })] }];
    for (const way of [...ways, ...ways]) expect(await lookUp(rig.at, NAME, 'A', way)).toEqual(GOOD);
    const asked = upstream.heard.map(({ packet, ...heard }) => [
      (packet.flags ?? 0) & (RD | CD | AD),
      optOf({ packet, ...heard }).flags & DO,
    ]);
    expect(asked).toEqual([
      [RD | AD, 0],
      [RD | AD | CD, 0],
      [AD, 0],
      [RD | AD, DO],
    ]);
  });

  test('and said to be authentic only to those who ask', async () => {
    const upstream = await FakeUpstream.start(({ answer }) => answer({ flags: AD, answers: [a(NAME, ADDRESS)] }));
    const rig = await startProxy([upstream]);
    const authentic: boolean[] = [];
    for (const flags of [RD, RD | AD, RD]) {
      authentic.push(((decode(await exchange(rig.at, query(NAME, 'A', { flags }))).flags ?? 0) & AD) !== 0);
    }
    expect([authentic, upstream.heard.length]).toEqual([[false, true, false], 1]);
  });

  test('with what is left of its time', async () => {
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

  test('within the room that there is', async () => {
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
    expect(upstream.heard.length).toBe(61);
  });

  test('with all that it takes: an answer of many addresses takes more than its bytes', async () => {
    const addresses = Array.from({ length: 60 }, (_, at) => a(NAME, `203.0.113.${at + 1}`));
    const upstream = await FakeUpstream.start(({ answer }) => answer({ answers: addresses }));
    const rig = await startProxy([upstream]);
    await lookUp(rig.at, NAME);
    expect(rig.proxy.stats().cacheBytes).toBeGreaterThan(60 * (16 + 48));
  });
});

describe('an answer over UDP', () => {
  const many = Array.from({ length: 80 }, (_, at) => a(NAME, `203.0.113.${at + 1}`));
  const some = many.slice(0, 40);

  test.each([
    ['512 bytes where the client says nothing', some, null, 512],
    ['512 bytes at least, whatever it says', some, 100, 512],
    ['what it says', some, 700, 700],
    ['1,232 bytes at most', many, 4_096, 1_232],
  ])('is cut off after %s, and whole over TCP', async (_, answers, udpPayloadSize, limit) => {
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
    await settled(() => client.said, [['NOERROR', ...answers.map(({ data }) => `${NAME} A ${data}`)]]);
    client.close();
    expect(upstream.heard.length).toBe(2);
  });
});

describe('a DNS cookie', () => {
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

  test('goes to the resolver and its answer to who sent it, and to nobody else', async () => {
    const upstream = await FakeUpstream.start((heard) => {
      const [own = ''] = cookiesOf(heard.packet);
      const additionals = own === '' ? [] : [cookie(`${own}aabbccddeeff0011`)];
      heard.answer({ answers: [a(NAME, ADDRESS)], additionals });
    });
    const rig = await startProxy([upstream]);
    const sent = ['0102030405060708', '1112131415161718', ''];
    const got: string[][] = [];
    for (const hex of sent) {
      const additionals = hex === '' ? [edns()] : [cookie(hex)];
      const packet = decode(await exchange(rig.at, query(NAME, 'A', { additionals })));
      expect(said(packet)).toEqual(GOOD);
      got.push(cookiesOf(packet));
    }
    expect(got).toEqual([['0102030405060708aabbccddeeff0011'], ['1112131415161718aabbccddeeff0011'], []]);
    expect(upstream.heard.map(({ packet }) => cookiesOf(packet))).toEqual([['0102030405060708'], ['1112131415161718']]);
  });
});
