import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { Management } from '#api/management.js';
import { refusal } from '#contracts/refusal.js';
import { cursorOf, sortKeyOf } from '#observe/findings/store/index-keys.js';
import { eventsOf } from '#observe/wiretap/event-stream.js';
import type { Sink } from '#observe/wiretap/readers.js';
import { seen } from '#test/observe/findings/seen.js';
import { type FakeManagement, fakeManagement, SINCE, TOKENS } from './fake-management.js';
import { LISTED_FLOW } from './listed-flow.js';
import { listening, rig } from './rig.js';

type Answer = { readonly status?: number; readonly body: unknown; readonly tookMs?: number };

/**
 * Returns a fake node in a cluster with the nodes `ids`. `answer` returns the response of such a node; null
 * if it is silent.
 */
function withNodes(
  ids: readonly string[],
  answer: (node: string, path: string) => Answer | null,
): { readonly node: FakeManagement; readonly asked: string[] } {
  const asked: string[] = [];
  const askAll: Management['peers']['askAll'] = async (path, take, { without = [] } = {}) => {
    const failures = [];
    const others = ids.filter((id) => !without.includes(id));
    for (const id of others) {
      asked.push(`${id} ${path}`);
      const given = answer(id, path);
      if (given === null) failures.push({ node: id, error: 'it did not respond within 2 s' });
      else take({ node: id, status: 200, tookMs: 0, ...given });
    }
    return { asked: others.length, failures };
  };
  const node = fakeManagement();
  const others = async () => ids.map((id) => ({ id, address: null }));
  return { node: Object.assign(node, { peers: { ...node.peers, askAll, others } }), asked };
}

type FindingsBody = { items: { id: string; count: number; node_ids: string[] }[]; next_cursor: string | null };
type FlowsBody = { matched: number; items: { node_id: string; dst_port: number }[]; next_cursor: string | null };

const ONE = { partial: false, node_errors: [], nodes_queried: 1, nodes_responded: 1 };
const DAY = '2026-01-31T';

