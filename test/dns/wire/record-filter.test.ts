import { describe, expect, it } from 'vitest';
import type { Address } from '#contracts/policy/policy-model.js';
import { CLASS, TYPE } from '#dns/wire/dns-numbers.js';
import { type Message, type ResourceRecord, readMessage } from '#dns/wire/message/dns-message.js';
import { withoutUnenforceable } from '#dns/wire/records/record-filter.js';
import { concatenated, messageBytes, name, u16s } from './message-bytes.js';

const record = (owner: string, type: number, data: Uint8Array): ResourceRecord => ({
  name: name(owner),
  type,
  class: CLASS.in,
  ttl: 60,
  data,
});
const a = (owner: string, last: number): ResourceRecord => record(owner, TYPE.a, Uint8Array.of(192, 0, 2, last));
const aaaa = (owner: string): ResourceRecord => record(owner, TYPE.aaaa, new Uint8Array(16));
const rrsig = (owner: string, covered: number): ResourceRecord =>
  record(owner, TYPE.rrsig, concatenated(u16s(covered), new Uint8Array(16), name('test'), new Uint8Array(8)));
const https = (...parameters: readonly number[]): ResourceRecord =>
  record('a.test', TYPE.https, concatenated(u16s(1), name('svc.test'), u16s(...parameters)));
