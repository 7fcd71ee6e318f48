import { DgramAsPromised } from 'dgram-as-promised';
import { type Answer, encode, type Packet } from 'dns-packet';
import { describe, expect, test } from 'vitest';
import { lookUp } from './client.js';
import { a, answerTo, cname, FakeUpstream, type ReceivedQuery } from './fake-upstream.js';
import { loopback } from './loopback.js';
import { startProxy } from './proxy.js';
import { concatenated, messageBytes, name, pointer, type RawRecord, u16s } from './wire/message-bytes.js';

const NAME = 'www.example.com';
const GOOD = '203.0.113.1';
const EVIL = '203.0.113.66';
const QR = 0x8180;

const good = ({ answer }: ReceivedQuery): void => answer({ answers: [a(NAME, GOOD)] });
const idOf = ({ bytes }: ReceivedQuery): number => bytes.readUInt16BE(0);
const evil = (given: Partial<Packet> = {}): Partial<Packet> => ({ answers: [a(NAME, EVIL)], ...given });
const asking = (questionName: string, type: 'A' | 'TXT' = 'A', of: 'IN' | 'CH' = 'IN'): Partial<Packet> =>
  evil({ questions: [{ name: questionName, type, class: of }] });

type Lie = readonly [what: string, send: (received: ReceivedQuery) => unknown, refused: Record<string, number>];
const once = (reason: string): Record<string, number> => ({ [`answer_${reason}`]: 1 });
const raw = (what: string, make: (received: ReceivedQuery) => Uint8Array, reason: string): Lie => [
  what,
  (received) => received.send(make(received)),
  once(reason),
];
const told = (what: string, given: Partial<Packet>, reason: string): Lie => [
  what,
  ({ answer }) => answer(given),
  once(reason),
];
/**
 * Defines a malformed or false response, which the fake resolver builds from `parts`. `reason` is the counter
 * of refusals that the response must increase.
 */
const lying = (what: string, parts: Parameters<typeof messageBytes>[0], reason: string): Lie =>
  raw(what, (received) => messageBytes({ id: idOf(received), answers: [{}], ...parts }), reason);
const patched = (received: ReceivedQuery, offset: number, value: number): Uint8Array => {
  const bytes = answerTo(received.packet, evil());
  bytes.writeUInt16BE(value, offset);
  return bytes;
};
const short: RawRecord = { data: Uint8Array.of(1, 2, 3) };

