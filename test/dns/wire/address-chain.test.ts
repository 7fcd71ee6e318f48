import { describe, expect, it } from 'vitest';
import { CLASS, TYPE } from '#dns/wire/dns-numbers.js';
import { type Message, readMessage } from '#dns/wire/message/dns-message.js';
import { keyOf } from '#dns/wire/name.js';
import { addressesOf, cacheSecondsOf, type Found } from '#dns/wire/records/address-chain.js';
import { concatenated, messageBytes, name, type RawRecord, u32s } from './message-bytes.js';

const a = (owner: string, last: number, ttl = 60): RawRecord => ({
  name: name(owner),
  ttl,
  data: Uint8Array.of(192, 0, 2, last),
});
const cname = (owner: string, target: string, ttl = 60): RawRecord => ({
  name: name(owner),
  type: TYPE.cname,
  ttl,
  data: name(target),
});
const soa = (zone: string, ttl: number, minimum: number): RawRecord => ({
  name: name(zone),
  type: TYPE.soa,
  ttl,
  data: concatenated(name('ns'), name('root'), u32s(1, 2, 3, 4, minimum)),
});
const answer = (raw: Parameters<typeof messageBytes>[0]): Message => {
  const message = readMessage(messageBytes({ question: name('a.test'), ...raw }));
  if ('fault' in message) throw new Error(message.fault);
  return message;
};
const found = (raw: Parameters<typeof messageBytes>[0]): Found => addressesOf(answer(raw));
const keys = (...names: readonly string[]): string[] => names.map((text) => keyOf(name(text)));
const address = (last: number, ttl = 60): Found['addresses'][number] => ({ address: 0xc000_0200 + last, ttl });

/** A chain of CNAME records: `a.test` points to `n1.test`, `n1.test` points to `n2.test`, and so on. */
const links = (count: number): RawRecord[] =>
  Array.from({ length: count }, (_, index) => cname(index === 0 ? 'a.test' : `n${index}.test`, `n${index + 1}.test`));

describe('addressesOf', () => {
  it('`addressesOf` (addresses of the queried name in a DNS answer) returns the addresses of records whose owner name differs from the queried name only in letter case', () => {
    expect(found({ answers: [a('A.teST', 1, 5), a('a.test', 255, 0)] })).toEqual({
      chain: keys('a.test'),
      addresses: [address(1, 5), address(255, 0)],
      complete: true,
    });
  });

  it('`addressesOf` returns an address as an unsigned 32-bit number', () => {
    const data = Uint8Array.of(255, 255, 255, 255);
    expect(found({ answers: [{ name: name('a.test'), data }] }).addresses).toEqual([{ address: 0xffff_ffff, ttl: 60 }]);
  });

  it('`addressesOf` returns the addresses of AAAA records as bigints, and of records of another type none', () => {
    const data = Uint8Array.of(0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff);
    const answers = [
      cname('a.test', 'b.test', 30),
      { name: name('b.test'), type: TYPE.aaaa, ttl: 60, data },
      a('b.test', 1),
    ];
    expect(found({ type: TYPE.aaaa, answers }).addresses).toEqual([
      { address: 0x2001_0db8_0000_0000_0000_0000_0000_00ffn, ttl: 30 },
    ]);
    expect(found({ answers }).addresses).toEqual([address(1, 30)]);
  });

  it('`addressesOf` follows CNAME records in any order, and returns each address with the least TTL of the chain', () => {
    const chain = [
      a('c.test', 1, 300),
      cname('B.test', 'c.test', 100),
      cname('a.test', 'b.TEST', 200),
      a('c.test', 2, 50),
    ];
    expect(found({ answers: chain })).toEqual({
      chain: keys('a.test', 'b.test', 'c.test'),
      addresses: [address(1, 100), address(2, 50)],
      complete: true,
    });
  });

  it('`addressesOf` ignores addresses of names outside the CNAME chain', () => {
    const answers = [
      a('bank.test', 9),
      a('test', 9),
      a('x.a.test', 9),
      a('', 9),
      cname('bank.test', 'a.test'),
      a('a.test', 1),
    ];
    expect(found({ answers })).toEqual({ chain: keys('a.test'), addresses: [address(1)], complete: true });
  });

  it('`addressesOf` ignores addresses after a missing CNAME record of the chain', () => {
    const answers = [cname('a.test', 'b.test'), cname('c.test', 'd.test'), a('d.test', 1)];
    expect(found({ answers })).toEqual({ chain: keys('a.test', 'b.test'), addresses: [], complete: true });
  });

  it('`addressesOf` follows a DNAME record only through its synthesized CNAME record', () => {
    const dname = { name: name('test'), type: TYPE.dname, data: name('example') };
    const answers = [dname, cname('a.test', 'a.example'), a('a.example', 1)];
    expect(found({ answers })).toEqual({ chain: keys('a.test', 'a.example'), addresses: [address(1)], complete: true });
    expect(found({ answers: [dname, a('a.example', 1)] }).addresses).toEqual([]);
  });

  it.each([
    [0, 1, true],
    [1, 2, true],
    [16, 17, true],
    [17, 17, false],
    [100, 17, false],
  ])(
    '`addressesOf` follows a chain of %i CNAME records through %i names, and tells whether the chain was complete: %s',
    (count, names, complete) => {
      const last = count === 0 ? 'a.test' : `n${count}.test`;
      const read = found({ answers: [...links(count), a(last, 1)] });
      expect([read.chain.length, read.complete]).toEqual([names, complete]);
      expect(read.addresses).toEqual(complete ? [address(1)] : []);
    },
  );

  it.each([
    ['its own owner name', [cname('a.test', 'A.TEST')]],
    ['the queried name', [cname('a.test', 'b.test'), cname('b.test', 'a.test')]],
    ['an earlier alias', [cname('a.test', 'b.test'), cname('b.test', 'c.test'), cname('c.test', 'b.test')]],
    ['two different names', [cname('a.test', 'b.test'), cname('a.test', 'c.test')]],
  ])(
    '`addressesOf` returns no addresses of a CNAME chain that is a loop or ambiguous, because it leads to %s',
    (_, answers) => {
      const addresses = ['a.test', 'b.test', 'c.test'].map((owner) => a(owner, 1));
      expect(found({ answers: [...answers, ...addresses] })).toMatchObject({ addresses: [], complete: false });
    },
  );

  it('`addressesOf` accepts a repeated CNAME record that differs only in its TTL', () => {
    const answers = [cname('a.test', 'b.test', 9), cname('a.test', 'b.test', 8), a('b.test', 1)];
    expect(found({ answers })).toEqual({ chain: keys('a.test', 'b.test'), addresses: [address(1, 8)], complete: true });
  });

  it.each([
    ['rcode 3', { flags: 0x8183 }],
    ['rcode 2', { flags: 0x8182 }],
    [
      'an extended rcode',
      { additionals: [{ name: name(''), type: TYPE.opt, ttl: 0x0100_0000, data: new Uint8Array(0) }] },
    ],
    ['the flag TC', { flags: 0x8380 }],
    ['another class in its question', { class: CLASS.ch }],
    ['another type in its question', { type: TYPE.aaaa }],
  ])(
    '`addressesOf` returns no addresses if the answer is an error, truncated or for another question, because it has %s',
    (_, raw) => {
      expect(found({ answers: [a('a.test', 1)], ...raw }).addresses).toEqual([]);
    },
  );

  it('`addressesOf` ignores A records of another class, and A records outside the answer section', () => {
    const others = [a('a.test', 1)];
    const answers = [{ ...a('a.test', 1), class: CLASS.ch }];
    expect(found({ answers, authorities: others, additionals: others }).addresses).toEqual([]);
  });
});

