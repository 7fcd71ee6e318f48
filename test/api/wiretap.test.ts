import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import type { FastifyRequest } from 'fastify';
import { expect, onTestFinished, test } from 'vitest';
import WebSocket from 'ws';
import { isStillAllowed } from '#api/access/authentication.js';
import type { WiretapTimes } from '#observe/observer.js';
import { NOTHING_LOST } from '#observe/wiretap/frame.js';
import { Readers, type Sink } from '#observe/wiretap/readers.js';
import type { WiretapFilter } from '#observe/wiretap/wiretap-filter.js';
import type { TokenVerdict } from '#store/tokens/token-verdict.js';
import { ProgressClock } from '#test/progress-clock.js';
import { fakeManagement, TOKENS } from './fake-management.js';
import { listening, rig } from './rig.js';
import { openWebSocket } from './websocket-client.js';

const PATH = '/api/v1/wiretap/stream';
const frame = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);

type Opened = WiretapTimes & { readonly filter: WiretapFilter; readonly sink: Sink };

/**
 * Starts an API with a fake wiretap. `opened` lists the readers of the API, so that a test can send frames to
 * a reader.
 */
async function tapped() {
  const opened: Opened[] = [];
  let closed = 0;
  const node = fakeManagement({
    wiretap: {
      replayMs: 30_000,
      read: (filter, times, sink) => {
        opened.push({ filter, ...times, sink });
        return { close: () => void closed++ };
      },
    },
  });
  const { api, ask } = await rig({}, node);
  const port = await listening(api);
  const connect = (query = '', headers: Record<string, string> = {}, protocol = 'weir.wiretap.v1') =>
    new WebSocket(`ws://127.0.0.1:${port}${PATH}${query}`, protocol, {
      headers: { authorization: `Bearer ${TOKENS.readonly}`, ...headers },
    });
  return { ask, port, connect, opened, closed: () => closed };
}
const opened = (socket: WebSocket): Promise<void> => new Promise((resolve) => socket.once('open', () => resolve()));
/** Resolves with the HTTP status of the response that refuses a WebSocket upgrade. */
const refused = (socket: WebSocket): Promise<number | undefined> =>
  new Promise((resolve) => socket.once('unexpected-response', (_, response) => resolve(response.statusCode)));
const message = (socket: WebSocket): Promise<string> =>
  new Promise((resolve) => socket.once('message', (data: Buffer) => resolve(data.toString('utf8'))));

test('a wiretap client over WebSocket receives frames as text, and the reason when the node closes the stream', async () => {
  const { connect, opened: taps, closed } = await tapped();
  const socket = connect('?src=10.0.0.0/8&src=192.0.2.1&port=8000-8100&hostname=*.Example.com.&replay=10s&fold=250ms');
  await opened(socket);
  expect(socket.protocol).toBe('weir.wiretap.v1');
  expect(taps[0]).toMatchObject({
    replayMs: 10_000,
    foldMs: 250,
    filter: {
      sources: [
        { address: 0x0a00_0000, length: 8 },
        { address: 0xc000_0201, length: 32 },
      ],
      ports: [{ low: 8_000, high: 8_100 }],
      hostnames: ['*.example.com'],
      protocols: [],
    },
  });
  const first = message(socket);
  taps[0]?.sink.send(frame('{"type":"flow"}'));
  expect(await first).toBe('{"type":"flow"}');
  const end = new Promise((resolve) => socket.once('close', (code, reason) => resolve([code, reason.toString()])));
  taps[0]?.sink.close('too_slow');
  expect(await end).toEqual([1_008, 'the reader has read nothing for one minute']);
  await expect.poll(closed).toBe(1);
});

test('a wiretap client over Server-Sent Events receives each frame in a data line', async () => {
  const { port, opened: taps, closed } = await tapped();
  const headers = { authorization: `Bearer ${TOKENS.readonly}`, accept: 'text/event-stream' };
  const end = new AbortController();
  const response = await fetch(`http://127.0.0.1:${port}${PATH}`, { headers, signal: end.signal });
  expect([response.status, response.headers.get('x-content-type-options')]).toEqual([200, 'nosniff']);
  taps[0]?.sink.send(frame('[{"type":"flow"},{"type":"lost"}]'));
  let text = '';
  for await (const bytes of response.body ?? []) {
    text += new TextDecoder().decode(bytes as Uint8Array);
    if (text.endsWith(']\n\n')) break;
  }
  expect(text).toBe('retry: 1000\n\ndata: [{"type":"flow"},{"type":"lost"}]\n\n');
  end.abort();
  await expect.poll(closed).toBe(1);
});

type Paused = { readonly resume: () => void; readonly messages: () => readonly unknown[]; readonly end: () => void };

/**
 * The two kinds of wiretap clients, WebSocket and SSE. `open` starts a client that reads nothing from the
 * socket until `resume`.
 */
