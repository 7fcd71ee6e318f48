import { decode } from 'dns-packet';
import { describe, expect, test } from 'vitest';
import { ProgressClock } from '#test/progress-clock.js';
import { exchange, lookUp, query } from './client.js';
import { a, alwaysAt, FakeUpstream, type ReceivedQuery } from './fake-upstream.js';
import { endpoint } from './loopback.js';
import { startProxy } from './proxy.js';
import { passed, settled } from './settled.js';

const NAME = 'www.example.com';
const FIRST = '203.0.113.1';
const SECOND = '203.0.113.2';
const ROOT = '.';
const silent = (): void => {};
const dead = (): { readonly at: ReturnType<typeof endpoint> } => ({ at: endpoint() });
const at = (address: string, name = NAME): string[] => ['NOERROR', `${name} A ${address}`];
const names = (count: number): string[] => Array.from({ length: count }, (_, number) => `n${number}.example.com`);
const isProbe = ({ question }: ReceivedQuery): boolean => question.name === ROOT;
const textOf = ({ at: { host, port } }: Pick<FakeUpstream, 'at'>): string => `${host}:${port}`;

async function timed<T>(work: Promise<T>): Promise<{ readonly value: T; readonly tookMs: number }> {
  const clock = new ProgressClock();
  const value = await work;
  return { value, tookMs: clock.ms() };
}

describe('failover to the second resolver', () => {
  test.each([
    ['does not respond', silent, 600],
    ['answers SERVFAIL', ({ answer }: ReceivedQuery) => answer({ flags: 2 }), 300],
    ['answers REFUSED', ({ answer }: ReceivedQuery) => answer({ flags: 5 }), 300],
    ['answers NOTIMP', ({ answer }: ReceivedQuery) => answer({ flags: 4 }), 300],
    ['answers FORMERR', ({ answer }: ReceivedQuery) => answer({ flags: 1 }), 300],
  ])(
    'the DNS proxy uses the second resolver within a time limit if the first resolver fails: the resolver %s',
    async (_, onQuery, withinMs) => {
      const upstreams = [await FakeUpstream.start(onQuery), await FakeUpstream.start(alwaysAt(SECOND))];
      const rig = await startProxy(upstreams);
      const { value, tookMs } = await timed(lookUp(rig.at, NAME));
      expect(value).toEqual(at(SECOND));
      expect(tookMs).toBeLessThan(withinMs);
      expect(upstreams.map(({ names }) => names)).toEqual([[NAME], [NAME]]);
    },
  );

  test('the DNS proxy uses the second resolver within 300 ms if the port of the first resolver is closed', async () => {
    const second = await FakeUpstream.start(alwaysAt(SECOND));
    const rig = await startProxy([dead(), second]);
    const { value, tookMs } = await timed(lookUp(rig.at, NAME));
    expect(value).toEqual(at(SECOND));
    expect(tookMs).toBeLessThan(300);
  });

  test('the DNS proxy uses a late answer of the first resolver if the second resolver does not respond', async () => {
    const first = await FakeUpstream.start((received) => setTimeout(() => alwaysAt(FIRST)(received), 500));
    const second = await FakeUpstream.start(silent);
    const rig = await startProxy([first, second]);
    expect(await lookUp(rig.at, NAME)).toEqual(at(FIRST));
    expect(rig.grantor.grants).toEqual([`* ${FIRST}`]);
  });
});

describe('DNS proxy without an answer from any resolver', () => {
  test('the DNS proxy returns SERVFAIL within 2 s if no resolver answers', async () => {
    const upstreams = [await FakeUpstream.start(silent), await FakeUpstream.start(silent)];
    const rig = await startProxy(upstreams);
    const { value, tookMs } = await timed(lookUp(rig.at, NAME));
    expect(value).toEqual(['SERVFAIL']);
    expect(tookMs).toBeLessThan(2_000);
    expect(rig.grantor.grants).toEqual([]);
  });

  test('the DNS proxy returns SERVFAIL within 300 ms if the ports of all resolvers are closed', async () => {
    const rig = await startProxy([dead(), dead()]);
    const { value, tookMs } = await timed(lookUp(rig.at, NAME));
    expect(value).toEqual(['SERVFAIL']);
    expect(tookMs).toBeLessThan(300);
  });

  test('the DNS proxy returns REFUSED if one resolver refuses the query and the port of the other resolver is closed', async () => {
    const refusing = await FakeUpstream.start(({ answer }) => answer({ flags: 5 }));
    const rig = await startProxy([refusing, dead()]);
    expect(await lookUp(rig.at, NAME)).toEqual(['REFUSED']);
  });
});

test('a query that gets no answer from the resolver does not delay other queries', async () => {
  const upstream = await FakeUpstream.start((received) => {
    if (received.question.name !== 'slow.example.com') alwaysAt(FIRST)(received);
  });
  const rig = await startProxy([upstream]);
  const slow = lookUp(rig.at, 'slow.example.com');
  const { value, tookMs } = await timed(Promise.all(names(50).map((name) => lookUp(rig.at, name))));
  expect(value).toEqual(names(50).map((name) => at(FIRST, name)));
  expect(tookMs).toBeLessThan(1_000);
  expect(await slow).toEqual(['SERVFAIL']);
  expect([rig.alive, rig.proxy.stats().upstreams.map(({ alive }) => alive)]).toEqual([[], [true]]);
});

