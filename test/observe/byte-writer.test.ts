import { expect, test } from 'vitest';
import { formatAddress } from '#addresses/ip-address.js';
import { ByteWriter, bytesOf } from '#observe/wiretap/messages/byte-writer.js';

const written = (write: (out: ByteWriter) => void): string => {
  const out = new ByteWriter();
  write(out);
  return new TextDecoder().decode(out.bytes.subarray(0, out.length));
};

test.each([0, 9, 10, 99, 100, 65_535, 4_294_967_295, 4_294_967_296, 9_007_199_254_740_991])(
  '`ByteWriter.number` writes %d in decimal digits',
  (value) => {
    expect(written((out) => out.number(value))).toBe(String(value));
  },
);

test.each([0, 1, 0x0a00_0107, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff])(
  '`ByteWriter.address` writes the 32-bit address %d in dotted decimal',
  (address) => {
    expect(written((out) => out.address(address))).toBe(formatAddress(address));
  },
);

test('`ByteWriter` grows the buffer without loss of the bytes written before', () => {
  const text = 'ä'.repeat(50_000);
  expect(
    written((out) => {
      out.put(bytesOf('begin '));
      out.text(text);
      out.number(1);
      for (let part = 0; part < 10_000; part++) out.put(bytesOf('0123456789'));
    }),
  ).toBe(`begin ${text}1${'0123456789'.repeat(10_000)}`);
});
