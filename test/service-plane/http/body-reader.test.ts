import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Headers } from '#contracts/service-plane/http-facts.js';
import type { HttpFault } from '#service-plane/http/fault.js';
import type { Framing } from '#service-plane/http/fields.js';
import { BodyReader } from '#service-plane/http/http1/body-reader.js';
import { chunked, lastChunk } from '#service-plane/http/http1/chunks.js';
import { expectEqual } from '#test/expect-equal.js';
import { bytesOf, cutsOf } from './pieces.js';

type Body = {
  readonly data: string;
  readonly isComplete: boolean;
  readonly fault: HttpFault | null;
  readonly trailers: Headers;
  /** The received bytes that follow the body. */
  readonly rest: string;
};

function readBody(framing: Framing, pieces: readonly Buffer[]): Body {
  const reader = new BodyReader(framing);
  let data = '';
  let rest = '';
  for (const piece of pieces) {
    const before = reader.isComplete || reader.fault !== null;
    for (const slice of before ? [] : reader.push(piece)) data += slice.toString('latin1');
    if (before) rest += piece.toString('latin1');
    else if (reader.isComplete) rest += piece.toString('latin1', reader.end);
  }
  const { isComplete, fault, trailers } = reader;
  return { data, isComplete, fault, trailers, rest: fault === null ? rest : '' };
}

const whole = { isComplete: true, fault: null, trailers: [], rest: '' };

const bodies: readonly (readonly [framing: Framing, text: string, body: Body])[] = [
  [0, '', { ...whole, data: '' }],
  [0, 'GET', { ...whole, data: '', rest: 'GET' }],
  [5, 'hello', { ...whole, data: 'hello' }],
  [5, 'helloGET', { ...whole, data: 'hello', rest: 'GET' }],
  [5, 'hell', { ...whole, data: 'hell', isComplete: false }],
  ['until_close', 'hello', { ...whole, data: 'hello', isComplete: false }],
  ['chunked', '0\r\n\r\n', { ...whole, data: '' }],
  ['chunked', '0000\r\n\r\nGET', { ...whole, data: '', rest: 'GET' }],
  ['chunked', '5\r\nhello\r\n0\r\n\r\nGET', { ...whole, data: 'hello', rest: 'GET' }],
  [
    'chunked',
    '1\r\na\r\n0a\r\n0123456789\r\nB\r\n0123456789a\r\n0\r\n\r\n',
    { ...whole, data: 'a01234567890123456789a' },
  ],
  ['chunked', '5;a=b;c="d\te \xe4\\"";d;e="";f=g\r\nhello\r\n0;x\r\n\r\n', { ...whole, data: 'hello' }],
  ['chunked', '2\r\n\r\n\r\n0\r\n\r\n', { ...whole, data: '\r\n' }],
  [
    'chunked',
    '0\r\nX-Sum: 1\r\nx: y\r\n\r\nGET',
    {
      ...whole,
      data: '',
      trailers: [
        ['x-sum', '1', 'X-Sum'],
        ['x', 'y', 'x'],
      ],
      rest: 'GET',
    },
  ],
  ['chunked', '5\r\nhel', { ...whole, data: 'hel', isComplete: false }],
  ['chunked', '0\r\n', { ...whole, data: '', isComplete: false }],
  ['chunked', '1FFFFFFFFFFFFF\r\na', { ...whole, data: 'a', isComplete: false }],
];