const LIES: readonly Lie[] = [
  raw('with another id', (received) => patched(received, 0, idOf(received) ^ 1), 'unasked'),
  told('to a question for another name', asking('www.example.net'), 'other_question'),
  told('to a question for its parent', asking('example.com'), 'other_question'),
  told('to a question in another letter case', asking('WWW.example.com'), 'other_question'),
  told('to a question for another type', asking(NAME, 'TXT'), 'other_question'),
  told('to a question of another class', asking(NAME, 'A', 'CH'), 'other_question'),
  raw('that is a query', (received) => patched(received, 2, QR & 0x7fff), 'other_question'),
  raw('of opcode NOTIFY', (received) => patched(received, 2, QR | 0x2000), 'other_question'),
  raw('of opcode UPDATE', (received) => patched(received, 2, QR | 0x2800), 'other_question'),
  lying('without a question', { counts: [0, 1, 0, 0] }, 'question_count'),
  lying('to two questions', { counts: [2, 1, 0, 0] }, 'question_count'),
  raw('that is empty', () => new Uint8Array(0), 'unasked'),
  raw('of one byte', () => Uint8Array.of(0), 'unasked'),
  raw('of an id only', (received) => received.bytes.subarray(0, 2), 'short_header'),
  raw('of a header only', (received) => patched(received, 0, idOf(received)).subarray(0, 12), 'truncated'),
  raw('truncated inside its question', (received) => patched(received, 2, QR).subarray(0, 20), 'truncated'),
  raw('without its last byte', (received) => patched(received, 2, QR).subarray(0, -1), 'truncated'),
  lying('with a trailing byte', { rest: Uint8Array.of(0) }, 'trailing_bytes'),
  lying('longer than the announced UDP size', { rest: new Uint8Array(5_000) }, 'too_long'),
  lying('with a pointer to itself', { answers: [{ name: pointer(33) }] }, 'pointer_not_backwards'),
  lying('with a forward pointer', { answers: [{ name: pointer(40) }] }, 'pointer_not_backwards'),
  lying('with a pointer into the header', { answers: [{ name: pointer(4) }] }, 'pointer_to_header'),
  lying(
    'with two pointers to each other',
    { answers: [{ name: pointer(35) }, { name: pointer(33) }] },
    'pointer_not_backwards',
  ),
  lying('with a label of an unknown kind', { answers: [{ name: Uint8Array.of(0x41, 0x61, 0) }] }, 'label_type'),
  lying('with fewer records than its count', { counts: [1, 2, 0, 0] }, 'record_count'),
  lying('with a count of 65,535 records', { counts: [1, 0xffff, 0xffff, 0xffff] }, 'record_count'),
  lying('with more records than its count', { counts: [1, 0, 0, 0] }, 'trailing_bytes'),
  lying('with an address of three bytes', { answers: [short] }, 'record_data_length'),
  lying('with record data beyond its end', { answers: [{ length: 400 }] }, 'truncated'),
  lying(
    'with an OPT record in the answer section',
    { answers: [{ name: name(''), type: 41, data: u16s() }] },
    'misplaced_opt',
  ),
  lying(
    'with two OPT records',
    { additionals: [1, 2].map(() => ({ name: name(''), type: 41, data: u16s() })) },
    'several_opt',
  ),
  lying('with a TSIG record', { additionals: [{ name: name(''), type: 250 }] }, 'meta_type'),
  [
    'with each of 256 other ids',
    (received) => {
      for (let other = 1; other <= 256; other++) received.send(patched(received, 0, (idOf(received) + other) & 0xffff));
    },
    { answer_unasked: 256 },
  ],
  [
    'from another port',
    async (received) => {
      const other = DgramAsPromised.createSocket('udp4');
      await other.bind(0, '127.0.0.1');
      await received.sendFrom(other, answerTo(received.packet, evil()));
      await other.close();
    },
    {},
  ],
  [
    'from another address',
    async (received) => {
      const other = DgramAsPromised.createSocket('udp4');
      await other.bind(5_300, loopback());
      await received.sendFrom(other, answerTo(received.packet, evil()));
      await other.close();
    },
    {},
  ],
];

describe('DNS proxy with a hostile upstream', () => {
  test.each(LIES)(
    'the DNS proxy ignores a faulty or forged answer (%s), and waits for the valid answer',
    async (_, lie, refused) => {
      const upstream = await FakeUpstream.start(async (received) => {
        await lie(received);
        good(received);
      });
      const rig = await startProxy([upstream]);
      expect(await lookUp(rig.at, NAME)).toEqual(['NOERROR', `${NAME} A ${GOOD}`]);
      expect(rig.grantor.grants).toEqual([`* ${GOOD}`]);
      expect(rig.refused()).toEqual(refused);
      expect(upstream.names).toEqual([NAME]);
    },
  );
});

const chain = (links: number): Answer[] => [
  ...Array.from({ length: links }, (_, at) => cname(at === 0 ? NAME : `link${at}.test`, `link${at + 1}.test`)),
  a(`link${links}.test`, GOOD),
];
const aliases = (links: number): string[] =>
  Array.from({ length: links }, (_, at) => `${at === 0 ? NAME : `link${at}.test`} CNAME link${at + 1}.test`);
