import { describe, expect, it } from 'vitest';
import { CLASS, EXTENDED_ERROR, OPTION, RCODE, TYPE } from '#dns/wire/dns-numbers.js';
import { type Message, type ResourceRecord, readMessage } from '#dns/wire/message/dns-message.js';
import { type Query, type QueryFault, readQuery, writeQuery } from '#dns/wire/message/dns-query.js';
import type { Edns } from '#dns/wire/message/edns.js';
import { type ResponseOptions, respond, respondError, templateOf } from '#dns/wire/message/response.js';
import { keyOf, nameOf } from '#dns/wire/name.js';
import { concatenated, messageBytes, name, pointer, u16s, u32s } from './message-bytes.js';

const record = (owner: string, type: number, data: Uint8Array, ttl = 60): ResourceRecord => ({
  name: name(owner),
  type,
  class: CLASS.in,
  ttl,
  data,
});
const a = (owner: string, ttl: number): ResourceRecord => record(owner, TYPE.a, Uint8Array.of(192, 0, 2, 1), ttl);
const answer = (sections: Partial<Message>): Message => ({
  ...(readMessage(messageBytes({ question: name('a.test'), flags: 0x85a0 })) as Message),
  ...sections,
});
const query = (spelt: string, edns: Edns | null, bits: { ad?: boolean; cd?: boolean; rd?: boolean } = {}): Query => {
  const { ad = false, cd = false, rd = true } = bits;
  const flags = { recursionDesired: rd, checkingDisabled: cd, authenticData: ad };
  return readQuery(
    writeQuery({ id: 0x1234, name: name(spelt), type: TYPE.a, class: CLASS.in, edns, ...flags }),
  ) as Query;
};
const edns = (dnssecOk: boolean): Edns => ({ payload: 4096, version: 0, dnssecOk, options: [] });
const options: ResponseOptions = { ageSeconds: 0, limit: 1232, edns: { payload: 1232, options: [] } };
const read = (bytes: Uint8Array): Message => {
  const message = readMessage(bytes);
  if ('fault' in message) throw new Error(message.fault);
  return message;
};
const flagsOf = (bytes: Uint8Array): number => read(bytes).flags;