describe('GET /api/v1/audit/findings', () => {
  const id = (digit: string): string => digit.repeat(32);
  type Of = { readonly digit: string; readonly at: string; readonly count: number };
  const sighting = (digit: string, at: string, count: number): Of => ({ digit, at, count });
  const shown = (node: string, { digit, at, count }: Of) => ({
    id: id(digit),
    finding_type: 'l4_deny',
    ...{ policy_id: null, generation: 1, source_group: 'lan', rule: null, decided_by: null },
    ...{ src_ip: null, dst_ip: null, dst_port: null, proto: 6, hostname: null, sni: null, http: null },
    ...{ icmp_type: null, icmp_code: null, drop_reason: null, reason: null, effective_action: 'deny' },
    ...{ actor: null, operation: null, target: null, remote: null, status: null, etag: null },
    first_seen: `${DAY}${at}.000Z`,
    last_seen: `${DAY}${at}.000Z`,
    count,
    node_ids: [node],
  });
  const page = (node: string, items: readonly Of[], next: string | null = null): Answer => ({
    body: { items: items.map((item) => shown(node, item)), next_cursor: next, ...ONE },
  });
  /** Answers like a node that has `items`: those of the requested ids, or all. */
  const nodeWith =
    (items: Readonly<Record<string, readonly Of[]>>) =>
    (node: string, path: string): Answer => {
      const ids = new URL(path, 'http://x').searchParams.getAll('id');
      return page(
        node,
        (items[node] ?? []).filter(({ digit }) => ids.length === 0 || ids.includes(id(digit))),
      );
    };
  const summary = (body: FindingsBody) =>
    body.items.map(({ id: [first], count, node_ids: nodes }) => [first, count, nodes.join()]);

  test('GET /api/v1/audit/findings merges equal findings of all nodes, the newest first', async () => {
    const { node } = withNodes(
      ['b', 'c'],
      nodeWith({
        b: [sighting('1', '12:00:03', 2), sighting('2', '12:00:02', 1)],
        c: [sighting('3', '12:00:04', 1), sighting('1', '12:00:01', 5)],
      }),
    );
    node.reads.findings = [{ items: [], next: null }];
    const { ask } = await rig({}, node);
    const body = (await ask('GET', '/api/v1/audit/findings')).json();
    expect(summary(body)).toEqual([
      ['3', 1, 'c'],
      ['1', 7, 'b,c'],
      ['2', 1, 'b'],
    ]);
    expect(body.items[1]).toMatchObject({ first_seen: `${DAY}12:00:01.000Z`, last_seen: `${DAY}12:00:03.000Z` });
    expect(body).toMatchObject({ next_cursor: null, partial: false, nodes_queried: 3, nodes_responded: 3 });
  });

  test('GET /api/v1/audit/findings returns each finding on one page only, even if nodes saw it at different times', async () => {
    const { node } = withNodes(['b', 'c'], (name, path) => {
      const all: Readonly<Record<string, readonly Of[]>> = {
        b: [sighting('1', '12:00:09', 1), sighting('2', '12:00:07', 1)],
        c: [sighting('3', '12:00:08', 1), sighting('1', '12:00:06', 1), sighting('4', '12:00:05', 1)],
      };
      const query = new URL(path, 'http://x').searchParams;
      const ids = query.getAll('id');
      const cursor = query.get('cursor');
      const digits = cursor === null ? '' : Buffer.from(cursor, 'base64url').toString('hex');
      const behind = (item: Of): boolean => {
        const ms = Date.parse(`${DAY}${item.at}.000Z`);
        const place = (2 ** 48 - 1 - ms).toString(16).padStart(12, '0') + id(item.digit);
        return cursor === null || place > digits;
      };
      const rows = (all[name] ?? []).filter(
        (item) => (ids.length === 0 || ids.includes(id(item.digit))) && behind(item),
      );
      const limit = Number(query.get('limit'));
      const cut = rows.slice(0, limit);
      const last = cut.at(-1);
      const next =
        rows.length > limit && last !== undefined
          ? Buffer.from(
              (2 ** 48 - 1 - Date.parse(`${DAY}${last.at}.000Z`)).toString(16).padStart(12, '0') + id(last.digit),
              'hex',
            ).toString('base64url')
          : null;
      return page(name, cut, next);
    });
    node.reads.findings = [{ items: [], next: null }];
    const { ask } = await rig({}, node);
    for (const limit of [1, 2, 3, 10]) {
      const found: unknown[] = [];
      for (let cursor: string | null = ''; cursor !== null; ) {
        const body: FindingsBody = (
          await ask('GET', `/api/v1/audit/findings?limit=${limit}${cursor === '' ? '' : `&cursor=${cursor}`}`)
        ).json();
        expect(body.items.length).toBeLessThanOrEqual(limit);
        found.push(...summary(body));
        cursor = body.next_cursor;
      }
      expect(found).toEqual([
        ['1', 2, 'b,c'],
        ['3', 1, 'c'],
        ['2', 1, 'b'],
        ['4', 1, 'c'],
      ]);
    }
  });

  test('the findings of a cluster are marked partial if a node does not respond, refuses or sends an unknown format; a silent node is asked only once', async () => {
    const { node, asked } = withNodes(['b', 'c', 'd', 'e'], (name, path) => {
      if (name === 'b') return null;
      if (name === 'c') return { status: 503, body: { detail: 'performance mode is off' } };
      if (name === 'd') return { body: { other: 'form' } };
      return nodeWith({ e: [sighting('1', '12:00:01', 1)] })(name, path);
    });
    node.reads.findings = [{ items: [], next: null }];
    const { ask } = await rig({}, node);
    const answer = await ask('GET', '/api/v1/audit/findings?since=2026-01-01T00:00:00Z');
    expect(answer.json()).toMatchObject({
      items: [{ count: 1 }],
      partial: true,
      node_errors: [
        { node_id: 'b', error: 'it did not respond within 2 s' },
        { node_id: 'c', error: 'performance mode is off' },
        { node_id: 'd', error: 'its response has another form; it can be of another version' },
      ],
      nodes_queried: 5,
      nodes_responded: 2,
    });
    expect(asked.filter((line) => line.startsWith('b '))).toHaveLength(1);
    expect(asked[0]).toBe('b /api/v1/audit/findings/local?since=2026-01-01T00%3A00%3A00Z&limit=100');
  });

  test('GET /api/v1/audit/findings returns an error if the own node cannot read its findings while another node is slow', async () => {
    const node = fakeManagement();
    const askAll: Management['peers']['askAll'] = async () => {
      await new Promise((resolve) => setTimeout(resolve, 50));
      return { asked: 1, failures: [] };
    };
    Object.assign(node, { peers: { ...node.peers, askAll, others: async () => [{ id: 'b', address: null }] } });
    node.reads.findings = [refusal('store_unavailable', 'the findings cannot be read')];
    const { ask } = await rig({}, node);
    expect((await ask('GET', '/api/v1/audit/findings')).statusCode).toBe(503);
  });

  test('GET /api/v1/audit/findings passes the requested ids to the node', async () => {
    const { ask, node } = await rig();
    await ask('GET', `/api/v1/audit/findings/local?id=${id('a')}&id=${id('b')}`);
    expect(node.reads.asked).toMatchObject([{ filter: { ids: [id('a'), id('b')] } }]);
    expect((await ask('GET', '/api/v1/audit/findings?id=x')).statusCode).toBe(400);
  });

  test('GET /api/v1/audit/findings writes the findings of all nodes as JSON Lines', async () => {
    const { node } = withNodes(['b'], nodeWith({ b: [sighting('1', '12:00:03', 2)] }));
    node.reads.findings = [{ items: [{ ...seen({ lastMs: Date.parse(SINCE) }), id: id('9') }], next: null }];
    const { ask } = await rig({}, node);
    const { payload } = await ask('GET', '/api/v1/audit/findings?format=jsonl');
    const lines = payload.trim().split('\n');
    expect(lines.map((line) => JSON.parse(line).id[0])).toEqual(['1', '9']);
  });

  test('GET /api/v1/audit/findings ends JSON Lines with a list of the nodes that did not respond for one of the pages', async () => {
    const lastMs = Date.parse(SINCE);
    const { node } = withNodes(['b', 'c'], (name, path) =>
      name === 'b' && !path.includes('cursor=') ? null : page(name, []),
    );
    const items = [{ ...seen({ lastMs }), id: id('9') }];
    const next = cursorOf(sortKeyOf(lastMs, id('9')));
    node.reads.findings = [
      { items, next },
      { items, next: null },
      { items: [], next: null },
    ];
    const { ask } = await rig({}, node);
    const { payload } = await ask('GET', '/api/v1/audit/findings?format=jsonl');
    const [first, ...others] = payload
      .trim()
      .split('\n')
      .map((line: string) => JSON.parse(line) as { id?: string });
    expect(first?.id).toBe(id('9'));
    expect(others).toEqual([
      {
        partial: true,
        node_errors: [{ node_id: 'b', error: 'it did not respond within 2 s' }],
        nodes_queried: 3,
        nodes_responded: 2,
      },
    ]);
  });
});