const ns: Answer = { type: 'NS', name: 'example.com', data: 'ns.example.com' };
const NXDOMAIN = 3;
const TC = 0x0200;
const WITH_ERROR = { left_out_with_error: 1 };
const left = (count: number): Record<string, number> => ({ left_out_other_name: count });

type Told = readonly [
  what: string,
  given: Partial<Packet>,
  responses: readonly string[],
  grants: readonly string[],
  refused: Record<string, number>,
];
const TOLD: readonly Told[] = [
  [
    'ignores an address of another name before the address of the queried name',
    { answers: [a('bank.example', EVIL), a(NAME, GOOD)] },
    ['NOERROR', `${NAME} A ${GOOD}`],
    [`* ${GOOD}`],
    left(1),
  ],
  [
    'removes addresses of other names from every section',
    {
      answers: [a(NAME, GOOD), a('a.example', EVIL)],
      authorities: [ns, a('b.example', EVIL)],
      additionals: [a('ns.example.com', EVIL)],
    },
    ['NOERROR', `${NAME} A ${GOOD}`, 'example.com NS ns.example.com'],
    [`* ${GOOD}`],
    left(3),
  ],
  [
    'removes addresses of the queried name from other sections',
    { authorities: [a(NAME, EVIL)], additionals: [a(NAME, EVIL)] },
    ['NOERROR'],
    [],
    left(2),
  ],
  ['removes the only address, with another name', { answers: [a('bank.example', EVIL)] }, ['NOERROR'], [], left(1)],
  [
    'removes an address from an NXDOMAIN answer',
    { flags: NXDOMAIN, answers: [a(NAME, EVIL)] },
    ['NXDOMAIN'],
    [],
    left(1),
  ],
  [
    'removes addresses after an alias of itself',
    { answers: [cname(NAME, NAME), a(NAME, EVIL)] },
    ['NOERROR', `${NAME} CNAME ${NAME}`],
    [],
    left(1),
  ],
  [
    'removes addresses after a loop of aliases',
    { answers: [cname(NAME, 'b.test'), cname('b.test', NAME), a('b.test', EVIL)] },
    ['NOERROR', `${NAME} CNAME b.test`, `b.test CNAME ${NAME}`],
    [],
    left(1),
  ],
  [
    'removes addresses after two aliases of one name',
    { answers: [cname(NAME, 'b.test'), cname(NAME, 'c.test'), a('b.test', EVIL), a('c.test', EVIL)] },
    ['NOERROR', `${NAME} CNAME b.test`, `${NAME} CNAME c.test`],
    [],
    left(2),
  ],
  [
    'removes addresses after a broken chain',
    { answers: [cname(NAME, 'b.test'), a('c.test', EVIL)] },
    ['NOERROR', `${NAME} CNAME b.test`],
    [],
    left(1),
  ],
  [
    'accepts a chain whose records are in reverse order',
    { answers: [a('b.test', GOOD), cname(NAME, 'b.test')] },
    ['NOERROR', `b.test A ${GOOD}`, `${NAME} CNAME b.test`],
    [`* ${GOOD}`],
    {},
  ],
  [
    'accepts a chain of 16 aliases',
    { answers: chain(16) },
    ['NOERROR', ...aliases(16), `link16.test A ${GOOD}`],
    [`* ${GOOD}`],
    {},
  ],
  ['removes addresses after a chain of 17 aliases', { answers: chain(17) }, ['NOERROR', ...aliases(17)], [], left(1)],
  [
    'removes an address of another class',
    { answers: [{ type: 'A', class: 'CH', name: NAME, data: EVIL }] },
    ['NOERROR'],
    [],
    left(1),
  ],
  [
    'removes IPv6 addresses',
    { answers: [{ type: 'AAAA', name: NAME, data: '2001:db8::1' }, a(NAME, GOOD)] },
    ['NOERROR', `${NAME} A ${GOOD}`],
    [`* ${GOOD}`],
    { left_out_ipv6: 1 },
  ],
  ['removes the records of SERVFAIL', { flags: 2, answers: [a(NAME, EVIL)] }, ['SERVFAIL'], [], WITH_ERROR],
  ['removes the records of REFUSED', { flags: 5, answers: [a(NAME, EVIL)] }, ['REFUSED'], [], WITH_ERROR],
  ['removes the records of an unknown error', { flags: 11, answers: [a(NAME, EVIL)] }, ['RCODE_11'], [], WITH_ERROR],
];