describe('cacheSecondsOf', () => {
  const answers = [cname('a.test', 'b.test', 30), a('b.test', 1, 20)];
  const nothing = [soa('test', 100, 50)];

  it.each([
    ['for the least TTL of its records', 20, { answers }],
    ['not at all with a TTL of 0', 0, { answers: [a('a.test', 1, 0)] }],
    ['not at all if the highest bit of a TTL is set', 0, { answers: [a('a.test', 1, 0x8000_0000)] }],
    ['not at all after an error', 0, { answers, flags: 0x8182 }],
    ['not at all if it is truncated', 0, { answers, flags: 0x8380 }],
    ['not at all if its CNAME chain is a loop', 0, { answers: [cname('a.test', 'a.test')], authorities: nothing }],
    ['for the minimum of the SOA if the name does not exist', 50, { authorities: nothing, flags: 0x8183 }],
    ['for the minimum of the SOA if the type does not exist', 50, { authorities: nothing }],
    ['for the TTL of the SOA, if less than the minimum', 40, { authorities: [soa('test', 40, 50)] }],
    [
      'for the TTL of a chain without addresses',
      30,
      { answers: [cname('a.test', 'b.test', 30)], authorities: nothing },
    ],
    ['not at all without an SOA', 0, { flags: 0x8183 }],
    ['not at all if the end of its CNAME chain is missing', 0, { answers: [cname('a.test', 'b.test', 30)] }],
    ['not at all with the SOA of another zone', 0, { authorities: [soa('b.test', 100, 50)] }],
    ['not at all with the SOA of a zone that is only a suffix of the text', 0, { authorities: [soa('est', 100, 50)] }],
    ['for the minimum of the SOA of the root zone', 50, { authorities: [soa('', 100, 50)] }],
    [
      'for the TTL of the CNAME if the question has type CNAME',
      30,
      { answers: [cname('a.test', 'b.test', 30)], type: TYPE.cname },
    ],
    [
      'for the TTL of the CNAME if the question has type ANY',
      30,
      { answers: [cname('a.test', 'b.test', 30)], type: TYPE.any },
    ],
  ])('`cacheSecondsOf` returns how long a cache may keep an answer: %s, %i seconds', (_, seconds, raw) => {
    expect(cacheSecondsOf(answer(raw))).toBe(seconds);
  });
});
