import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { type Frame, frameOf, NOTHING_LOST } from '#observe/wiretap/frame.js';
import { Readers, type Sink } from '#observe/wiretap/readers.js';

class FakeSink implements Sink {
  waiting = 0;
  taken = 0;
  readonly sent: string[] = [];
  readonly closes: string[] = [];
  send(frame: Uint8Array, done?: () => void): void {
    this.sent.push(new TextDecoder().decode(frame));
    done?.();
  }
  close(why: string): void {
    this.closes.push(why);
  }
}

let asked: string[];
let written: number;
let readers: Readers;
beforeEach(() => {
  vi.useFakeTimers();
  asked = [];
  written = 0;
  readers = new Readers({
    more: (reader) => asked.push(`more ${reader}`),
    closed: (reader) => asked.push(`closed ${reader}`),
    written: (bytes) => {
      written += bytes;
    },
  });
});
afterEach(() => {
  readers.stop();
  vi.useRealTimers();
});

const MIB = 1024 * 1024;
const frame = (to: Frame['to'], text: string, messages = 1, lost: Partial<Frame['lost']> = {}): Frame => ({
  to,
  bytes: frameOf([`"${text}"`]),
  messages,
  lost: { ...NOTHING_LOST, ...lost },
});

describe('a wiretap reader', () => {
  test('a wiretap reader receives first the replay and then the live messages that match its filter, in order', () => {
    const sink = new FakeSink();
    const reader = readers.open(sink);
    readers.frame(frame({ channel: 1 }, 'before it subscribed'));
    readers.frame(frame({ reader }, 'kept'));
    readers.subscribe(reader, 1);
    readers.frame(frame({ channel: 1 }, 'live'));
    readers.frame(frame({ channel: 2 }, 'of others'));
    expect(sink.sent).toEqual(['"kept"', '"live"']);
    expect(asked).toEqual([`more ${reader}`]);
    expect(written).toBe('"before it subscribed""kept""live""of others"'.length);
  });

  test('a wiretap reader that is too slow receives the number of lost messages before the next message, and other readers lose nothing', () => {
    const [slow, fast] = [new FakeSink(), new FakeSink()];
    for (const sink of [slow, fast]) readers.subscribe(readers.open(sink), 1);
    slow.waiting = 8 * MIB;
    readers.frame(frame({ channel: 1 }, 'a', 3));
    readers.frame(frame({ channel: 1 }, 'b', 4, { kernel: 5 }));
    slow.waiting = 0;
    readers.frame(frame({ channel: 1 }, 'c', 1, { source_share: 2 }));
    const lost = (count: number, where: string) => `{"type":"lost","count":${count},"where":"${where}"}`;
    expect(slow.sent).toEqual([`[${lost(7, 'reader')},${lost(5, 'kernel')},${lost(2, 'source_share')}]`, '"c"']);
    expect(fast.sent).toEqual(['"a"', lost(5, 'kernel'), '"b"', lost(2, 'source_share'), '"c"']);
    expect(readers.lost).toBe(7);
  });

  test('a wiretap reader receives the number of lost messages within a second even if no message follows', () => {
    const sink = new FakeSink();
    readers.subscribe(readers.open(sink), 1);
    sink.waiting = 8 * MIB;
    readers.frame(frame({ channel: 1 }, 'a', 2));
    sink.waiting = 0;
    vi.advanceTimersByTime(1_000);
    expect(sink.sent).toEqual(['{"type":"lost","count":2,"where":"reader"}']);
  });

  test('a wiretap reader receives the number of lost messages within a second while the buffer of the reader is full', () => {
    const sink = new FakeSink();
    readers.subscribe(readers.open(sink), 1);
    sink.waiting = 8 * MIB;
    readers.frame(frame({ channel: 1 }, 'a', 2));
    vi.advanceTimersByTime(1_000);
    expect(sink.sent).toEqual(['{"type":"lost","count":2,"where":"reader"}']);
    // Loss reports may exceed the buffer of 8 MiB by at most 64 KiB. Above 8 MiB and 64 KiB, loss reports
    // wait until the buffer has room.
    sink.waiting = 8 * MIB + 64 * 1024;
    readers.frame(frame({ channel: 1 }, 'b', 3));
    vi.advanceTimersByTime(1_000);
    expect(sink.sent.length).toBe(1);
    sink.waiting = 8 * MIB;
    vi.advanceTimersByTime(1_000);
    expect(sink.sent.slice(1)).toEqual(['{"type":"lost","count":3,"where":"reader"}']);
  });

  test('a wiretap reader stays connected if it accepts some bytes at least every 50 seconds', () => {
    const sink = new FakeSink();
    readers.open(sink);
    sink.waiting = 8 * MIB;
    for (let minute = 0; minute < 5; minute++) {
      vi.advanceTimersByTime(50_000);
      sink.taken++;
    }
    expect(sink.closes).toEqual([]);
  });

  test('a wiretap reader is closed as too_slow if it accepts no bytes for a minute, but not earlier', () => {
    const sink = new FakeSink();
    const reader = readers.open(sink);
    sink.waiting = 1;
    vi.advanceTimersByTime(59_000);
    expect(sink.closes).toEqual([]);
    vi.advanceTimersByTime(2_000);
    expect([sink.closes, asked, readers.count]).toEqual([['too_slow'], [`closed ${reader}`], 0]);
  });

  test('a wiretap reader has a buffer that becomes smaller as the number of readers grows', () => {
    const sinks = Array.from({ length: 1_000 }, () => new FakeSink());
    const first = sinks[0] as FakeSink;
    for (const sink of sinks) readers.open(sink);
    const reader = readers.open(first);
    first.waiting = MIB;
    readers.subscribe(reader, 1);
    readers.frame(frame({ channel: 1 }, 'a'));
    expect([first.sent, readers.lost]).toEqual([[], 1]);
  });
});

test('`Readers.closeAll` closes every reader, and a closed reader receives no more frames', () => {
  const sink = new FakeSink();
  readers.subscribe(readers.open(sink), 1);
  readers.closeAll('performance_mode_disabled');
  readers.frame(frame({ channel: 1 }, 'a'));
  expect([sink.closes, sink.sent, readers.count]).toEqual([['performance_mode_disabled'], [], 0]);
});
