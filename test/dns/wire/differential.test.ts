import { type Answer, decode, encode, type Packet, type Question } from 'dns-packet';
import { describe, expect, it } from 'vitest';
import { CLASS, TYPE } from '#dns/wire/dns-numbers.js';
import { type Message, type ResourceRecord, readMessage } from '#dns/wire/message/dns-message.js';
import { type Query, readQuery, writeQuery } from '#dns/wire/message/dns-query.js';
import { respond, templateOf } from '#dns/wire/message/response.js';
import { keyOf, nameOf, presentationOf } from '#dns/wire/name.js';
import { Random, seedOf } from '#test/seed.js';

const LABELS = ['www', 'Example', 'com', 'a', 'x-1', '_sip', 'cdn', 'net', 'y'.repeat(60)];
const text = (random: Random): string => random.some(1, 4, () => random.pick(LABELS)).join('.');
const address = (random: Random): string => Array.from({ length: 4 }, () => random.below(256)).join('.');

/** Functions that make random record data, one for each type that dns-packet can write and Weir can parse. */
const MAKERS: readonly ((random: Random) => Pick<Answer, 'type'> & { data: unknown })[] = [
  (random) => ({ type: 'A', data: address(random) }),
  (random) => ({ type: 'AAAA', data: `2001:db8::${(1 + random.below(0xfffe)).toString(16)}` }),
  (random) => ({ type: 'CNAME', data: text(random) }),
  (random) => ({ type: 'NS', data: text(random) }),
  (random) => ({ type: 'PTR', data: text(random) }),
  (random) => ({ type: 'DNAME', data: text(random) }),
  (random) => ({ type: 'MX', data: { preference: random.below(65_536), exchange: text(random) } }),
  (random) => ({ type: 'TXT', data: [Buffer.from(text(random))] }),
  (random) => ({
    type: 'SRV',
    data: {
      priority: random.below(65_536),
      weight: random.below(65_536),
      port: random.below(65_536),
      target: text(random),
    },
  }),
  (random) => ({
    type: 'SOA',
    data: {
      mname: text(random),
      rname: text(random),
      serial: random.word(),
      refresh: random.word(),
      retry: random.word(),
      expire: random.word(),
      minimum: random.word(),
    },
  }),
  (random) => ({ type: 'RP', data: { mbox: text(random), txt: text(random) } }),
  (random) => ({
    type: 'NAPTR',
    data: {
      order: 1,
      preference: random.below(65_536),
      flags: 'u',
      services: 'E2U+sip',
      regexp: '!x!y!',
      replacement: text(random),
    },
  }),
];

const record = (random: Random): Answer =>
  ({ name: text(random), class: 'IN', ttl: random.below(2 ** 31), ...random.pick(MAKERS)(random) }) as Answer;

const packet = (random: Random): Packet => ({
  type: 'response',
  id: random.below(65_536),
  flags: 0x0180,
  questions: [{ type: 'A', class: 'IN', name: text(random) }],
  answers: random.some(0, 5, () => record(random)),
  authorities: random.some(0, 2, () => record(random)),
  additionals: random.some(0, 2, () => record(random)),
});

const spoken = ({ name, ttl, type }: ResourceRecord): unknown => [presentationOf(keyOf(name)), ttl, type];
const spokenByOracle = (answer: Answer): unknown => {
  const { name, ttl, type } = answer as { name: string; ttl: number; type: string };
  return [name.toLowerCase(), ttl, TYPE[type.toLowerCase() as keyof typeof TYPE]];
};
const folded = (value: unknown): unknown => JSON.parse(JSON.stringify(value).toLowerCase());
const read = (bytes: Uint8Array): Message => {
  const message = readMessage(bytes);
  if ('fault' in message) throw new Error(message.fault);
  return message;
};

describe('dns-packet and the DNS codec of Weir', () => {
  it("the library dns-packet and the DNS codec of Weir read equal records from each other's messages", () => {
    const random = new Random(seedOf(7));
    for (let round = 0; round < 1000; round++) {
      const bytes = encode(packet(random));
      const theirs = decode(bytes);
      const ours = read(bytes);
      expect(ours.answers.map(spoken)).toEqual(theirs.answers?.map(spokenByOracle));
      expect(ours.authorities.map(spoken)).toEqual(theirs.authorities?.map(spokenByOracle));
      expect(ours.additionals.map(spoken)).toEqual(theirs.additionals?.map(spokenByOracle));
      const query = { ...ours.question, id: ours.id, flags: 0x0100, opcode: 0, key: '', edns: null };
      const written = respond(templateOf(ours), query, { ageSeconds: 0, limit: 65_535, edns: null });
      expect(folded(decode(Buffer.from(written)))).toEqual(folded(theirs));
      expect(written.length).toBeLessThanOrEqual(bytes.length);
    }
  });

  it("the library dns-packet and the DNS codec of Weir read the same fields from each other's queries with EDNS", () => {
    const random = new Random(seedOf(8));
    for (let round = 0; round < 200; round++) {
      const name = text(random);
      const [id, dnssecOk, cookie] = [
        random.below(65_536),
        random.chance(0.5),
        new Uint8Array(8).fill(random.below(256)),
      ];
      const edns = { payload: 1232, version: 0, dnssecOk, options: [{ code: 10, data: cookie }] };
      const question = { id, name: nameOf(name.split('.')), type: TYPE.a, class: CLASS.in };
      const bytes = writeQuery({ ...question, recursionDesired: true, checkingDisabled: false, edns });
      const theirs = decode(Buffer.from(bytes));
      expect(theirs.questions).toEqual([{ name, type: 'A', class: 'IN' } satisfies Question]);
      expect(theirs.additionals).toMatchObject([
        { type: 'OPT', udpPayloadSize: 1232, flag_do: dnssecOk, options: [{ code: 10 }] },
      ]);
      expect(readQuery(encode(theirs)) as Query).toEqual(readQuery(bytes));
    }
  });

  it('the library dns-packet and the DNS codec of Weir read a dot inside a label differently, because dns-packet treats this dot as a separator', () => {
    const question = { id: 1, name: nameOf(['evil.a.good', 'com']), type: TYPE.a, class: CLASS.in };
    const bytes = writeQuery({ ...question, recursionDesired: true, checkingDisabled: false, edns: null });
    expect(decode(Buffer.from(bytes)).questions?.[0]?.name).toBe('evil.a.good.com');
    expect(presentationOf((readQuery(bytes) as Query).key)).toBe('evil\\.a\\.good.com');
  });
});
