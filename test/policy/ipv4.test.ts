import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  containsPrefix,
  formatAddress,
  formatPrefix,
  lastAddress,
  mask,
  parseAddress,
  parseCidr,
} from '#policy/model/ipv4.js';

const address = fc.integer({ min: 0, max: 0xffff_ffff });
const length = fc.integer({ min: 0, max: 32 });

describe('IPv4 parsers and formatters', () => {
  it('`parseAddress` returns the number that `formatAddress` formatted', () => {
    fc.assert(
      fc.property(address, (number) => {
        expect(parseAddress(formatAddress(number))).toBe(number);
      }),
    );
  });

  it('`parseCidr` returns the prefix that `formatPrefix` formatted', () => {
    fc.assert(
      fc.property(address, length, (number, bits) => {
        const prefix = { address: mask(number, bits), length: bits };
        expect(parseCidr(formatPrefix(prefix))).toEqual({ prefix, hostBits: false });
      }),
    );
  });

  it('`parseCidr` clears host bits, and reports whether the text had any host bits', () => {
    fc.assert(
      fc.property(address, length, (number, bits) => {
        const size = 2 ** (32 - bits);
        const first = Math.floor(number / size) * size;
        expect(parseCidr(`${formatAddress(number)}/${bits}`)).toEqual({
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

  it('`parseAddress` accepts a text only if `formatAddress` returns the same text', () => {
    const character = fc.constantFrom(...'0123456789./ x-');
    fc.assert(
      fc.property(fc.array(character, { maxLength: 16 }), (characters) => {
        const text = characters.join('');
        const number = parseAddress(text);
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
  ])('`parseAddress` rejects %j', (text) => {
    expect(parseAddress(text)).toBeUndefined();
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
  ])('`parseCidr` rejects %j', (text) => {
    expect(parseCidr(text)).toBeUndefined();
  });

  it('`parseCidr` reads an address without a length as a /32', () => {
    expect(parseCidr('10.0.0.1')).toEqual({ prefix: { address: 0x0a000001, length: 32 }, hostBits: false });
  });
});