describe('an unresponsive resolver', () => {
  test('an unresponsive resolver is reported as dead and queried last, and is queried first again after it has answered a probe', async () => {
    const first = await FakeUpstream.start(silent);
    const second = await FakeUpstream.start(alwaysAt(SECOND));
    const rig = await startProxy([first, second]);
    const [one = '', two = '', three = '', four = '', five = ''] = names(5);
    expect(await Promise.all([one, two, three].map((name) => lookUp(rig.at, name)))).toEqual(
      [one, two, three].map((name) => at(SECOND, name)),
    );
    const { value, tookMs } = await timed(lookUp(rig.at, four));
    expect(value).toEqual(at(SECOND, four));
    expect(tookMs).toBeLessThan(300);
    await settled(() => rig.alive, [[textOf(second)]]);
    expect(rig.proxy.stats().upstreams.map(({ alive }) => alive)).toEqual([false, true]);
    first.onQuery = alwaysAt(FIRST);
    await settled(() => rig.alive, [[textOf(second)], [textOf(first), textOf(second)]]);
    expect(await lookUp(rig.at, five)).toEqual(at(FIRST, five));
    expect(second.names).toEqual([one, two, three, four]);
  });

  test('a resolver is not reported as dead if only one name gets no answer and a probe gets an answer', async () => {
    const upstream = await FakeUpstream.start((received) => {
      if (isProbe(received)) received.answer({});
    });
    const rig = await startProxy([upstream]);
    expect(await lookUp(rig.at, NAME)).toEqual(['SERVFAIL']);
    expect(rig.alive).toEqual([]);
    const [stats] = rig.proxy.stats().upstreams;
    expect([stats?.alive, upstream.received.filter(isProbe).length]).toEqual([true, 1]);
  });

  test('an unresponsive resolver is reported as alive again after its restart', async () => {
    const upstream = await FakeUpstream.start(alwaysAt(FIRST));
    const rig = await startProxy([upstream]);
    await upstream.close();
    expect(await Promise.all(names(3).map((name) => lookUp(rig.at, name)))).toEqual(Array(3).fill(['SERVFAIL']));
    await settled(() => rig.alive, [[]]);
    await upstream.open();
    await settled(() => rig.alive, [[], [textOf(upstream)]]);
    expect(await lookUp(rig.at, NAME)).toEqual(at(FIRST));
  });
});

test('with `upstreamOrder` `fastest`, the DNS proxy queries the fastest resolver first, once it knows the response times', async () => {
  const slow = await FakeUpstream.start((received) => setTimeout(() => alwaysAt(FIRST)(received), 60));
  const fast = await FakeUpstream.start(alwaysAt(SECOND));
  const rig = await startProxy([slow, fast], { upstreamOrder: 'fastest' });
  const responses: (readonly string[])[] = [];
  for (const name of names(4)) responses.push(await lookUp(rig.at, name));
  const [one = '', two = '', three = '', four = ''] = names(4);
  expect(responses).toEqual([at(FIRST, one), at(SECOND, two), at(SECOND, three), at(SECOND, four)]);
});

describe('expired answer in the cache', () => {
  async function outlived(serveStaleMs: number, onQuery: (received: ReceivedQuery) => void) {
    const upstream = await FakeUpstream.start(alwaysAt(FIRST, 1));
    const rig = await startProxy([upstream], { serveStaleMs });
    expect(await lookUp(rig.at, NAME)).toEqual(at(FIRST));
    upstream.onQuery = onQuery;
    await passed(1_010);
    return { rig, upstream };
  }

  test.each([
    ['no resolver answers', silent],
    ['a resolver answers SERVFAIL', ({ answer }: ReceivedQuery) => answer({ flags: 2 })],
  ])(
    'an expired answer in the cache is sent to the client, and its address granted, during `serveStaleMs` if the resolvers fail: %s',
    async (_, onQuery) => {
      const { rig } = await outlived(60_000, onQuery);
      expect(await lookUp(rig.at, NAME)).toEqual(at(FIRST));
      expect(new Set(rig.grantor.grants)).toEqual(new Set([`* ${FIRST}`]));
    },
  );

  test('an expired answer in the cache is sent to the client with a TTL from 1 to 30 seconds', async () => {
    const upstream = await FakeUpstream.start(({ answer }) =>
      answer({ answers: [a(NAME, FIRST, 1), a(NAME, SECOND)] }),
    );
    const rig = await startProxy([upstream], { serveStaleMs: 60_000 });
    const ttls = async (): Promise<(number | undefined)[]> =>
      (decode(await exchange(rig.at, query(NAME))).answers ?? []).map((record) => ('ttl' in record ? record.ttl : 0));
    expect(await ttls()).toEqual([1, 300]);
    upstream.onQuery = ({ answer }) => answer({ flags: 2 });
    await passed(1_010);
    expect(await ttls()).toEqual([1, 30]);
  });

  test('an expired answer in the cache is not sent to the client if `serveStaleMs` is 0', async () => {
    const { rig } = await outlived(0, ({ answer }) => answer({ flags: 2 }));
    expect(await lookUp(rig.at, NAME)).toEqual(['SERVFAIL']);
  });

  test('an expired answer in the cache is not sent to the client if a resolver returns a newer answer', async () => {
    const { rig } = await outlived(60_000, ({ answer }) => answer({ answers: [a(NAME, SECOND)] }));
    expect(await lookUp(rig.at, NAME)).toEqual(at(SECOND));
  });
});