const PAUSED: readonly (readonly [kind: string, open: (port: number) => Promise<Paused>])[] = [
  [
    'a WebSocket',
    async (port) => {
      const url = `http://127.0.0.1:${port}${PATH}`;
      const client = await openWebSocket(url, { token: TOKENS.readonly, protocol: 'weir.wiretap.v1' });
      client.socket.pause();
      return {
        resume: () => client.socket.resume(),
        messages: () => client.messages,
        end: () => client.socket.destroy(),
      };
    },
  ],
  [
    'Server-Sent Events',
    async (port) => {
      const headers = { authorization: `Bearer ${TOKENS.readonly}`, accept: 'text/event-stream' };
      const asked = get({ host: '127.0.0.1', port, path: PATH, headers, agent: false });
      const [response] = (await once(asked, 'response')) as [IncomingMessage];
      const found: unknown[] = [];
      let text = '';
      response.setEncoding('utf8').on('data', (part: string) => {
        const events = (text + part).split('\n\n');
        text = events.pop() ?? '';
        for (const event of events) if (event.startsWith('data: ')) found.push(JSON.parse(event.slice(6)));
      });
      response.pause();
      return { resume: () => response.resume(), messages: () => found, end: () => asked.destroy() };
    },
  ],
];

test.each(PAUSED)(
  'a wiretap client that reads over %s receives the number of lost messages within 1 s, even if no message follows',
  async (_, open) => {
    const readers = new Readers({ more: () => {}, closed: () => {}, written: () => {} });
    onTestFinished(() => readers.stop());
    const read = (_filter: WiretapFilter, _times: WiretapTimes, sink: Sink) => {
      const number = readers.open(sink);
      readers.subscribe(number, 1);
      return { close: () => readers.close(number) };
    };
    const { api } = await rig({}, fakeManagement({ wiretap: { replayMs: 0, read } }));
    const { resume, messages, end } = await open(await listening(api));
    await expect.poll(() => readers.count).toBe(1);
    const bytes = frame(JSON.stringify('x'.repeat(65_536)));
    let sent = 0;
    for (; readers.lost === 0 && sent < 4_096; sent++) {
      readers.frame({ to: { channel: 1 }, bytes, messages: 1, lost: NOTHING_LOST });
      await new Promise((resolve) => setImmediate(resolve));
    }
    const clock = new ProgressClock();
    resume();
    const lost = () => messages().filter((message) => typeof message === 'object');
    // Ends the client also if the check fails, because an open response would block the shutdown of the API.
    await expect
      .poll(lost, { timeout: 5_000, interval: 5 })
      .toEqual([{ type: 'lost', count: 1, where: 'reader' }])
      .finally(end);
    const toldAfterMs = clock.ms();
    expect(messages().length - 1 + readers.lost).toBe(sent);
    expect(toldAfterMs).toBeLessThan(1_000);
  },
);

test.each([
  ['no token', 401, { authorization: '' }, ''],
  ['an invalid token', 401, { authorization: 'Bearer nonsense' }, ''],
  ['a page of another origin', 403, { origin: 'https://evil.example' }, ''],
  ['a misspelt filter', 400, {}, '?dest=10.0.0.1'],
  ['an invalid address', 400, {}, '?src=10.0.0.256'],
  ['a replay longer than the time for which the node keeps messages', 400, {}, '?replay=31s'],
  ['a token in the query', 400, {}, '?token=x'],
])(
  'a request to open the wiretap stream over WebSocket is refused if it is not permitted or malformed (%s), with the status %i',
  async (_, status, headers, query) => {
    const { connect, opened: taps } = await tapped();
    expect(await refused(connect(query, headers))).toBe(status);
    expect(taps).toEqual([]);
  },
);

test('a wiretap client that offers only an unknown WebSocket subprotocol gets no connection', async () => {
  const { connect } = await tapped();
  const socket = connect('', {}, 'other.v1');
  const failure = await new Promise<Error>((resolve) => socket.once('error', resolve));
  expect(failure.message).toBe('Server sent no subprotocol');
});

test('GET of the wiretap stream without an upgrade returns 426 with an error text that names text/event-stream', async () => {
  const { ask } = await tapped();
  const answer = await ask('GET', PATH);
  expect([answer.statusCode, answer.json().error]).toEqual([426, expect.stringContaining('text/event-stream')]);
});

test('a wiretap client that sends a message above the size limit is disconnected with close code 1009', async () => {
  const { connect } = await tapped();
  const socket = connect();
  await opened(socket);
  const end = new Promise<number>((resolve) => socket.once('close', resolve));
  socket.send('x'.repeat(2_000));
  expect(await end).toBe(1_009);
});

test.each([
  ['accepted', true],
  ['refused', false],
  ['failed', false],
] as const)(
  'after another verification of its token with the outcome "%s", a wiretap stream may continue: %s',
  async (outcome, goesOn) => {
    const verify = async (): Promise<TokenVerdict> => {
      if (outcome === 'failed') throw new Error('the store is closed');
      if (outcome === 'refused') return { kind: 'refused', reason: 'revoked' };
      return { kind: 'accepted', identity: { id: 'r', keyId: null, subject: 'rita', role: 'readonly' } };
    };
    const { tokens, sessions } = fakeManagement();
    const request = { headers: { authorization: `Bearer ${TOKENS.readonly}` } } as FastifyRequest;
    expect(await isStillAllowed(request, { sessions, tokens: { ...tokens, verify } })).toBe(goesOn);
  },
);
