import { describe, expect, it } from 'vitest';
import { CLASS, TYPE } from '#dns/wire/dns-numbers.js';
import { type Query, readQuery, writeQuery } from '#dns/wire/message/dns-query.js';
import { nameOf } from '#dns/wire/name.js';
import { concatenated, messageBytes, name, type RawRecord, u16s } from './message-bytes.js';

const OPT: RawRecord = { name: name(''), type: TYPE.opt, class: 1232, ttl: 0, data: new Uint8Array(0) };
const query = (raw: Parameters<typeof messageBytes>[0]): Uint8Array => messageBytes({ flags: 0x0100, ...raw });
const asked = {
  id: 7,
  flags: 0x0100,
  opcode: 0,
  name: name('www.example.com'),
  key: '\x03www\x07example\x03com\0',
  type: TYPE.a,
  class: CLASS.in,
  edns: null,
};

describe('readQuery', () => {
  it('`readQuery` keeps the letter case of the queried name', () => {
    const spelt = name('wWw.eXample.com');
    expect(readQuery(query({ question: spelt, id: 0xffff }))).toEqual({ ...asked, id: 0xffff, name: spelt });
  });

  it('`readQuery` returns the payload size, the flag DO and the options of an OPT record', () => {
    const options = [
      { code: 10, data: Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8) },
      { code: 12, data: new Uint8Array(0) },
    ];
    const data = concatenated(u16s(10, 8), Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8), u16s(12, 0));
    expect(readQuery(query({ additionals: [{ ...OPT, ttl: 0x8000, data }] }))).toEqual({
      ...asked,
      edns: { payload: 1232, version: 0, dnssecOk: true, options },
    });
  });

  it('`readQuery` raises an EDNS payload size below 512 bytes to 512 bytes', () => {
    const read = readQuery(query({ additionals: [{ ...OPT, class: 100 }] })) as Query;
    expect(read.edns).toEqual({ payload: 512, version: 0, dnssecOk: false, options: [] });
  });

  it('`readQuery` returns a query that does not change when the input bytes are overwritten', () => {
    const bytes = Buffer.from(query({ additionals: [{ ...OPT, data: u16s(10, 1, 0x4100).subarray(0, 5) }] }));
    const read = readQuery(bytes);
    bytes.fill(0xee);
    const edns = { payload: 1232, version: 0, dnssecOk: false, options: [{ code: 10, data: Uint8Array.of(0x41) }] };
    expect(read).toEqual({ ...asked, edns });
  });

  it.each([
    ['an incomplete header', new Uint8Array(11)],
    ['an empty datagram', new Uint8Array(0)],
    ['a response', messageBytes({ flags: 0x8100 })],
    ['a response with an opcode', messageBytes({ flags: 0xa800 })],
  ])(
    '`readQuery` returns no id for a datagram that must not be answered (%s), so that the proxy sends no response',
    (_, bytes) => {
      expect(readQuery(bytes)).toMatchObject({ id: null });
    },
  );

  it.each([
    ['another opcode', 'opcode', 4, query({ flags: 0x2800 })],
    ['no question', 'question_count', 1, query({ counts: [0, 0, 0, 0] })],
    ['two questions', 'question_count', 1, query({ counts: [2, 0, 0, 0], rest: concatenated(name('a'), u16s(1, 1)) })],
    ['an answer record', 'record_in_query', 1, query({ answers: [{}] })],
    ['an authority record', 'record_in_query', 1, query({ authorities: [{}] })],
    ['a wrong record count', 'truncated', 1, query({ counts: [1, 0, 0, 0xffff] })],
    ['a missing record after OPT', 'truncated', 1, query({ counts: [1, 0, 0, 2], additionals: [OPT] })],
    [
      'a record after OPT that ends within its name',
      'truncated',
      1,
      concatenated(query({ counts: [1, 0, 0, 2], additionals: [OPT] }), name('b').subarray(0, 2)),
    ],
    ['another additional record', 'additional_record', 1, query({ additionals: [{ name: name('a') }] })],
    ['a root A record', 'additional_record', 1, query({ additionals: [{ name: name('') }] })],
    ['an A record after OPT', 'additional_record', 1, query({ additionals: [OPT, { name: name('a.b') }] })],
    ['two OPT records', 'several_opt', 1, query({ additionals: [OPT, OPT] })],
    ['a TSIG record', 'tsig', 4, query({ additionals: [OPT, { name: name('key'), type: TYPE.tsig, class: 255 }] })],
    ['a SIG(0) record', 'sig0', 4, query({ additionals: [{ name: name(''), type: TYPE.sig, class: 255 }] })],
    ['an OPT record with a name', 'additional_record', 1, query({ additionals: [{ ...OPT, name: name('a') }] })],
    ['EDNS version 1', 'edns_version', 16, query({ additionals: [{ ...OPT, ttl: 0x0001_0000 }] })],
    ['an EDNS option that is too long', 'edns_options', 1, query({ additionals: [{ ...OPT, data: u16s(10, 1) }] })],
    ['an incomplete EDNS option', 'edns_options', 1, query({ additionals: [{ ...OPT, data: u16s(10) }] })],
    ['an OPT record that is too long', 'truncated', 1, query({ additionals: [{ ...OPT, length: 1 }] })],
    ['an OPT record that is too short', 'trailing_bytes', 1, query({ additionals: [OPT], rest: u16s(0) })],
    ['trailing bytes', 'trailing_bytes', 1, query({ rest: Uint8Array.of(0) })],
    ['a compression pointer', 'compressed_question', 1, query({ question: Uint8Array.of(1, 0x61, 0xc0, 0x0c) })],
    ['a label of 64 bytes', 'label_type', 1, query({ question: concatenated(Uint8Array.of(64), new Uint8Array(65)) })],
    ['an extended label', 'label_type', 1, query({ question: concatenated(Uint8Array.of(0x80), new Uint8Array(65)) })],
    ['an unterminated name', 'truncated', 1, query({ question: Uint8Array.of(63) })],
    ['no class in its question', 'truncated', 1, query({}).subarray(0, 32)],
    ['a name of 256 bytes', 'name_too_long', 1, query({ question: nameBytes(63, 63, 63, 62) })],
    ['128 labels', 'name_too_long', 1, query({ question: nameBytes(...Array.from({ length: 128 }, () => 1)) })],
  ])('`readQuery` rejects an invalid query (%s), and returns the fault %s', (_, fault, rcode, bytes) => {
    const flags = ((bytes[2] as number) << 8) | (bytes[3] as number);
    expect(readQuery(bytes)).toEqual({ fault, id: 7, rcode, flags });
  });

  it('`readQuery` rejects a query that is truncated at any byte', () => {
    const whole = query({ additionals: [{ ...OPT, data: concatenated(u16s(10, 8), new Uint8Array(8)) }] });
    for (let length = 0; length < whole.length; length++) {
      expect(readQuery(whole.subarray(0, length))).toHaveProperty('fault');
    }
    expect(readQuery(whole)).not.toHaveProperty('fault');
  });

  it('`readQuery` accepts a name of 255 bytes and a name of 127 labels', () => {
    for (const question of [nameBytes(63, 63, 63, 61), nameBytes(...Array.from({ length: 127 }, () => 1))]) {
      expect(readQuery(query({ question }))).toMatchObject({ name: question });
    }
  });

  it.each([
    [true, false, false, 0x0100],
    [false, true, false, 0x0010],
    [true, true, true, 0x0130],
  ])(
    '`readQuery` reads back a query from writeQuery with the flags RD %s, CD %s, AD %s',
    (recursionDesired, checkingDisabled, authenticData, flags) => {
      const edns = { payload: 1232, version: 0, dnssecOk: true, options: [{ code: 12, data: new Uint8Array(3) }] };
      const question = { id: 0x1234, name: nameOf(['Www', 'a.b']), type: TYPE.https, class: CLASS.in };
      for (const of of [edns, null]) {
        const bytes = writeQuery({ ...question, recursionDesired, checkingDisabled, authenticData, edns: of });
        expect(readQuery(bytes)).toEqual({ ...question, flags, opcode: 0, key: '\x03www\x03a.b\0', edns: of });
      }
    },
  );
});

function nameBytes(...lengths: readonly number[]): Uint8Array {
  return concatenated(
    ...lengths.map((length) => Uint8Array.of(length, ...new Uint8Array(length).fill(0x61))),
    name(''),
  );
}
