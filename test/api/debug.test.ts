import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import type { ChartDefinition, Inspection, Statecharts, StatechartTransition } from '#bus/statecharts.js';
import { ProgressClock } from '#test/progress-clock.js';
import { fakeManagement, SINCE, TOKENS } from './fake-management.js';
import { listening, rig } from './rig.js';
import { openWebSocket } from './websocket-client.js';

const STREAM = '/api/v1/debug/statecharts/stream';
const PROTOCOL = 'weir.statecharts.v1';

const inspected = (sessionId: string, text = ''): Inspection => ({
  type: '@xstate.snapshot',
  event: { type: `lamp.switched${text}` },
  snapshot: { status: 'active', value: 'on' },
  sessionId,
  rootId: 'x:0',
  createdAt: '1769860800000',
  _version: '0.7.2',
  id: null,
});
const introduced: Inspection = {
  type: '@xstate.actor',
  name: 'lamp',
  definition: '{"id":"lamp"}',
  parentId: undefined,
  snapshot: { status: 'active', value: 'off' },
  sessionId: 'x:0',
  rootId: 'x:0',
  createdAt: '1769860800000',
  _version: '0.7.2',
  id: null,
};

const switched: StatechartTransition = {
  type: 'transition',
  time: SINCE,
  sessionId: 'x:0',
  name: 'lamp',
  chart: 'lamp',
  event: 'lamp.switched',
  taken: [{ index: 0, source: 'lamp.off', targets: ['lamp.on'], event: 'lamp.switched', guard: 'isWhole' }],
  exited: [{ state: 'lamp.off', afterMs: 1_500 }],
  entered: ['lamp.on'],
};
/** `switched` in the form of the API. */
const { sessionId, ...taken } = switched;
const SWITCHED = { ...taken, session_id: sessionId, exited: [{ state: 'lamp.off', after_ms: 1_500 }] };
const DEFINITION: ChartDefinition = {
  id: 'lamp',
  states: [
    {
      id: 'lamp',
      key: 'lamp',
      parent: null,
      type: 'compound',
      initial: 'lamp.off',
      tags: ['dark'],
      description: null,
      invokes: ['burn'],
      entry: ['click'],
      exit: [],
    },
  ],
  transitions: [
    {
      source: 'lamp.off',
      targets: ['lamp.on'],
      event: 'lamp.switched',
      guard: 'isWhole',
      actions: [],
      reenter: false,
    },
  ],
};

/** A statechart, without the identifiers of its actor and of its parent. */
const LAMP = {
  name: 'lamp',
  chart: 'lamp',
  definition: { id: 'lamp' },
  status: 'active',
  value: 'off',
  tags: ['dark'],
  context: { attempts: 1 },
  since: SINCE,
  recent: [{ time: SINCE, event: 'xstate.init', value: 'off' }],
} as const;

