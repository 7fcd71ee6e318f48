import { describe, expect, it } from 'vitest';
import { CLASS, TYPE } from '#dns/wire/dns-numbers.js';
import { isResponseTo, type Message, readMessage } from '#dns/wire/message/dns-message.js';
import { concatenated, messageBytes, name, pointer, type RawRecord, u16s, u32s } from './message-bytes.js';

const RECORD = { name: name('www.example.com'), class: CLASS.in, ttl: 60 };
const COM = pointer(24);

const dataOf = (type: number, data: Uint8Array): unknown => {
  const message = readMessage(messageBytes({ answers: [{ type, data }] }));
  return 'fault' in message ? message.fault : message.answers[0]?.data;
};

describe('readMessage', () => {
  it('`readMessage` returns the records of all sections, and the EDNS fields of the OPT record', () => {
    const opt = { name: name(''), type: TYPE.opt, class: 1232, ttl: 0x0100_8000, data: u16s(15, 2, 6) };
    const bytes = messageBytes({
      flags: 0x81a3,
      answers: [{ type: TYPE.cname, data: concatenated(Uint8Array.of(1, 0x61), COM) }, { name: pointer(45) }],
      authorities: [{ name: COM, type: TYPE.ns, data: concatenated(Uint8Array.of(2, 0x4e, 0x53), pointer(16)) }],
      additionals: [opt, { name: pointer(12), type: TYPE.aaaa, data: new Uint8Array(16) }],
    });
    expect(readMessage(bytes)).toEqual({
      id: 7,
      flags: 0x81a3,
      rcode: 0x13,
      question: { name: RECORD.name, type: TYPE.a, class: CLASS.in },
      answers: [
        { ...RECORD, type: TYPE.cname, data: name('a.com') },
        { ...RECORD, name: name('a.com'), type: TYPE.a, data: Uint8Array.of(192, 0, 2, 1) },
      ],
      authorities: [{ ...RECORD, name: name('com'), type: TYPE.ns, data: name('NS.example.com') }],
      additionals: [{ ...RECORD, type: TYPE.aaaa, data: new Uint8Array(16) }],
      edns: { payload: 1232, version: 0, dnssecOk: true, options: [{ code: 15, data: u16s(6) }] },
    } satisfies Message);
  });

  it.each([
    [0, 0],
    [1, 1],
    [0x7fff_ffff, 0x7fff_ffff],
    [0x8000_0000, 0],
    [0xffff_ffff, 0],
  ])(
    '`readMessage` reads a TTL of %i as %i, because a TTL with the highest bit set counts as 0 (RFC 2181, 8)',
    (ttl, counted) => {
      expect(readMessage(messageBytes({ answers: [{ ttl }] }))).toMatchObject({ answers: [{ ttl: counted }] });
    },
  );

  it.each([
    ['NS', TYPE.ns, COM, name('com')],
    [
      'SOA',
      TYPE.soa,
      concatenated(COM, pointer(16), u32s(1, 2, 3, 4, 5)),
      concatenated(name('com'), name('example.com'), u32s(1, 2, 3, 4, 5)),
    ],
    ['MINFO', TYPE.minfo, concatenated(COM, COM), concatenated(name('com'), name('com'))],
    ['PTR', TYPE.ptr, concatenated(Uint8Array.of(1, 0x61), COM), name('a.com')],
    ['MX', TYPE.mx, concatenated(u16s(10), COM), concatenated(u16s(10), name('com'))],
    ['RP', TYPE.rp, concatenated(COM, name('')), concatenated(name('com'), name(''))],
    ['AFSDB', TYPE.afsdb, concatenated(u16s(1), COM), concatenated(u16s(1), name('com'))],
    ['PX', TYPE.px, concatenated(u16s(1), COM, COM), concatenated(u16s(1), name('com'), name('com'))],
    ['SRV', TYPE.srv, concatenated(u16s(1, 2, 3), COM), concatenated(u16s(1, 2, 3), name('com'))],
    [
      'NAPTR',
      TYPE.naptr,
      concatenated(u16s(1, 2), Uint8Array.of(1, 0x55, 0, 2, 1, 2), COM),
      concatenated(u16s(1, 2), Uint8Array.of(1, 0x55, 0, 2, 1, 2), name('com')),
    ],
  ])('`readMessage` decompresses the names in the data of a record of type %s', (_, type, data, decompressed) => {
    expect(dataOf(type, data)).toEqual(decompressed);
    expect(dataOf(type, decompressed)).toEqual(decompressed);
    expect(dataOf(type, data.subarray(0, -1))).toEqual(expect.any(String));
    expect(dataOf(type, concatenated(data, Uint8Array.of(0)))).toBe('record_data_length');
    expect(dataOf(type, new Uint8Array(0))).toBe('record_data_length');
  });

  it.each([
    ['DNAME', TYPE.dname, new Uint8Array(0), new Uint8Array(0)],
    ['KX', TYPE.kx, u16s(1), new Uint8Array(0)],
    ['NSEC', TYPE.nsec, new Uint8Array(0), Uint8Array.of(0, 1, 0x40)],
    ['RRSIG', TYPE.rrsig, new Uint8Array(18), new Uint8Array(64)],
    ['SVCB', TYPE.svcb, u16s(1), u16s(4, 4, 0xc000, 0x0201)],
    ['HTTPS', TYPE.https, u16s(1), u16s(1, 3, 0x0268, 0x3200).subarray(0, 7)],
  ])('`readMessage` rejects a compression pointer in the data of a record of type %s', (_, type, before, behind) => {
    const whole = concatenated(before, name('a.com'), behind);
    expect(dataOf(type, whole)).toEqual(whole);
    expect(dataOf(type, concatenated(before, Uint8Array.of(1, 0x61), COM, behind))).toBe('pointer_refused');
    expect(dataOf(type, concatenated(before, Uint8Array.of(9, 0x61)))).toBe('truncated');
  });

  it('`readMessage` returns the data of TXT records and of records of unknown types unchanged', () => {
    const data = Uint8Array.of(0xc0, 0xff, 0x3f, 0);
    expect(dataOf(TYPE.txt, data)).toEqual(data);
    expect(dataOf(65_280, data)).toEqual(data);
    expect(dataOf(65_280, new Uint8Array(0))).toEqual(new Uint8Array(0));
  });

  it.each([
    ['an A record of 3 bytes', 'record_data_length', { data: new Uint8Array(3) }],
    ['an A record of 5 bytes', 'record_data_length', { data: new Uint8Array(5) }],
    ['an AAAA record of 4 bytes', 'record_data_length', { type: TYPE.aaaa, data: new Uint8Array(4) }],
    ['a record length above the length of the data', 'truncated', { length: 5 }],
    ['a record length below the length of the data', 'record_data_length', { length: 3 }],
    ['a TSIG record', 'meta_type', { type: TYPE.tsig }],
    ['a record of type ANY', 'meta_type', { type: TYPE.any }],
    ['an OPT record among the answers', 'misplaced_opt', { type: TYPE.opt, name: name('') }],
    ['HTTPS parameters in the wrong order', 'service_parameter_order', https(u16s(3, 2, 443, 2, 0))],
    ['a repeated HTTPS parameter', 'service_parameter_order', https(u16s(2, 0, 2, 0))],
    ['an incomplete HTTPS parameter', 'service_parameters', https(u16s(3))],
    ['an HTTPS parameter that is too long', 'service_parameters', https(u16s(3, 3, 443))],
    ['an ipv4hint of 6 bytes', 'service_parameter_length', https(u16s(4, 6, 1, 2, 3))],
    ['an empty ipv6hint', 'service_parameter_length', https(u16s(6, 0))],
    ['an empty mandatory list', 'service_parameter_length', https(u16s(0, 0))],
  ] satisfies [string, string, RawRecord][])(
    '`readMessage` rejects a DNS message with an invalid record: %s',
    (_, fault, record) => {
      expect(readMessage(messageBytes({ answers: [record] }))).toEqual({ fault });
    },
  );

  it.each([
    ['an incomplete header', 'short_header', new Uint8Array(11)],
    ['no question', 'question_count', messageBytes({ counts: [0, 0, 0, 0] })],
    ['two questions', 'question_count', messageBytes({ counts: [2, 0, 0, 0] })],
    ['an incomplete question', 'truncated', messageBytes({}).subarray(0, 32)],
    ['a record count of 65,535', 'record_count', messageBytes({ counts: [1, 0xffff, 0xffff, 0xffff] })],
    ['a record count that is one too high', 'record_count', messageBytes({ counts: [1, 2, 0, 0], answers: [{}] })],
    ['a record count that is one too low', 'trailing_bytes', messageBytes({ counts: [1, 1, 0, 0], answers: [{}, {}] })],
    ['trailing bytes', 'trailing_bytes', messageBytes({ answers: [{}], rest: Uint8Array.of(0) })],
    ['two OPT records', 'several_opt', messageBytes({ additionals: [opt(''), opt('')] })],
    ['an OPT record with a name', 'opt_name', messageBytes({ additionals: [opt('a')] })],
    ['a malformed EDNS option', 'edns_options', messageBytes({ additionals: [{ ...opt(''), data: u16s(10, 1) }] })],
  ])('`readMessage` rejects a malformed DNS message (%s), and returns the fault %s', (_, fault, bytes) => {
    expect(readMessage(bytes)).toEqual({ fault });
  });

  it('`readMessage` rejects a message that is truncated at any byte', () => {
    const whole = messageBytes({
      answers: [{}, { type: TYPE.mx, data: concatenated(u16s(1), COM) }],
      additionals: [opt('')],
    });
    for (let length = 0; length < whole.length; length++) {
      expect(readMessage(whole.subarray(0, length))).toHaveProperty('fault');
    }
    expect(readMessage(whole)).not.toHaveProperty('fault');
  });

  it('`isResponseTo` accepts only a response with the id, opcode, question and letter case of the query', () => {
    const sent = { id: 7, name: name('wWw.example.com'), type: TYPE.a, class: CLASS.in };
    const answers = (raw: Parameters<typeof messageBytes>[0]): boolean =>
      isResponseTo(readMessage(messageBytes({ question: sent.name, ...raw })) as Message, sent);
    expect(answers({})).toBe(true);
    expect(answers({ flags: 0x8183 })).toBe(true);
    const others = [
      { flags: 0x0180 },
      { flags: 0x8980 },
      { flags: 0xa980 },
      { type: TYPE.aaaa },
      { class: CLASS.ch },
      { question: name('Www.example.com') },
      { question: name('wWw.example.co') },
      { question: name('wWw.example.con') },
    ];
    expect(others.map(answers)).toEqual(others.map(() => false));
    const ids = Array.from({ length: 65_536 }, (_, id) => id);
    const message = readMessage(messageBytes({ question: sent.name })) as Message;
    expect(ids.filter((id) => isResponseTo({ ...message, id }, sent))).toEqual([7]);
  });
});

function https(parameters: Uint8Array): RawRecord {
  return { type: TYPE.https, data: concatenated(u16s(1), name(''), parameters) };
}

function opt(owner: string): RawRecord {
  return { name: name(owner), type: TYPE.opt, class: 1232, ttl: 0, data: new Uint8Array(0) };
}
