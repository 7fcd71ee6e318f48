import { expect, test } from 'vitest';
import { ENDS, TICK_SHIFT } from '#splicing/layout.js';
import { isPast } from '#splicing/offloaded-connection.js';
import { segmentBytes, TCP_FLAGS } from '#splicing/tcp-segment.js';

const TIMES = { idleMs: 60_000, endedMs: 10_000 };
const TICKS = 2 ** 32;
const nsOf = (tick: number): bigint => BigInt(tick) << TICK_SHIFT;
/** The number of ticks in about one second. One tick is 2^20 ns. */
const SECOND = 954;
const seen = (last_seen: number, ends = 0) => ({ last_seen: last_seen % TICKS, ends });
const LATE = 100_000;

test.each([
  ['returns false if a packet is newer than the clock reading', seen(LATE + 1), seen(LATE + 1), false],
  ['returns false if the pair was idle for 59 s', seen(LATE - 59 * SECOND), seen(1), false],
  ['returns true if the pair was idle for 61 s', seen(LATE - 61 * SECOND), seen(1), true],
  ['returns false if only one direction ended 11 s ago', seen(LATE - 11 * SECOND, ENDS.ended), seen(1), false],
  [
    'returns true if both directions ended 11 s ago',
    seen(LATE - 11 * SECOND, ENDS.ended),
    seen(LATE - 11 * SECOND, ENDS.ended),
    true,
  ],
  [
    'returns false if both directions ended 9 s ago',
    seen(LATE - 9 * SECOND, ENDS.ended),
    seen(LATE - 9 * SECOND, ENDS.ended),
    false,
  ],
  ['returns true if the pair was reset 11 s ago', seen(LATE - 11 * SECOND, ENDS.reset), seen(1), true],
] as const)(
  'the time-out check `isPast` of a connection offloaded to the datapath, with limits of 60 s for idle and 10 s for ended connections, %s',
  (_, there, back, expected) => {
    expect(isPast(there, back, nsOf(LATE), TIMES)).toBe(expected);
    expect(isPast(back, there, nsOf(LATE), TIMES)).toBe(expected);
  },
);

test('the time-out check `isPast` returns false after 10 s without packets and true after 66 s, across a wrap of the 32-bit tick counter', () => {
  const before = seen(TICKS - 5 * SECOND);
  expect(isPast(before, before, nsOf(TICKS + 5 * SECOND), TIMES)).toBe(false);
  expect(isPast(before, before, nsOf(TICKS + 61 * SECOND), TIMES)).toBe(true);
  const after = seen(TICKS + 5 * SECOND);
  expect(isPast(after, after, nsOf(TICKS - 1), TIMES)).toBe(false);
});

test('`segmentBytes` writes valid IP and TCP checksums, with and without TCP timestamps', () => {
  const ends = { source: 0x0a4d0102, destination: 0x0a4d0202, sourcePort: 41_000, destinationPort: 443 };
  const common = { ...ends, sequence: 0xffff_fff0, acknowledgment: 7, flags: TCP_FLAGS.ack, window: 500 };
  for (const segment of [common, { ...common, stamps: [0xffff_ffff, 3] as const }]) {
    const bytes = segmentBytes(segment);
    const view = new DataView(bytes.buffer);
    const sum = (from: number, to: number, initial: number): number => {
      let total = initial;
      for (let at = from; at < to; at += 2) total += view.getUint16(at);
      while (total > 0xffff) total = (total & 0xffff) + (total >>> 16);
      return total;
    };
    expect(sum(0, 20, 0)).toBe(0xffff);
    expect(sum(12, bytes.length, 6 + bytes.length - 20)).toBe(0xffff);
    expect([view.getUint32(24), view.getUint32(28), view.getUint16(34)]).toEqual([0xffff_fff0, 7, 500]);
  }
});
