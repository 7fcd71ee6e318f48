import type { Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, type MockInstance, test, vi } from 'vitest';
import { framed } from '#dns/wire/message/framing.js';
import { libc } from '#libc/libc.js';
import { lookUp } from './client.js';
import { a, alwaysAt, answerTo, FakeUpstream, type ReceivedQuery } from './fake-upstream.js';
import { startProxy } from './proxy.js';
import { settled } from './settled.js';

const NAME = 'www.example.com';
const ADDRESS = '203.0.113.1';
const TC = 0x0200;
const GOOD = ['NOERROR', `${NAME} A ${ADDRESS}`];

/**
 * Starts a fake resolver that truncates its answers over UDP, and handles each query over TCP with `answer`.
 */
function tooLong(answer: (received: ReceivedQuery, stream: Socket) => void): Promise<FakeUpstream> {
  return FakeUpstream.start((received) => {
    if (received.stream === null) received.answer({ flags: TC, answers: [a(received.question.name, '203.0.113.66')] });
    else answer(received, received.stream);
  });
}

const goodFrame = ({ packet, question }: ReceivedQuery): Uint8Array =>
  framed(answerTo(packet, { answers: [a(question.name, ADDRESS)] }));

// The proxy repeats a query that has no answer after 380 ms. With a stopped clock it repeats none, however
// long the thread of the proxy and of the resolvers waits for a processor.
let clock: MockInstance;
beforeEach(() => {
  clock = vi.spyOn(performance, 'now').mockReturnValue(performance.now());
});
afterEach(() => clock.mockRestore());

describe('fallback to TCP after a truncated answer', () => {
  test('after a truncated answer, the DNS proxy uses the answer over TCP, and no record of the truncated answer', async () => {
    const upstream = await tooLong(alwaysAt(ADDRESS));
    const rig = await startProxy([upstream]);
    expect(await lookUp(rig.at, NAME)).toEqual(GOOD);
    expect(rig.grantor.grants).toEqual([`* ${ADDRESS}`]);
    expect(upstream.received.map(({ stream }) => stream !== null)).toEqual([false, true]);
  });

  test('the DNS proxy accepts an answer over TCP that arrives in two parts, split at any byte, and uses one connection for all queries', async () => {
    const pieces: Socket[] = [];
    let split = 0;
    const upstream = await tooLong((received, stream) => {
      pieces.push(stream);
      const frame = goodFrame(received);
      stream.write(frame.subarray(0, split), () => setImmediate(() => stream.write(frame.subarray(split))));
    });
    const rig = await startProxy([upstream]);
    const names = Array.from({ length: 60 }, (_, at) => `n${String(at).padStart(2, '0')}.example.com`);
    const answers: (readonly string[])[] = [];
    for (const name of names) {
      split++;
      answers.push(await lookUp(rig.at, name));
    }
    expect(answers).toEqual(names.map((name) => ['NOERROR', `${name} A ${ADDRESS}`]));
    expect(new Set(pieces).size).toBe(1);
  });

  test('the DNS proxy ignores responses to other queries and malformed messages on the TCP connection to a resolver', async () => {
    const upstream = await tooLong((received, stream) => {
      const { packet } = received;
      const evil = { answers: [a(NAME, '203.0.113.66')] };
      const lies = [
        answerTo({ ...packet, id: ((packet.id ?? 0) + 1) & 0xffff }, evil),
        answerTo(packet, { ...evil, questions: [{ name: 'other.example.com', type: 'A' }] }),
        new Uint8Array(0),
        Buffer.alloc(40, 0xff),
      ];
      stream.write(Buffer.concat([...lies.map(framed), goodFrame(received)]));
    });
    const rig = await startProxy([upstream]);
    expect(await lookUp(rig.at, NAME)).toEqual(GOOD);
    expect(rig.grantor.grants).toEqual([`* ${ADDRESS}`]);
    const reasons = ['unasked', 'other_question', 'short_header', 'question_count'];
    expect(rig.refused()).toEqual(Object.fromEntries(reasons.map((reason) => [`answer_${reason}`, 1])));
  });

  test.each([
    ['nothing', 0],
    ['half a length prefix', 1],
    ['a length prefix', 2],
    ['half an answer', 30],
  ])(
    'the DNS proxy does not retry a resolver that closes the TCP connection after it has sent %s',
    async (_, bytes) => {
      const upstream = await tooLong((received, stream) => stream.end(goodFrame(received).subarray(0, bytes)));
      const rig = await startProxy([upstream]);
      expect(await lookUp(rig.at, NAME)).toEqual(['SERVFAIL']);
      expect([rig.grantor.grants, upstream.received.length]).toEqual([[], 2]);
    },
  );

  test('the DNS proxy uses the next resolver if the first resolver closes the TCP connection', async () => {
    const closing = await tooLong((_, stream) => stream.destroy());
    const other = await FakeUpstream.start(alwaysAt(ADDRESS));
    const rig = await startProxy([closing, other]);
    expect(await lookUp(rig.at, NAME)).toEqual(GOOD);
    expect(other.names).toEqual([NAME]);
  });

  test('the DNS proxy retries on a new TCP connection if the resolver closes a connection that has already returned an answer', async () => {
    const streams: Socket[] = [];
    const upstream = await tooLong((received, stream) => {
      const isSecond = streams.length === 1;
      streams.push(stream);
      if (isSecond) stream.destroy();
      else stream.write(goodFrame(received));
    });
    const rig = await startProxy([upstream]);
    expect(await lookUp(rig.at, 'first.example.com')).toEqual(['NOERROR', `first.example.com A ${ADDRESS}`]);
    expect(await lookUp(rig.at, NAME)).toEqual(GOOD);
    expect(streams.map((stream) => streams.indexOf(stream))).toEqual([0, 0, 2]);
  });

  test('the DNS proxy opens another TCP connection to a resolver when one connection has 64 unanswered queries, and answers all queries', async () => {
    const waiting: ReceivedQuery[] = [];
    const upstream = await tooLong((received) => waiting.push(received));
    const rig = await startProxy([upstream]);
    const names = Array.from({ length: 130 }, (_, at) => `n${at}.example.com`);
    const answers = names.map((name) => lookUp(rig.at, name));
    await settled(() => waiting.length, 130);
    expect(upstream.connections.size).toBe(3);
    for (const received of waiting.toReversed()) received.stream?.write(goodFrame(received));
    expect(await Promise.all(answers)).toEqual(names.map((name) => ['NOERROR', `${name} A ${ADDRESS}`]));
    await settled(() => upstream.connections.size, 1);
  });

  test('the DNS proxy returns SERVFAIL while no file descriptor is available for a TCP connection to the resolver, and an answer afterwards', async () => {
    const upstream = await tooLong(alwaysAt(ADDRESS));
    const rig = await startProxy([upstream]);
    const socket = vi.spyOn(libc, 'socket').mockReturnValue(-1);
    expect(await lookUp(rig.at, NAME)).toEqual(['SERVFAIL']);
    socket.mockRestore();
    expect(await lookUp(rig.at, NAME)).toEqual(GOOD);
  });
});