describe('GET /api/v1/policy/hits?scope=cluster', () => {
  const hit = { decided_by: 'rule', source_group: 'lan', rule: 'web' } as const;
  const report = (generation: number, packets: number, last: string | null) => ({
    policy_id: 'p',
    revision: 1,
    generation,
    since: `${DAY}11:00:00.000Z`,
    items: [
      {
        ...hit,
        packets,
        bytes: packets * 10,
        last_hit: last,
        unused: packets === 0,
        unused_since: packets === 0 ? SINCE : null,
      },
    ],
    next_cursor: null,
    ...ONE,
  });
  const own = {
    policy: { id: 'p', revision: 1 },
    generation: 7,
    sinceMs: Date.parse(`${DAY}10:00:00.000Z`),
    items: [
      { decider: { kind: 'rule', group: 'lan', rule: 'web' }, packets: 0n, bytes: 0n, lastMs: null, unusedSinceMs: 0 },
    ],
    next: null,
  } as const;

  test('GET /api/v1/policy/hits?scope=cluster returns the sums of all nodes, and reports nodes that enforce another policy generation as errors', async () => {
    const { node, asked } = withNodes(['b', 'c'], (name) => ({
      body: name === 'b' ? report(7, 5, SINCE) : report(6, 9, SINCE),
    }));
    node.reads.hits = own;
    const { ask } = await rig({}, node);
    expect((await ask('GET', '/api/v1/policy/hits?scope=cluster&group=lan')).json()).toMatchObject({
      since: `${DAY}11:00:00.000Z`,
      items: [{ packets: 5, bytes: 50, last_hit: SINCE, unused: false, unused_since: null }],
      partial: true,
      node_errors: [{ node_id: 'c', error: 'it enforces generation 6, not 7' }],
      nodes_responded: 2,
    });
    expect(asked[0]).toBe('b /api/v1/policy/hits?group=lan');
  });

  test('GET /api/v1/policy/hits?scope=cluster lists a rule as unused only if no node has a hit', async () => {
    const { node } = withNodes(['b'], () => ({ body: report(7, 1, SINCE) }));
    node.reads.hits = own;
    const { ask } = await rig({}, node);
    expect((await ask('GET', '/api/v1/policy/hits?scope=cluster&unused')).json().items).toEqual([]);
    expect((await ask('GET', '/api/v1/policy/hits?unused')).json().items).toHaveLength(1);
  });
});

