import { isIPv6 } from 'node:net';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  addressAfter,
  containsPrefix,
  covers,
  formatAddress,
  formatPrefix,
  lastAddress,
  mask,
  parseAddress,
  parseCidr,
  parseIpv4Address,
  parseIpv4Cidr,
} from '#addresses/ip-address.js';
import type { Prefix } from '#contracts/policy/policy-model.js';

const address = fc.integer({ min: 0, max: 0xffff_ffff });
const length = fc.integer({ min: 0, max: 32 });

describe('IPv4 parsers and formatters', () => {
  it('`parseIpv4Address` returns the number that `formatAddress` formatted', () => {
    fc.assert(
      fc.property(address, (number) => {
        expect(parseIpv4Address(formatAddress(number))).toBe(number);
      }),
    );
  });

  it('`parseIpv4Cidr` returns the prefix that `formatPrefix` formatted', () => {
    fc.assert(
      fc.property(address, length, (number, bits) => {
        const prefix = { address: mask(number, bits), length: bits };
        expect(parseIpv4Cidr(formatPrefix(prefix))).toEqual({ prefix, hostBits: false });
      }),
    );
  });

  it('`parseIpv4Cidr` clears host bits, and reports whether the text had any host bits', () => {
    fc.assert(
      fc.property(address, length, (number, bits) => {
        const size = 2 ** (32 - bits);
        const first = Math.floor(number / size) * size;
        expect(parseIpv4Cidr(`${formatAddress(number)}/${bits}`)).toEqual({
          prefix: { address: first, length: bits },
          hostBits: first !== number,
        });
      }),
    );
  });

  it('`lastAddress` returns the last address of a prefix, and `containsPrefix` returns whether one prefix contains all addresses of the other', () => {
    fc.assert(
      fc.property(address, length, address, length, (a, aBits, b, bBits) => {
        const outer = { address: mask(a, aBits), length: aBits };
        const inner = { address: mask(b, bBits), length: bBits };
        expect(lastAddress(outer)).toBe(outer.address + 2 ** (32 - aBits) - 1);
        const holds = outer.address <= inner.address && lastAddress(inner) <= lastAddress(outer);
        expect(containsPrefix(outer, inner)).toBe(holds);
      }),
    );
  });

  it('`parseIpv4Address` accepts a text only if `formatAddress` returns the same text', () => {
    const character = fc.constantFrom(...'0123456789./ x-');
    fc.assert(
      fc.property(fc.array(character, { maxLength: 16 }), (characters) => {
        const text = characters.join('');
        const number = parseIpv4Address(text);
        if (number !== undefined) expect(formatAddress(number)).toBe(text);
      }),
      { numRuns: 2000 },
    );
  });

  it.each([
    '',
    '1',
    '1.2.3',
    '1.2.3.4.5',
    '1.2.3.',
    '.1.2.3',
    '1..2.3',
    '01.2.3.4',
    '1.2.3.04',
    '256.1.1.1',
    '1.2.3.999',
    '1.2.3.4 ',
    ' 1.2.3.4',
    '0x7f.0.0.1',
    '1.2.3.4/32',
    '1.2.3.-4',
    '١.2.3.4',
    '4294967295',
    '1.2.3.4.',
    '1.2.3.1e1',
  ])('`parseIpv4Address` rejects %j', (text) => {
    expect(parseIpv4Address(text)).toBeUndefined();
  });

  it.each([
    '1.2.3.4/33',
    '1.2.3.4/',
    '1.2.3.4/08',
    '1.2.3.4/-1',
    '/24',
    '1.2.3/24',
    '1.2.3.4/24/8',
    '1.2.3.4/1.5',
    '::/0',
  ])('`parseIpv4Cidr` rejects %j', (text) => {
    expect(parseIpv4Cidr(text)).toBeUndefined();
  });

  it('`parseIpv4Cidr` reads an address without a length as a /32', () => {
    expect(parseIpv4Cidr('10.0.0.1')).toEqual({ prefix: { address: 0x0a000001, length: 32 }, hostBits: false });
  });
});

const ipv6 = fc
  .array(fc.constantFrom(0, 0, 0, 1, 0xab, 0xffff), { minLength: 8, maxLength: 8 })
  .map((words) => words.reduce((whole, word) => (whole << 16n) | BigInt(word), 0n));
const ipv6Length = fc.integer({ min: 0, max: 128 });

/** The text that the URL standard gives an IPv6 address. It never has dotted decimals. */
const textInUrl = (text: string): string => new URL(`http://[${text}]/`).hostname.slice(1, -1);
const wordsOf = (address: bigint): string[] =>
  Array.from({ length: 8 }, (_, at) => ((address >> BigInt(112 - 16 * at)) & 0xffffn).toString(16));

