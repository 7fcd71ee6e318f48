import { describe, expect, it } from 'vitest';
import { isPlain, isWithin, keyOf, labelsOf, nameOf, presentationOf } from '#dns/wire/name.js';

const key = (...labels: readonly string[]): string => keyOf(nameOf(labels));

describe('DNS names', () => {
  it('the key by which DNS names are compared is the same for any case of their ASCII letters', () => {
    expect(key('WWW', 'eXample', 'CoM')).toBe('\x03www\x07example\x03com\0');
    expect(key('@[`{\xc4\xe4')).toBe('\x06@[`{\xc4\xe4\0');
  });

  it('the keys by which DNS names are compared differ if a dot is a byte inside a label instead of a separator', () => {
    expect(key('evil.a.good', 'com')).toBe('\x0bevil.a.good\x03com\0');
    expect(key('evil.a.good', 'com')).not.toBe(key('evil', 'a', 'good', 'com'));
  });

  it.each([
    [[], '.'],
    [['www', 'example', 'com'], 'www.example.com'],
    [['good.com'], 'good\\.com'],
    [['a\\b', 'c'], 'a\\\\b.c'],
    [['a b', '\0', '\x7f', '\xff'], 'a\\032b.\\000.\\127.\\255'],
    [['*', '_dmarc', '!~'], '*._dmarc.!~'],
  ])('DNS names with the labels %j have the presentation form %s', (labels, text) => {
    expect(presentationOf(key(...labels))).toBe(text);
    expect(labelsOf(key(...labels))).toEqual(labels);
  });

  it('DNS names count as plain only if all labels consist of letters, digits, hyphens and underscores', () => {
    const others = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte));
    const plain = others.filter((char) => isPlain(key('www', `a${char}b`, 'com')));
    expect(plain.join('')).toBe('-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz');
    expect(others.filter((char) => isPlain(key(char)))).toEqual(plain);
    expect(isPlain(key())).toBe(true);
  });

  it('DNS names are limited to 255 bytes, and their labels to 63 bytes', () => {
    const longest = [...Array.from({ length: 3 }, () => 'x'.repeat(63)), 'y'.repeat(61)];
    expect(nameOf(longest).length).toBe(255);
    expect(nameOf(Array.from({ length: 127 }, () => 'a')).length).toBe(255);
    expect(labelsOf(key(...longest))).toEqual(longest);
    expect(() => nameOf([...longest.slice(0, 3), 'y'.repeat(62)])).toThrow(RangeError);
    expect(() => nameOf(['x'.repeat(64)])).toThrow(RangeError);
    expect(() => nameOf(['a', '', 'b'])).toThrow(RangeError);
    expect(() => nameOf(['ā'])).toThrow(RangeError);
  });

  it.each([
    [['www', 'example', 'com'], ['example', 'com'], true],
    [['example', 'com'], ['example', 'com'], true],
    [['com'], ['example', 'com'], false],
    [['badexample', 'com'], ['example', 'com'], false],
    [['bad\x07example', 'com'], ['example', 'com'], false],
    [['www'], [], true],
  ])('DNS names with the labels %j are within the zone %j: %s', (labels, zone, within) => {
    expect(isWithin(key(...labels), key(...zone))).toBe(within);
  });
});