async function serving() {
  const listeners = new Set<(seen: Inspection | StatechartTransition) => void>();
  const debug: Statecharts = {
    charts: () => [{ ...LAMP, sessionId: 'x:0', parentId: null, transitions: [switched] }],
    definitions: () => [DEFINITION],
    actors: () => [introduced],
    recent: () => [],
    transitions: () => [switched],
    watch: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
  const own = await rig({}, fakeManagement({ debug }));
  const port = await listening(own.api);
  const tell = (seen: Inspection | StatechartTransition): void => {
    for (const listener of listeners) listener(seen);
  };
  const readers = async () => (await own.ask('GET', '/api/v1/debug/statecharts')).json<{ readers: unknown }>().readers;
  return { ...own, url: `http://127.0.0.1:${port}${STREAM}`, tell, readers, listeners };
}

/** Returns a client that has connected and reads nothing, and a large message for it. */
async function pausedReader() {
  const { url, listeners, ...own } = await serving();
  const client = await openWebSocket(url, { token: TOKENS.admin, protocol: PROTOCOL });
  await expect.poll(() => listeners.size).toBe(1);
  client.socket.pause();
  return { ...own, client, large: inspected('x:0', 'x'.repeat(64 << 10)) };
}

describe('debug routes of statecharts', () => {
  it('the debug routes of statecharts return the state and the latest events of each statechart', async () => {
    const { ask } = await serving();
    const answer = await ask('GET', '/api/v1/debug/statecharts', { token: TOKENS.readonly });
    expect(answer.json()).toEqual({
      charts: [{ ...LAMP, session_id: 'x:0', parent_id: null, transitions: [SWITCHED] }],
      readers: { open: 0, dropped: 0, cut_off: 0 },
    });
  });

  it('the debug routes of statecharts return the definition of each kind of statechart', async () => {
    const { ask } = await serving();
    const answer = await ask('GET', '/api/v1/debug/statecharts/definitions', { token: TOKENS.readonly });
    expect(answer.json()).toEqual({ definitions: [DEFINITION] });
  });

  it('the debug routes of statecharts stream first one message for each running actor and the latest transitions, then one message for each XState event and each transition', async () => {
    const { url, tell, listeners } = await serving();
    const client = await openWebSocket(url, { token: TOKENS.readonly, protocol: PROTOCOL });
    await expect.poll(() => listeners.size).toBe(1);
    tell(switched);
    tell(inspected('x:0'));
    await expect.poll(() => client.messages.length).toBe(4);
    const recent = { type: 'recent_transitions', transitions: [SWITCHED] };
    expect([client.protocol, client.messages]).toEqual([
      PROTOCOL,
      JSON.parse(JSON.stringify([introduced, recent, SWITCHED, inspected('x:0')])),
    ]);
    client.socket.destroy();
    await expect.poll(() => listeners.size).toBe(0);
  });

  it('the debug routes of statecharts accept a stream request only as a WebSocket upgrade with a valid token in the Authorization header', async () => {
    const { url, ask } = await serving();
    const answer = await ask('GET', STREAM);
    expect([answer.statusCode, answer.json<{ type: string }>().type]).toEqual([426, 'urn:weir:error:upgrade_needed']);
    await expect(openWebSocket(url, { token: null, protocol: PROTOCOL })).rejects.toThrow('refused with 401');
    await expect(openWebSocket(`${url}?token=x`, { token: TOKENS.admin })).rejects.toThrow('refused with 400');
  });

  it('the debug routes of statecharts close the connection of a client whose WebSocket upgrade was refused', async () => {
    const { url, api } = await serving();
    const refused = Array.from({ length: 5 }, () => openWebSocket(url, { token: 'garbage' }).catch(String));
    expect(await Promise.all(refused)).toEqual(refused.map(() => 'Error: refused with 401'));
    const open = () => new Promise((resolve) => api.server.getConnections((_, count) => resolve(count)));
    await expect.poll(open).toBe(0);
  });

  it('the debug routes of statecharts send the number of lost messages to a reader that paused, and then one message for each running actor', async () => {
    const { client, tell, readers, large } = await pausedReader();
    const dropped = async () => ((await readers()) as { dropped: number }).dropped;
    while ((await dropped()) < 5) tell(large);
    const lost = await dropped();
    client.socket.resume();
    await expect
      .poll(
        () => {
          tell(inspected('x:1'));
          return client.messages.at(-1);
        },
        { timeout: 10_000 },
      )
      .toEqual(inspected('x:1'));
    const after = client.messages.slice(
      client.messages.findIndex((message) => (message as { type: string }).type === 'lost'),
    );
    const { count } = after[0] as { count: number };
    expect([count >= lost, after[1]]).toEqual([true, JSON.parse(JSON.stringify(introduced))]);
  });

  it('the debug routes of statecharts disconnect a reader that has lost more than 1,000 messages, and buffer less than 32 MiB for that reader', async () => {
    const { client, tell, readers, large } = await pausedReader();
    const before = process.memoryUsage().arrayBuffers;
    let told = 0;
    while (((await readers()) as { cut_off: number }).cut_off === 0) {
      for (let at = 0; at < 20; at++) tell(large);
      told += 20;
    }
    expect(told).toBeLessThan(1_300);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(32 << 20);
    client.socket.resume();
    const { code, reason } = (await client.closed) ?? { code: 0, reason: '' };
    expect([code, reason]).toEqual([1008, 'too slow: 1001 messages were lost']);
    await expect.poll(readers).toEqual({ open: 0, dropped: 1_001, cut_off: 1 });
  });

  it('the debug routes of statecharts send a close frame to each reader at shutdown, and complete the shutdown even if a reader does not respond', async () => {
    const { url, tell, api, listeners } = await serving();
    const [hears, deaf] = await Promise.all([1, 2].map(() => openWebSocket(url, { token: TOKENS.admin })));
    await expect.poll(() => listeners.size).toBe(2);
    deaf?.socket.pause();
    for (let at = 0; at < 20; at++) tell(inspected('x:0', 'x'.repeat(64 << 10)));
    const clock = new ProgressClock();
    await api.close();
    expect(await hears?.closed).toEqual({ code: 1001, reason: 'the node is shutting down' });
    expect(clock.ms()).toBeLessThan(10_000);
    deaf?.socket.destroy();
  });

  it('the debug routes of statecharts allow at most 32 readers at the same time', async () => {
    const { url, listeners } = await serving();
    const clients = await Promise.all(Array.from({ length: 33 }, () => openWebSocket(url, { token: TOKENS.admin })));
    const refused = await Promise.race(clients.map(({ closed }) => closed));
    expect([refused, listeners.size]).toEqual([{ code: 1013, reason: 'too many readers' }, 32]);
    for (const { socket } of clients) socket.destroy();
  });
});

describe('POST /api/v1/support/sysdump/cluster', () => {
  const PATH = '/api/v1/support/sysdump/cluster';

  it('POST /api/v1/support/sysdump/cluster streams the archive while the node still collects files', async () => {
    const archive = new PassThrough();
    const { ask } = await rig(
      {},
      fakeManagement({ support: { begin: () => ({ fileName: 'weir-sysdump-a.tar.gz', archive }) } }),
    );
    const answered = ask('POST', PATH);
    archive.write('first ');
    archive.end('last');
    const answer = await answered;
    expect([answer.statusCode, answer.body]).toEqual([200, 'first last']);
    expect([answer.headers['content-type'], answer.headers['content-disposition']]).toEqual([
      'application/gzip',
      'attachment; filename="weir-sysdump-a.tar.gz"',
    ]);
  });

  it.each([
    ['running', 409, 'sysdump_running'],
    ['closed', 503, 'draining'],
  ] as const)(
    'POST /api/v1/support/sysdump/cluster is refused while another sysdump runs or the node shuts down (state of the collector: %s)',
    async (state, status, code) => {
      const { ask } = await rig({}, fakeManagement({ support: { begin: () => state } }));
      const answer = await ask('POST', PATH);
      expect([answer.statusCode, answer.json<{ type: string }>().type]).toEqual([status, `urn:weir:error:${code}`]);
    },
  );

  it('POST /api/v1/support/sysdump/cluster stops collecting files when the client disconnects', async () => {
    const archive = new PassThrough();
    const { api } = await rig({}, fakeManagement({ support: { begin: () => ({ fileName: 'a', archive }) } }));
    const port = await listening(api);
    const given = new AbortController();
    archive.write('begun');
    const asked = await fetch(`http://127.0.0.1:${port}${PATH}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${TOKENS.admin}` },
      signal: given.signal,
    }).then((answer) => answer.body?.getReader());
    await asked?.read();
    const closed = once(archive, 'close');
    given.abort();
    await closed;
  });
});