const refused: readonly (readonly [text: string, fault: HttpFault])[] = [
  ['\r\n', 'chunk_size'],
  [';a\r\n', 'chunk_size'],
  ['g\r\n', 'chunk_size'],
  ['-1\r\n', 'chunk_size'],
  ['+1\r\n', 'chunk_size'],
  [' 1\r\na\r\n', 'chunk_size'],
  ['1 \r\na\r\n', 'chunk_size'],
  ['1 ;a\r\na\r\n', 'chunk_size'],
  ['1\t\r\na\r\n', 'chunk_size'],
  ['0x1\r\na\r\n', 'chunk_size'],
  ['1_0\r\n', 'chunk_size'],
  ['1,1\r\n', 'chunk_size'],
  ['\xb2\r\n', 'chunk_size'],
  ['20000000000000\r\n', 'chunk_size'],
  ['ffffffffffffffff\r\n', 'chunk_size'],
  ['10000000000000001\r\n', 'chunk_size'],
  ['00000000000000001\r\n', 'chunk_size'],
  ['1\na\r\n', 'bare_lf'],
  ['1\ra\r\n', 'bare_cr'],
  ['1\r\r\na', 'bare_cr'],
  ['1;a\nb\r\n', 'bare_lf'],
  ['1;a\rb\r\n', 'bare_cr'],
  ['1;a\0\r\n', 'chunk_extension'],
  ['1;\r\n', 'chunk_extension'],
  ['1;a=\r\n', 'chunk_extension'],
  ['1;a==b\r\n', 'chunk_extension'],
  ['1;=b\r\n', 'chunk_extension'],
  ['1;;a\r\n', 'chunk_extension'],
  ['1; a\r\n', 'chunk_extension'],
  ['1;a b\r\n', 'chunk_extension'],
  ['1;a="b\r\n', 'chunk_extension'],
  ['1;a="b"c\r\n', 'chunk_extension'],
  ['1;a="\x01"\r\n', 'chunk_extension'],
  ['1;a="\\\r\n', 'chunk_extension'],
  ['1;a\x0b\r\n', 'chunk_extension'],
  ['1;\n\r\n', 'bare_lf'],
  ['1\r\nab\r\n', 'chunk_end'],
  ['1\r\na\n0\r\n\r\n', 'chunk_end'],
  ['1\r\na\r0\r\n\r\n', 'chunk_end'],
  ['1\r\na0\r\n\r\n', 'chunk_end'],
  ['2\r\na\r\n0\r\n\r\n', 'chunk_end'],
  ['0\r\nA\r\n\r\n', 'field_name'],
  ['0\r\n A: b\r\n\r\n', 'leading_space'],
  ['0\r\nA : b\r\n\r\n', 'space_before_colon'],
  ['0\r\nA: b\r\n c\r\n\r\n', 'obs_fold'],
  ['0\r\nA: b\n\r\n', 'bare_lf'],
  ['0\r\n\n', 'bare_lf'],
  ['0\r\n\rGET / HTTP/1.1\r\n', 'bare_cr'],
  ['0\r\nGET / HTTP/1.1\r\n', 'space_before_colon'],
  ['0\r\nContent-Length: 5\r\n\r\n', 'forbidden_trailer'],
  ['0\r\nContent_Length: 5\r\n\r\n', 'forbidden_trailer'],
  ['0\r\nX-User: a\r\nX_User: b\r\n\r\n', 'ambiguous_names'],
  ['0\r\nTransfer-Encoding: chunked\r\n\r\n', 'forbidden_trailer'],
  ['0\r\nhost: b.test\r\n\r\n', 'forbidden_trailer'],
  ['0\r\nConnection: close\r\n\r\n', 'forbidden_trailer'],
  ['0\r\nAuthorization: x\r\n\r\n', 'forbidden_trailer'],
  ['0\r\nCookie: x\r\n\r\n', 'forbidden_trailer'],
  ['0\r\nSet-Cookie: x\r\n\r\n', 'forbidden_trailer'],
  ['0\r\nIf-Match: x\r\n\r\n', 'forbidden_trailer'],
];

