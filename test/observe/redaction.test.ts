import { describe, expect, it } from 'vitest';
import { LogRing } from '#observe/log/log-ring.js';
import { redacted, redactedBytes } from '#observe/log/redaction.js';

const KEY = '-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\nqUQDQgAE\n-----END EC PRIVATE KEY-----';

describe('the redaction of secrets in a text', () => {
  it.each([
    ['replaces a private key', `a ${KEY} b`, 'a [private key] b'],
    ['replaces a private key inside JSON', `{"key":${JSON.stringify(KEY)},"x":1}`, '{"key":"[private key]","x":1}'],
    ['replaces the beginning of a private key', KEY.slice(0, 60), '[private key]'],
    ['replaces a web token', 'sent eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJ4In0.c2ln-_x.', 'sent [token].'],
    ['replaces credentials', 'authorization: Bearer abc.DEF-123', 'authorization: Bearer [credentials]'],
    ['keeps a certificate', '-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----', null],
    ['keeps other words', 'the bearer of basic information', null],
  ])('the redaction of secrets %s, in a string and in bytes', (_, text, kept) => {
    expect([redacted(text), redactedBytes(Buffer.from(text)).toString()]).toEqual([kept ?? text, kept ?? text]);
  });
});

describe('`LogRing`', () => {
  it('`LogRing` returns only the latest lines within the limits of size and age', () => {
    let now = 0;
    const ring = new LogRing(10, 100, () => now);
    for (const line of ['aaaa', 'bbbb', 'cccc']) ring.write(line);
    expect(ring.lines()).toEqual(['bbbb', 'cccc']);
    now = 101;
    ring.write('d');
    expect(ring.lines()).toEqual(['d']);
    ring.write('longer than all of it');
    expect(ring.lines()).toEqual([]);
  });

  it('`LogRing` counts the bytes of a line in UTF-8', () => {
    const ring = new LogRing(10);
    for (const line of ['öööö', 'bbb']) ring.write(line);
    expect(ring.lines()).toEqual(['bbb']);
  });
});