describe('GET /api/v1/flows?scope=cluster', () => {
  const key = (n: number): string => Buffer.alloc(16, n).toString('base64url');
  const flow = (node: string, n: number) => ({ ...LISTED_FLOW, id: key(n), node_id: node, dst_port: n });

  test('GET /api/v1/flows?scope=cluster pages through the flows of all nodes in the order of node and flow', async () => {
    const of: Readonly<Record<string, readonly number[]>> = { b: [1, 2, 3], c: [1], z: [5, 6] };
    const { node } = withNodes(['b', 'c', 'z'], (name, path) => {
      const query = new URL(path, 'http://x').searchParams;
      const [after = '', at = name] = (query.get('cursor') ?? '').split('@');
      const all = (of[name] ?? []).map((n) => flow(name, n));
      const rest = at > name ? [] : all.filter(({ id }) => at < name || after === '' || id > after);
      const limit = Number(query.get('limit'));
      const next = rest.length > limit ? (rest[limit - 1]?.id ?? null) : null;
      return { body: { matched: all.length, items: rest.slice(0, limit), next_cursor: next, ...ONE } };
    });
    node.reads.flows = { matched: 0, items: [], next: null };
    const { ask } = await rig({}, node);
    for (const limit of [1, 2, 4, 100]) {
      const found: string[] = [];
      for (let cursor: string | null = ''; cursor !== null; ) {
        const more: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
        const body: FlowsBody = (await ask('GET', `/api/v1/flows?scope=cluster&limit=${limit}${more}`)).json();
        expect([body.matched, body.items.length <= limit]).toEqual([6, true]);
        found.push(...body.items.map(({ node_id: name, dst_port: port }) => `${name}${port}`));
        cursor = body.next_cursor;
      }
      expect(found).toEqual(['b1', 'b2', 'b3', 'c1', 'z5', 'z6']);
    }
  });

  test('GET /api/v1/flows?scope=cluster continues the flows of the own node after the flow and node id in the cursor', async () => {
    const { ask, node } = await rig();
    node.reads.flows = { matched: 1, items: [], next: new Uint8Array(16).fill(9) };
    const next = async (cursor: string): Promise<unknown> =>
      (await ask('GET', `/api/v1/flows?cursor=${encodeURIComponent(cursor)}`)).json().next_cursor;
    // The id of this node is `node-a`.
    expect([await next(`${key(1)}@a`), await next(`${key(1)}@node-a`), await next(`${key(1)}@z`)]).toEqual([
      key(9),
      key(9),
      null,
    ]);
    const own = new Uint8Array(16).fill(1);
    expect(node.reads.asked).toMatchObject([{ after: null }, { after: own }, { after: null }]);
  });
});

describe('GET /api/v1/cluster/nodes', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['Date'], now: new Date(`${DAY}12:00:10.000Z`) });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  /** Returns the clock offsets that `node-a` reports for nodes whose clocks show 12:00 plus these times. */
  async function offsetsWith(times: Readonly<Record<string, string | undefined>>): Promise<unknown> {
    const { node } = withNodes([...Object.keys(times), 'silent'], (name) => {
      if (name === 'silent') return null;
      const time = times[name];
      return { body: { ready: true, checks: [], time: time && `${DAY}12:00:${time}Z` }, tookMs: 1_000 };
    });
    const nodes = [...Object.keys(times), 'node-a', 'silent'].map((id) => ({
      ...{ id, address: '', version: '', joinedAt: SINCE, member: null },
    }));
    Object.assign(node, { cluster: { ...node.cluster, nodes: async () => nodes } });
    const { ask } = await rig({}, node);
    const { items } = (await ask('GET', '/api/v1/cluster/nodes')).json<{
      items: { node_id: string; clock_offset: number | null }[];
    }>();
    return Object.fromEntries(items.map(({ node_id: name, clock_offset: offset }) => [name, offset]));
  }

  test('GET /api/v1/cluster/nodes shows the generation that each node enforces and since when, also of nodes that are no members at present', async () => {
    const since = `${DAY}09:00:00.000Z`;
    const told: Readonly<Record<string, object | null>> = {
      b: { generation: 8, in_force_since: since },
      none: { in_force_since: null },
      older: {},
      silent: null,
    };
    const { node } = withNodes(Object.keys(told), (name) =>
      told[name] == null ? null : { body: { ready: true, checks: [], ...told[name] }, tookMs: 1 },
    );
    const nodes = [...Object.keys(told), 'node-a'].map((id) => ({
      ...{ id, address: '', version: '', joinedAt: SINCE, member: null },
    }));
    Object.assign(node, { cluster: { ...node.cluster, nodes: async () => nodes } });
    const { ask } = await rig({}, node);
    const { items } = (await ask('GET', '/api/v1/cluster/nodes')).json<{
      items: { node_id: string; generation: number | null; in_force_since: string | null }[];
    }>();
    const shown = items.map(({ node_id: name, generation, in_force_since: at }) => [name, [generation, at]]);
    const nothing = [null, null];
    expect(Object.fromEntries(shown)).toEqual({
      ...{ b: [8, since], none: nothing, older: nothing, silent: nothing },
      'node-a': [7, SINCE],
    });
  });

  test('GET /api/v1/cluster/nodes shows clocks that differ by more than 1 s, corrected by half of the round trip', async () => {
    const times = { b: '10.800', c: '10.400', d: '08.200', older: undefined };
    expect(await offsetsWith(times)).toEqual({ b: 1, c: 0, d: -1, older: null, 'node-a': 0, silent: null });
  });

  test('GET /api/v1/cluster/nodes shows the clock of the own node as different if the clocks of most other nodes differ from it', async () => {
    expect(await offsetsWith({ b: '12.500', c: '12.600' })).toEqual({ b: 0, c: 0, 'node-a': -3, silent: null });
  });
});