describe('BodyReader', () => {
  it.each([
    ['x-user', 'X_User'],
    ['x_user', 'X-User'],
    ['x-a_b', 'X_A-B'],
  ])(
    '`BodyReader` rejects after the header field %s the trailer %s, which differs only in `_` and `-`',
    (named, trailer) => {
      for (const pieces of cutsOf(bytesOf(`0\r\n${trailer}: b\r\n\r\n`))) {
        const reader = new BodyReader('chunked', [[named, 'a', named]]);
        for (const piece of pieces) if (reader.fault === null) reader.push(piece);
        expect([reader.isComplete, reader.fault]).toEqual([false, 'ambiguous_names']);
      }
    },
  );

  it.each(['X-User', 'x_other'])(
    '`BodyReader` accepts the trailer %s, although the request has the field x-user',
    (trailer) => {
      const reader = new BodyReader('chunked', [['x-user', 'a', 'X-User']]);
      reader.push(bytesOf(`0\r\n${trailer}: b\r\n\r\n`));
      expect([reader.isComplete, reader.fault]).toEqual([true, null]);
    },
  );

  it.each(bodies)(
    '`BodyReader` reads an HTTP body with the framing %j from the bytes %j, for every split of the bytes',
    (framing, text, expected) => {
      for (const pieces of cutsOf(bytesOf(text))) expectEqual(readBody(framing, pieces), expected);
    },
  );

  it.each(refused)(
    '`BodyReader` rejects the chunked body %j with the fault %s, for every split of the bytes',
    (text, fault) => {
      for (const pieces of cutsOf(bytesOf(text))) {
        expectEqual({ ...readBody('chunked', pieces), data: '' }, { ...whole, data: '', isComplete: false, fault });
      }
    },
  );

  it('`BodyReader` accepts up to 16 KiB of chunk extensions and 8 KiB of trailers, and rejects more', () => {
    const extended = (length: number): string =>
      `1;${'a'.repeat(10_000)}\r\nx\r\n0;${'a'.repeat(length - 10_000)}\r\n\r\n`;
    const trailed = (length: number): string => `0\r\nX: ${'a'.repeat(length - 7)}\r\n\r\n`;
    const outcome = (text: string): unknown => {
      const { isComplete, fault } = readBody('chunked', [bytesOf(text)]);
      return fault ?? isComplete;
    };
    expect([extended(16_383), extended(16_384), extended(16_385)].map(outcome)).toEqual([
      true,
      true,
      'chunk_extension',
    ]);
    expect([trailed(8_191), trailed(8_192), trailed(8_193)].map(outcome)).toEqual([true, true, 'head_too_long']);
  });

  it('`BodyReader.push` returns body data as views of the pushed chunk, without a copy', () => {
    const piece = bytesOf('hello');
    expect(new BodyReader(9).push(piece)[0]).toBe(piece);
    const [slice] = new BodyReader('chunked').push(bytesOf('5\r\nhello\r\n'));
    expect(slice?.toString()).toBe('hello');
    const chunk = bytesOf('2\r\nab\r\n');
    expect(new BodyReader('chunked').push(chunk)[0]?.buffer).toBe(chunk.buffer);
  });

  it('`BodyReader.finish` returns true for a complete body and for a body that ends with the connection, and false for an incomplete body', () => {
    const finish = (framing: Framing, text: string): boolean => {
      const reader = new BodyReader(framing);
      reader.push(bytesOf(text));
      return reader.finish();
    };
    expect([finish('until_close', 'a'), finish(2, 'a'), finish(1, 'a'), finish('chunked', '1\r\na\r\n')]).toEqual([
      true,
      false,
      true,
      false,
    ]);
  });

  it('`BodyReader` reads the data and trailers that `chunked` and `lastChunk` have written', () => {
    const slices = fc.array(fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 4 }), { maxLength: 6 });
    fc.assert(
      fc.property(slices, fc.array(fc.nat(400), { maxLength: 6 }), (chunks, cuts) => {
        const written = chunks.flatMap((chunk) => chunked(chunk.map((slice) => Buffer.from(slice))));
        const bytes = Buffer.concat([...written, lastChunk([['x-sum', '1', 'X-Sum']])]);
        const places = [...cuts.map((cut) => Math.min(cut, bytes.length)), 0, bytes.length].sort((x, y) => x - y);
        const pieces = places.slice(1).map((place, index) => bytes.subarray(places[index], place));
        expect(readBody('chunked', pieces)).toEqual({
          ...whole,
          data: chunks.flatMap((chunk) => chunk.map((slice) => Buffer.from(slice).toString('latin1'))).join(''),
          trailers: [['x-sum', '1', 'X-Sum']],
        });
      }),
    );
  });
});