const ipv4hint = [4, 8, 0xc000, 0x0201, 0xc000, 0x0202];
const ipv6hint = [6, 16, 0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
const port = [3, 2, 443];
const ech = [5, 6, 0x0004, 0xfe0d, 0x0000];

const answer = (sections: Partial<Message>): Message => ({
  ...(readMessage(messageBytes({ question: name('a.test') })) as Message),
  ...sections,
});
const never = (): boolean => false;

describe('withoutUnenforceable', () => {
  it('`withoutUnenforceable` removes AAAA records from every section of a DNS answer', () => {
    const kept = [record('a.test', TYPE.txt, Uint8Array.of(0))];
    const all = [aaaa('a.test'), ...kept, aaaa('ns.test')];
    const before = answer({ answers: all, authorities: all, additionals: all });
    const after = answer({ answers: kept, authorities: kept, additionals: kept });
    expect(withoutUnenforceable(before, never)).toEqual({ message: after, removed: 6 });
  });

  it('`withoutUnenforceable` removes A records of a DNS answer for which the function `drop` returns true', () => {
    const seen: Address[] = [];
    const before = answer({ answers: [a('a.test', 1), a('a.test', 2)] });
    const after = withoutUnenforceable(before, (address) => {
      seen.push(address);
      return address === 0xc000_0202;
    });
    expect(after).toEqual({ message: answer({ answers: [a('a.test', 1)] }), removed: 1 });
    expect(seen).toEqual([0xc000_0201, 0xc000_0202]);
  });

  it('`withoutUnenforceable` keeps the AAAA records of an AAAA answer if IPv6 addresses are granted, and removes those that `drop` names and those of other names and sections', () => {
    const to = (type: number): Message['question'] => ({ name: name('a.test'), type, class: CLASS.in });
    const of = (owner: string, last: number): ResourceRecord =>
      record(owner, TYPE.aaaa, Uint8Array.of(0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last));
    const kept = [of('a.test', 1), rrsig('a.test', TYPE.a)];
    const before = answer({
      question: to(TYPE.aaaa),
      answers: [...kept, of('a.test', 2), of('b.test', 1), a('a.test', 1)],
      additionals: [of('a.test', 1)],
    });
    const drop = (address: Address): boolean => address === 0x2001_0db8_0000_0000_0000_0000_0000_0002n;
    const why: string[] = [];
    const after = withoutUnenforceable(before, drop, undefined, (reason) => why.push(reason), true);
    const left = answer({ question: to(TYPE.aaaa), answers: [kept[0] as ResourceRecord] });
    expect({ ...after, why: why.sort() }).toEqual({
      message: left,
      removed: 4,
      why: ['other_name', 'other_name', 'other_name', 'rebinding', 'signature'],
    });
    const both = answer({ question: to(TYPE.any), answers: [a('a.test', 1), of('a.test', 1)] });
    expect(withoutUnenforceable(both, never, undefined, undefined, true)).toEqual({ message: both, removed: 0 });
    const ofOther = answer({ question: to(TYPE.a), answers: [of('a.test', 1)] });
    expect(withoutUnenforceable(ofOther, never, undefined, undefined, true).message.answers).toEqual([]);
  });

  it('`withoutUnenforceable` keeps only the first 128 A records of an answer', () => {
    const many = Array.from({ length: 200 }, (_, last) => a('a.test', last));
    const { message, removed } = withoutUnenforceable(answer({ answers: [...many, rrsig('a.test', TYPE.a)] }), never);
    expect([message.answers, removed]).toEqual([many.slice(0, 128), 72]);
    expect(withoutUnenforceable(answer({ answers: many.slice(0, 128) }), never).removed).toBe(0);
  });

  it('`withoutUnenforceable` removes A records of names outside the CNAME chain, and A records outside the answer section', () => {
    const chain = [record('a.test', TYPE.cname, name('b.test')), a('b.test', 1)];
    const before = answer({
      answers: [a('c.test', 2), ...chain],
      authorities: [a('a.test', 3)],
      additionals: [a('b.test', 1)],
    });
    expect(withoutUnenforceable(before, never)).toEqual({ message: answer({ answers: chain }), removed: 3 });
  });

  it.each([
    ['with NXDOMAIN', { rcode: 3 }],
    ['to a question for another type', { question: { name: name('a.test'), type: TYPE.txt, class: CLASS.in } }],
    ['that was truncated', { flags: 0x8380 }],
  ])(
    '`withoutUnenforceable` removes every A record of an answer that is negative, truncated or for another question type: an answer %s',
    (_, what) => {
      const before = answer({ ...what, answers: [a('a.test', 1)] });
      expect(withoutUnenforceable(before, never)).toEqual({ message: answer({ ...what, answers: [] }), removed: 1 });
    },
  );

  it.each([
    ['hints and a port', [...port, ...ipv4hint, ...ipv6hint], port],
    ['only an IPv4 hint', ipv4hint, []],
    ['an IPv6 hint before another key', [...ipv6hint, 7, 2, 0x2f71], [7, 2, 0x2f71]],
    ['mandatory hints', [0, 6, 3, 4, 6, ...port, ...ipv4hint, ...ipv6hint], [0, 2, 3, ...port]],
    ['a mandatory IPv4 hint', [0, 2, 4, ...port, ...ipv4hint], port],
    ['a mandatory list without its hint', [0, 2, 3, ...port, ...ipv6hint], [0, 2, 3, ...port]],
  ])('`withoutUnenforceable` removes the address hints from an HTTPS record with %s', (_, parameters, left) => {
    const others = [record('a.test', TYPE.rrsig, rrsig('a.test', TYPE.a).data)];
    const before = answer({ answers: [https(...parameters), rrsig('a.test', TYPE.https), ...others] });
    const after = withoutUnenforceable(before, never);
    expect(after).toEqual({ message: answer({ answers: [https(...left), ...others] }), removed: 1 });
    expect(before.answers[0]).toEqual(https(...parameters));
  });

  it.each([
    ['an ECH key and a port', [...port, ...ech], port, ['ech']],
    ['only an ECH key', ech, [], ['ech']],
    ['a mandatory ECH key', [0, 4, 3, 5, ...port, ...ech], [0, 2, 3, ...port], ['ech']],
    ['an ECH key as the only mandatory key', [0, 2, 5, ...ech], [], ['ech']],
    ['address hints and an ECH key', [...port, ...ipv4hint, ...ech, ...ipv6hint], port, ['hint', 'ech']],
  ])(
    '`withoutUnenforceable` removes the key for Encrypted Client Hello from an HTTPS and an SVCB record with %s',
    (_, parameters, left, whys) => {
      for (const type of [TYPE.https, TYPE.svcb]) {
        const seen: string[] = [];
        const of = (numbers: readonly number[]) => ({ ...https(...numbers), type });
        const before = answer({
          flags: 0x81a0,
          answers: [of(parameters), rrsig('a.test', type)],
          additionals: [of(parameters)],
        });
        const after = withoutUnenforceable(before, never, undefined, (why) => seen.push(why));
        const message = answer({ flags: 0x8180, answers: [of(left)], additionals: [of(left)] });
        expect([after, seen]).toEqual([{ message, removed: 2 }, [...whys, ...whys, 'signature']]);
      }
    },
  );

  it('`withoutUnenforceable` removes the RRSIG records of record sets from which it removes records, and keeps other RRSIG records', () => {
    const before = answer({
      answers: [aaaa('A.test'), rrsig('a.TEST', TYPE.aaaa), rrsig('a.test', TYPE.a), rrsig('b.test', TYPE.aaaa)],
      additionals: [rrsig('a.test', TYPE.aaaa), rrsig('a.test', TYPE.https)],
    });
    expect(withoutUnenforceable(before, never)).toEqual({
      message: answer({
        answers: [rrsig('a.test', TYPE.a), rrsig('b.test', TYPE.aaaa)],
        additionals: [rrsig('a.test', TYPE.https)],
      }),
      removed: 1,
    });
  });

  it('`withoutUnenforceable` clears the flag AD (authentic data) if it removes a record', () => {
    const before = answer({ flags: 0x81a0, answers: [aaaa('a.test')] });
    expect(withoutUnenforceable(before, never).message).toEqual(answer({ flags: 0x8180, answers: [] }));
  });

  it('`withoutUnenforceable` returns the same message object if it removes no record', () => {
    const messages = [
      answer({}),
      answer({ answers: [a('a.test', 1), rrsig('a.test', TYPE.a)] }),
      answer({ flags: 0x81a0, answers: [https(0, 2, 3, ...port)] }),
      answer({ answers: [rrsig('a.test', TYPE.aaaa)] }),
    ];
    for (const message of messages) expect(withoutUnenforceable(message, never).message).toBe(message);
  });
});