describe('GET /api/v1/wiretap/stream?scope=cluster', () => {
  /** Opens the stream of a node with other nodes. `own` sends a frame of the node itself. */
  async function opened(peers: Pick<Management['peers'], 'others' | 'open'>) {
    const node = fakeManagement();
    const client = new AbortController();
    let reader: Sink | undefined;
    const wiretap: Management['wiretap'] = {
      replayMs: 0,
      read: (_filter, _replay, sink) => {
        reader = sink;
        return { close: () => {} };
      },
    };
    const { api } = await rig({}, Object.assign(node, { peers: { ...node.peers, ...peers }, wiretap }));
    const port = await listening(api);
    const response = await fetch(`http://127.0.0.1:${port}/api/v1/wiretap/stream?scope=cluster`, {
      headers: { authorization: `Bearer ${TOKENS.admin}`, accept: 'text/event-stream' },
      signal: client.signal,
    });
    const frames = eventsOf(response.body as unknown as AsyncIterable<Uint8Array>);
    return {
      next: async (): Promise<unknown> => JSON.parse((await frames.next()).value ?? 'null') as unknown,
      own: (frame: string) => reader?.send(Buffer.from(frame)),
      end: () => client.abort(),
    };
  }
  const streamOf = () => {
    const stream = new PassThrough();
    return Object.assign(stream, { statusCode: 200, setTimeout: () => stream }) as unknown as PassThrough &
      Awaited<ReturnType<Management['peers']['open']>>;
  };

  test('GET /api/v1/wiretap/stream?scope=cluster names the node of each message, and reports when the stream of a node ends', async () => {
    const stream = streamOf();
    const { next, own, end } = await opened({
      others: async () => [{ id: 'b', address: null }],
      open: async () => stream,
    });
    own('{"type":"dns"}');
    expect(await next()).toEqual({ node_id: 'node-a', type: 'dns' });
    stream.write('data: [{"type":"flow"},{"type":"lost","count":2,"where":"reader"}]\n\n');
    expect(await next()).toEqual([
      { node_id: 'b', type: 'flow' },
      { node_id: 'b', type: 'lost', count: 2, where: 'reader' },
    ]);
    stream.write('event: end\ndata: {"reason":"performance mode was disabled"}\n\n');
    expect(await next()).toEqual({ type: 'node_gone', node_id: 'b', reason: 'performance mode was disabled' });
    end();
  });

  test('GET /api/v1/wiretap/stream?scope=cluster ends the stream of each removed node with `node_gone`, and does not open that stream again', async () => {
    const opens: string[] = [];
    const stream = streamOf();
    let ids = ['b', 'c'];
    const { next, own, end } = await opened({
      others: async () => ids.map((id) => ({ id, address: null })),
      open: async (id) => {
        opens.push(id);
        if (id === 'c') throw new Error('the node is not a member of the cluster at present');
        return stream;
      },
    });
    expect(await next()).toEqual({
      type: 'node_gone',
      node_id: 'c',
      reason: 'the node is not a member of the cluster at present',
    });
    ids = [];
    const reason = 'it is not a node of the cluster any more';
    expect([await next(), await next()]).toEqual(
      expect.arrayContaining(['b', 'c'].map((id) => ({ type: 'node_gone', node_id: id, reason }))),
    );
    expect(stream.destroyed).toBe(true);
    const before = opens.length;
    await new Promise((resolve) => setTimeout(resolve, 2_500));
    own('{"type":"dns"}');
    expect(await next()).toEqual({ node_id: 'node-a', type: 'dns' });
    expect(opens).toHaveLength(before);
    end();
  });
});