describe('DNS responses', () => {
  it('DNS responses have the id, the letter case and the flag CD of the query', () => {
    const message = answer({ answers: [a('a.test', 60)] });
    const response = respond(templateOf(message), query('A.tEst', null, { cd: true }), options);
    expect(Uint8Array.from(response)).toEqual(
      messageBytes({ id: 0x1234, flags: 0x8190, question: name('A.tEst'), answers: [{}] }),
    );
  });

  it('DNS responses have the flag AD only if the query has the flag AD or DO, and the answer has AD', () => {
    const template = templateOf(answer({}));
    const flags = [
      query('a.test', null),
      query('a.test', null, { ad: true }),
      query('a.test', edns(false)),
      query('a.test', edns(true)),
    ];
    expect(flags.map((of) => flagsOf(respond(template, of, options)))).toEqual([0x8180, 0x81a0, 0x8180, 0x81a0]);
    const insecure = templateOf(answer({ flags: 0x8180 }));
    expect(flagsOf(respond(insecure, query('a.test', edns(true)), options))).toBe(0x8180);
  });

  it('DNS responses have the flag RD of the query, always RA, and never AA', () => {
    const template = templateOf(answer({ flags: 0x8400 }));
    expect(flagsOf(respond(template, query('a.test', null, { rd: false }), options))).toBe(0x8080);
  });

  it('DNS responses have an OPT record only if the query has an OPT record', () => {
    const template = templateOf(answer({ additionals: [a('b.test', 1)] }));
    const own = [{ code: 10, data: Uint8Array.of(1, 2) }];
    const of = (from: Edns | null): Edns | null =>
      read(respond(template, query('a.test', from), { ...options, edns: { payload: 1232, options: own } })).edns;
    expect(of(null)).toBe(null);
    expect(of(edns(false))).toEqual({ payload: 1232, version: 0, dnssecOk: false, options: own });
    expect(of(edns(true))).toEqual({ payload: 1232, version: 0, dnssecOk: true, options: own });
    expect(read(respond(template, query('a.test', edns(true)), { ...options, edns: null })).edns).toBe(null);
  });

  it('DNS responses have the upper bits of an rcode in the OPT record, or SERVFAIL if the query has no OPT record', () => {
    const template = templateOf(answer({ rcode: 0x17 }));
    expect(read(respond(template, query('a.test', edns(false)), options)).rcode).toBe(0x17);
    expect(read(respond(template, query('a.test', null), options)).rcode).toBe(RCODE.servfail);
  });

  it.each([
    [0, undefined, [0, 10, 0x7fff_ffff]],
    [0.9, undefined, [0, 10, 0x7fff_ffff]],
    [9.9, undefined, [0, 1, 0x7fff_fff6]],
    [11, undefined, [0, 0, 0x7fff_fff4]],
    [2 ** 33, undefined, [0, 0, 0]],
    [0, 5, [0, 5, 5]],
    [6, 5, [0, 4, 5]],
    [0, 0, [0, 0, 0]],
  ])(
    'cached DNS responses that are %d seconds old, with an upper limit %s for TTLs, are sent with the TTLs %j',
    (ageSeconds, cap, ttls) => {
      const template = templateOf(
        answer({ answers: [a('a.test', 0)], authorities: [a('b.test', 10)], additionals: [a('c', 0x7fff_ffff)] }),
      );
      const aged = { ...options, ageSeconds, ...(cap === undefined ? {} : { ttlCap: cap }) };
      const { answers, authorities, additionals } = read(respond(template, query('a.test', null), aged));
      expect([...answers, ...authorities, ...additionals].map(({ ttl }) => ttl)).toEqual(ttls);
      const fresh = read(respond(template, query('a.test', null), options));
      expect(fresh.additionals).toEqual([a('c', 0x7fff_ffff)]);
    },
  );

  it('DNS responses contain only the question, with the flag TC, if they are longer than the limit', () => {
    const template = templateOf(answer({ answers: [a('a.test', 60), a('a.test', 60)] }));
    const whole = 12 + 12 + 2 * 16;
    const limited = (limit: number, from: Edns | null): Message =>
      read(respond(template, query('a.test', from), { ...options, limit }));
    expect(limited(whole, null)).toMatchObject({ flags: 0x8180, answers: { length: 2 } });
    expect(limited(whole - 1, null)).toMatchObject({ flags: 0x8380, answers: [], edns: null });
    expect(limited(whole + 11, edns(true))).toMatchObject({ flags: 0x81a0, answers: { length: 2 } });
    expect(limited(whole + 10, edns(true))).toMatchObject({
      flags: 0x83a0,
      answers: [],
      edns: edns(true) && { payload: 1232, dnssecOk: true },
    });
    const long = { payload: 1232, options: [{ code: OPTION.padding, data: new Uint8Array(600) }] };
    expect(respond(template, query('a.test', edns(true)), { ...options, limit: 512, edns: long }).length).toBe(24 + 11);
  });

  it('`respond` throws if the template of a DNS response belongs to another question', () => {
    const template = templateOf(answer({}));
    expect(() => respond(template, query('aa.test', null), options)).toThrow('another question');
    expect(() => respond(template, { ...query('a.test', null), type: TYPE.txt }, options)).toThrow('another question');
  });

  it('DNS responses have the flag TC if the received answer has the flag TC', () => {
    expect(flagsOf(respond(templateOf(answer({ flags: 0x8380 })), query('a.test', null), options))).toBe(0x8380);
  });
});