describe('IPv6 parsers and formatters', () => {
  it('`formatAddress` writes the text of RFC 5952, and `parseAddress` reads it', () => {
    fc.assert(
      fc.property(ipv6, (address) => {
        const text = formatAddress(address);
        expect(parseAddress(text)).toBe(address);
        expect(textInUrl(text)).toBe(textInUrl(wordsOf(address).join(':')));
        if (!text.includes('.')) expect(text).toBe(textInUrl(text));
      }),
      { numRuns: 2_000 },
    );
  });

  it.each([
    ['::', '::'],
    ['0:0:0:0:0:0:0:1', '::1'],
    ['2001:DB8::00A0', '2001:db8::a0'],
    ['2001:db8:0:1:1:1:1:1', '2001:db8:0:1:1:1:1:1'],
    ['2001:0:0:1:0:0:0:1', '2001:0:0:1::1'],
    ['2001:db8:0:0:1:0:0:1', '2001:db8::1:0:0:1'],
    ['1::', '1::'],
    ['64:ff9b::192.0.2.33', '64:ff9b::c000:221'],
    ['::ffff:c000:221', '::ffff:192.0.2.33'],
  ])('the text of %s is %s', (text, canonical) => {
    expect(formatAddress(parseAddress(text) ?? 0)).toBe(canonical);
  });

  it.each([
    ':',
    ':::',
    '1::2::3',
    '1:2:3:4:5:6:7',
    '1:2:3:4:5:6:7:8:9',
    '1:2:3:4:5:6:7:8::',
    '12345::',
    'g::',
    '::1.2.3',
    '::256.1.1.1',
    '1.2.3.4::',
    'fe80::1%eth0',
    '[::1]',
    ' ::1',
    '::1/64',
  ])('`parseAddress` rejects %j', (text) => {
    expect(parseAddress(text)).toBeUndefined();
  });

  it('`parseAddress` accepts the same IPv6 texts as `isIPv6` of Node.js, except zone ids', () => {
    const part = fc.constantFrom(':', ':', '::', '0', 'a', '1f', 'ffff', '12345', 'g', '1.2.3.4', '256.0.0.1', '%1');
    fc.assert(
      fc.property(fc.array(part, { maxLength: 18 }), (parts) => {
        const text = parts.join('');
        const isAddress = isIPv6(text) && !text.includes('%');
        expect([text, typeof parseAddress(text) === 'bigint']).toEqual([text, isAddress]);
      }),
      { numRuns: 5_000 },
    );
  });

  it.each(['::/129', '::/', '::/-1', '::/01', '/64', '2001:db8::1%eth0/64', '::/1.5'])(
    '`parseCidr` rejects %j',
    (text) => {
      expect(parseCidr(text)).toBeUndefined();
    },
  );

  it('`parseCidr` reads what `formatPrefix` writes, and clears host bits', () => {
    fc.assert(
      fc.property(ipv6, ipv6Length, (address, length) => {
        const masked = mask(address, length);
        const read = parseCidr(`${formatAddress(address)}/${length}`);
        expect(read).toEqual({ prefix: { address: masked, length }, hostBits: masked !== address });
        expect(parseCidr(formatPrefix({ address: masked, length }))?.prefix).toEqual({ address: masked, length });
      }),
    );
  });

  it('a prefix has the addresses from its first to its last, and `addressAfter` follows them', () => {
    fc.assert(
      fc.property(ipv6, ipv6Length, ipv6, ipv6Length, (one, oneLength, other, otherLength) => {
        const outer = { address: mask(one, oneLength), length: oneLength };
        const inner = { address: mask(other, otherLength), length: otherLength };
        const last = lastAddress(outer);
        expect(last - outer.address + 1n).toBe(2n ** BigInt(128 - oneLength));
        expect(addressAfter(outer)).toBe(last === 2n ** 128n - 1n ? undefined : last + 1n);
        expect(covers(outer, other)).toBe(outer.address <= other && other <= last);
        expect(containsPrefix(outer, inner)).toBe(outer.address <= inner.address && lastAddress(inner) <= last);
      }),
    );
  });

  it('no prefix of one family covers an address or a prefix of the other', () => {
    const [ipv4Any, ipv6Any] = ['0.0.0.0/0', '::/0'].map((text) => parseCidr(text)?.prefix) as [Prefix, Prefix];
    for (const number of [0, 1, 0x0a00_0001, 0xffff_ffff]) {
      expect(covers(ipv6Any, number)).toBe(false);
      expect(covers(ipv4Any, BigInt(number))).toBe(false);
    }
    expect(containsPrefix(ipv4Any, ipv6Any)).toBe(false);
    expect(containsPrefix(ipv6Any, ipv4Any)).toBe(false);
  });
});
