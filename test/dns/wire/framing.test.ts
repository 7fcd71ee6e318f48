import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FrameReader, framed } from '#dns/wire/message/framing.js';
import { concatenated } from './message-bytes.js';

const messages = [Uint8Array.of(1, 2, 3), new Uint8Array(0), new Uint8Array(260).fill(7), Uint8Array.of(9)];
const stream = concatenated(...messages.map(framed));

const read = (reader: FrameReader, ...chunks: readonly Uint8Array[]): Uint8Array[] =>
  chunks.flatMap((chunk) => reader.push(chunk)).map((message) => Uint8Array.from(message));

describe('DNS over TCP framing', () => {
  it('the DNS over TCP framing writes the length before the message, and refuses a message above 65,535 bytes', () => {
    expect(Uint8Array.from(framed(Uint8Array.of(5, 6)))).toEqual(Uint8Array.of(0, 2, 5, 6));
    expect(framed(new Uint8Array(65_535)).length).toBe(65_537);
    expect(() => framed(new Uint8Array(65_536))).toThrow(RangeError);
  });

  it('the DNS over TCP framing splits a stream that arrives in two chunks into its messages, wherever the chunks are cut', () => {
    for (let at = 0; at <= stream.length; at++) {
      const reader = new FrameReader(65_535);
      expect(read(reader, stream.subarray(0, at), stream.subarray(at))).toEqual(messages);
      expect(reader.pending).toBe(0);
    }
  });

  it('the DNS over TCP framing splits a stream that arrives byte by byte, and stores only the bytes of the incomplete message', () => {
    const reader = new FrameReader(65_535);
    const frame = framed(Uint8Array.of(1, 2, 3));
    const pending = Array.from(frame, (byte) => [reader.push(Uint8Array.of(byte)).length, reader.pending]);
    expect(pending).toEqual([
      [0, 1],
      [0, 2],
      [0, 3],
      [0, 4],
      [1, 0],
    ]);
    expect(read(reader, ...Array.from(stream, (byte) => Uint8Array.of(byte)))).toEqual(messages);
  });

  it('the DNS over TCP framing splits a stream that arrives in random chunks into its messages', () => {
    const content = fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 8 });
    fc.assert(
      fc.property(content, fc.array(fc.nat(300), { maxLength: 12 }), (contents, cuts) => {
        const bytes = concatenated(...contents.map(framed));
        const places = [...cuts.map((cut) => Math.min(cut, bytes.length)), 0, bytes.length].sort((x, y) => x - y);
        const chunks = places.slice(1).map((place, index) => bytes.subarray(places[index], place));
        const reader = new FrameReader(65_535);
        expect(read(reader, ...chunks)).toEqual(contents);
        expect(reader.pending).toBe(0);
      }),
    );
  });

  it('the DNS over TCP framing does not change a returned message when later bytes arrive', () => {
    const reader = new FrameReader(65_535);
    reader.push(Uint8Array.of(0, 2, 1));
    const [first] = reader.push(Uint8Array.of(2, 0, 2, 3));
    reader.push(Uint8Array.of(4));
    expect(first).toEqual(Uint8Array.of(1, 2));
  });

  it.each([
    [[Uint8Array.of(0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0)]],
    [[Uint8Array.of(0), Uint8Array.of(0, 0), Uint8Array.of(5, 1)]],
  ])('the DNS over TCP framing ignores all bytes after a length prefix above the limit', (chunks) => {
    const reader = new FrameReader(4);
    expect([read(reader, ...chunks), reader.tooLong, reader.pending]).toEqual([[new Uint8Array(0)], true, 0]);
    expect(read(reader, Uint8Array.of(0, 1, 7))).toEqual([]);
  });

  it('the DNS over TCP framing accepts a message whose length equals the limit', () => {
    const reader = new FrameReader(4);
    expect([read(reader, framed(new Uint8Array(4))), reader.tooLong]).toEqual([[new Uint8Array(4)], false]);
  });
});