describe('names in responses', () => {
  it('names in DNS responses are compressed only in record types for which RFC 1035 allows compression', () => {
    const svc = concatenated(u16s(1), name('svc.test'));
    const message = answer({
      answers: [
        record('A.test', TYPE.cname, name('b.a.TEST')),
        record('b.a.test', TYPE.mx, concatenated(u16s(5), name('mx.test'))),
        record('mx.test', TYPE.srv, concatenated(u16s(1, 2, 3), name('mx.test'))),
        record('mx.test', TYPE.https, svc),
        record('', TYPE.soa, concatenated(name('test'), name(''), u32s(1, 2, 3, 4, 5))),
      ],
    });
    const { bytes } = templateOf(message);
    expect(bytes).toEqual(
      messageBytes({
        id: 0,
        flags: 0x80a0,
        question: name('a.test'),
        answers: [
          { type: TYPE.cname, data: concatenated(Uint8Array.of(1, 0x62), pointer(12)) },
          { name: pointer(36), type: TYPE.mx, data: concatenated(u16s(5), Uint8Array.of(2, 0x6d, 0x78), pointer(14)) },
          { name: pointer(54), type: TYPE.srv, data: concatenated(u16s(1, 2, 3), name('mx.test')) },
          { name: pointer(54), type: TYPE.https, data: svc },
          { name: name(''), type: TYPE.soa, data: concatenated(pointer(14), name(''), u32s(1, 2, 3, 4, 5)) },
        ],
      }),
    );
  });

  it('names in DNS responses are read back unchanged after compression, even if a label contains the bytes of other labels', () => {
    const names = [
      ['x', 'a', 'test'],
      ['x\x01a', 'test'],
      ['a\x04test'],
      ['\x01a\x04test'],
      ['A', 'TESt'],
      ['a', 'tes'],
    ];
    const answers = names.map((labels) => ({ ...a('', 1), name: nameOf(labels) }));
    const written = read(templateOf(answer({ answers })).bytes);
    expect(written.answers.map((of) => keyOf(of.name))).toEqual(answers.map((of) => keyOf(of.name)));
  });

  it('names in DNS responses have no compression pointer to an offset beyond 16,383', () => {
    const filler = record('', TYPE.txt, new Uint8Array(17_000));
    const answers = [filler, a('far.example', 1), a('far.example', 1), a('x.a.test', 1)];
    const { bytes } = templateOf(answer({ answers }));
    expect(read(bytes).answers).toEqual(answers);
    expect(bytes.length).toBe(12 + 12 + 11 + 17_000 + 2 * (13 + 14) + 4 + 14);
  });

  it('names in DNS responses are compressed and read back unchanged in a message with 3,000 records', () => {
    const answers = Array.from({ length: 3000 }, (_, index) => a(`n${index % 1500}.a.test`, index));
    expect(read(templateOf(answer({ answers })).bytes).answers).toEqual(answers);
  });
});

describe('error responses', () => {
  it('DNS error responses have the id and the question of the query', () => {
    const response = respondError(query('A.test', null, { cd: true }), RCODE.nxdomain);
    expect(Uint8Array.from(response)).toEqual(messageBytes({ id: 0x1234, flags: 0x8193, question: name('A.test') }));
  });

  it('DNS error responses have an Extended DNS Error if the query has EDNS', () => {
    const extendedError = { code: EXTENDED_ERROR.prohibited, text: 'policy' };
    const response = respondError(query('a.test', edns(true)), RCODE.refused, { extendedError });
    const data = concatenated(u16s(18), Buffer.from('policy'));
    expect(read(response)).toMatchObject({
      rcode: RCODE.refused,
      edns: { payload: 1232, version: 0, dnssecOk: true, options: [{ code: OPTION.extendedError, data }] },
    });
    expect(read(respondError(query('a.test', null), RCODE.refused, { extendedError })).edns).toBe(null);
    const own = { payload: 1400, options: [{ code: 10, data: u16s(1) }] };
    const both = read(respondError(query('a.test', edns(false)), RCODE.refused, { edns: own, extendedError })).edns;
    expect(both).toEqual({ payload: 1400, version: 0, dnssecOk: false, options: [...own.options, { code: 15, data }] });
  });

  it('DNS error responses omit an Extended DNS Error that would make them longer than 512 bytes', () => {
    const extendedError = { code: 0, text: 'x'.repeat(600) };
    expect(respondError(query('a.test', edns(true)), RCODE.refused, { extendedError }).length).toBe(24 + 11);
  });

  it('DNS error responses consist only of a header if the query was malformed', () => {
    const fault = readQuery(messageBytes({ flags: 0x2930 })) as QueryFault & { id: number };
    expect(Uint8Array.from(respondError(fault, fault.rcode))).toEqual(u16s(7, 0xa994, 0, 0, 0, 0));
  });

  it('DNS error responses have the rcode BADVERS for an unknown EDNS version', () => {
    const opt = { name: name(''), type: TYPE.opt, class: 1232, ttl: 0x0001_0000, data: new Uint8Array(0) };
    const fault = readQuery(messageBytes({ flags: 0x0100, additionals: [opt] })) as QueryFault & { id: number };
    expect(Uint8Array.from(respondError(fault, fault.rcode))).toEqual(
      concatenated(u16s(7, 0x8180, 0, 0, 0, 1), name(''), u16s(TYPE.opt, 1232, 0x0100, 0, 0)),
    );
  });
});