describe('DNS proxy with false records in an answer', () => {
  test.each(TOLD)(
    'the DNS proxy filters false records from an answer: it %s',
    async (_, given, answered, grants, refused) => {
      const upstream = await FakeUpstream.start(({ answer }) => answer(given));
      const rig = await startProxy([upstream]);
      expect(await lookUp(rig.at, NAME)).toEqual(answered);
      expect(rig.grantor.grants).toEqual(grants);
      expect(rig.refused()).toEqual(refused);
    },
  );

  test('the DNS proxy removes A records from an answer if the question has a type other than A', async () => {
    const txt: Answer = { type: 'TXT', name: NAME, data: 'hello' };
    const upstream = await FakeUpstream.start(({ answer }) =>
      answer({ answers: [txt, a(NAME, EVIL)], additionals: [a(NAME, EVIL)] }),
    );
    const rig = await startProxy([upstream]);
    expect((await lookUp(rig.at, NAME, 'TXT'))[0]).toBe('NOERROR');
    expect([rig.grantor.grants, rig.refused()]).toEqual([[], left(2)]);
  });

  test('the DNS proxy grants only the first 128 of 2,000 addresses in an answer, and truncates the answer over UDP', async () => {
    const addresses = Array.from({ length: 2_000 }, (_, at) => `203.0.${100 + (at >> 8)}.${at & 255}`);
    const upstream = await FakeUpstream.start(({ stream, answer }) =>
      stream === null ? answer({ flags: TC }) : answer({ answers: addresses.map((address) => a(NAME, address)) }),
    );
    const rig = await startProxy([upstream]);
    expect(await lookUp(rig.at, NAME)).toEqual(['NOERROR']);
    expect([rig.grantor.grants, rig.refused()]).toEqual([
      [['*', ...addresses.slice(0, 128)].join(' ')],
      { left_out_beyond_128: 1_872 },
    ]);
  });
});

test.each([
  [0, 60],
  [1, 60],
  [300, 300],
  [86_401, 86_400],
  [2 ** 31 - 1, 86_400],
  [2 ** 31, 60],
  [2 ** 32 - 1, 60],
])('the address of an answer with a TTL of %d seconds is granted for %d seconds', async (ttl, seconds) => {
  const record = concatenated(
    u16s(0xc00c, 1, 1),
    u16s(ttl >>> 16, ttl & 0xffff),
    u16s(4),
    Uint8Array.of(203, 0, 113, 1),
  );
  const upstream = await FakeUpstream.start((received) => {
    const header = encode({ type: 'response', id: idOf(received), flags: 0x0180, questions: [received.question] });
    header.writeUInt16BE(1, 6);
    received.send(concatenated(header, record));
  });
  const rig = await startProxy([upstream]);
  const before = Number(process.hrtime.bigint());
  expect(await lookUp(rig.at, NAME)).toEqual(['NOERROR', `${NAME} A ${GOOD}`]);
  const [grant] = rig.grantor.asked;
  const lives = ((grant?.expiryNs ?? 0) - before) / 1e9;
  // The expiry of a grant is rounded up by at most 8 s, but not beyond the maximum of 86,400 s.
  const [least, most] = seconds === 86_400 ? [seconds - 1, seconds] : [seconds, seconds + Math.min(seconds / 15, 8)];
  expect(lives).toBeGreaterThanOrEqual(least);
  expect(lives).toBeLessThanOrEqual(most + 1);
});
