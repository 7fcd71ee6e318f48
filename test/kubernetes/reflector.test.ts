import type { ServerResponse } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { REFLECTOR_TIMES, type ReflectorTimes, reflect } from '#kubernetes/watch/reflector.js';
import { eventually } from '#test/eventually.js';
import { Recording } from '#test/kubernetes/recording.js';
import { scope } from '#test/kubernetes/sample.js';
import {
  type Asked,
  bookmark,
  lineOf,
  podOf,
  ScriptedServer,
  sendList,
  sendStatus,
} from '#test/kubernetes/scripted-server.js';
import { Random, seedOf } from '#test/seed.js';

type Kept = { readonly uid: string; readonly version: string };
const FAST: ReflectorTimes = { ...REFLECTOR_TIMES, livedMs: 0, firstBackoffMs: 1, mostBackoffMs: 20 };
const PODS = scope('pods');

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
});

function keep(value: unknown): Kept | undefined {
  const { metadata } = value as ReturnType<typeof podOf>;
  return metadata.labels.ignore === undefined ? { uid: metadata.uid, version: metadata.resourceVersion } : undefined;
}

function record({ api: server }: Pick<ScriptedServer, 'api'>, times: Partial<ReflectorTimes> = {}, of = PODS) {
  const recording = new Recording<Kept>(reflect({ server, scope: of, keep, times: { ...FAST, ...times } }));
  onTestFinished(() => recording.end());
  return recording;
}

/** Sends a text byte by byte, and never its last one. */
function sendSlowly(response: ServerResponse, text: string): void {
  const bytes = Buffer.from(text);
  let at = 0;
  const timer = setInterval(() => response.write(bytes.subarray(at, Math.min(++at, bytes.length - 1))), 20);
  response.on('close', () => clearInterval(timer));
}

/** Sends `mebibytes` of blanks. */
function sendSpaces(response: ServerResponse, mebibytes: number): void {
  const part = Buffer.alloc(2 ** 20, ' ');
  let left = mebibytes;
  const send = (): void => {
    while (left-- > 0) if (!response.write(part)) return void response.once('drain', send);
    response.end();
  };
  send();
}

const isWatch = ({ query }: Asked) => query.has('watch');
const changeOf = (version: string) => (message: { readonly type: string; readonly object?: Kept }) =>
  message.type === 'changed' && message.object?.version === version;

describe('reflector', () => {
  it('a Kubernetes reflector lists in pages of 100, and watches from the version of the list with bookmarks and a random time limit', async () => {
    const server = await ScriptedServer.start(({ query }, response) => {
      if (query.has('watch')) response.write(lineOf('ADDED', podOf('c', 8)));
      else if (query.get('continue') === 'page 2') sendList(response, 7, [podOf('b', 4)]);
      else sendList(response, 7, [podOf('a', 3)], 'page 2');
    });
    const recording = record(server, {}, scope('pods', 'shop', 'n1'));
    await recording.until(changeOf('8'));
    expect(recording.messages).toEqual([
      { type: 'phase', phase: 'connecting', reason: null },
      { type: 'phase', phase: 'listing', reason: null },
      {
        type: 'listed',
        version: 7,
        objects: [
          { uid: 'a', version: '3' },
          { uid: 'b', version: '4' },
        ],
      },
      { type: 'phase', phase: 'watching', reason: null },
      { type: 'changed', object: { uid: 'c', version: '8' } },
    ]);
    const fieldSelector = 'status.phase!=Succeeded,status.phase!=Failed,spec.nodeName=n1';
    const [first, second, watch] = server.asked.map(({ path, query }) => ({ path, ...Object.fromEntries(query) }));
    const path = '/api/v1/namespaces/shop/pods';
    expect(first).toEqual({ path, limit: '100', fieldSelector });
    expect(second).toEqual({ path, limit: '100', continue: 'page 2', fieldSelector });
    const timeoutSeconds = expect.stringMatching(/^(23[2-9]|2[4-8]\d|290)$/);
    expect(watch).toEqual({
      ...{ path, watch: '1', allowWatchBookmarks: 'true', resourceVersion: '7', timeoutSeconds, fieldSelector },
    });
  });

  it('a Kubernetes reflector deletes an object when the server deletes the object, and when the object is to be ignored', async () => {
    const server = await ScriptedServer.start((asked, response) => {
      if (!isWatch(asked)) sendList(response, 5, [podOf('a', 3), podOf('b', 4)]);
      else response.write(lineOf('DELETED', podOf('a', 6)) + lineOf('MODIFIED', podOf('b', 7, { ignore: '' })));
    });
    const recording = record(server);
    await recording.until((message) => message.type === 'deleted' && message.uid === 'b');
    expect(recording.messages.slice(-2)).toEqual([
      { type: 'deleted', uid: 'a', version: 6 },
      { type: 'deleted', uid: 'b', version: 7 },
    ]);
  });

  it('a Kubernetes reflector reads a single event at once, and waits 34 ms between two reads', async () => {
    let watch: ServerResponse | undefined;
    const server = await ScriptedServer.start((asked, response) => {
      if (!isWatch(asked)) sendList(response, 5, []);
      else {
        watch = response;
        response.write(lineOf('ADDED', podOf('a', 6)));
      }
    });
    const recording = record(server);
    await recording.until(changeOf('6'));
    const read = performance.now();
    watch?.write(lineOf('ADDED', podOf('b', 7)));
    watch?.write(lineOf('ADDED', podOf('c', 8)));
    await recording.until(changeOf('7'));
    expect(performance.now() - read).toBeGreaterThan(25);
    expect(recording.messages.at(-1)).toEqual({ type: 'changed', object: { uid: 'c', version: '8' } });
  });

  it('a Kubernetes reflector delivers the events that arrived between two reads before the connection broke', async () => {
    let watch: ServerResponse | undefined;
    let isBroken = false;
    const server = await ScriptedServer.start((asked, response) => {
      if (isBroken) response.destroy();
      else if (!isWatch(asked)) sendList(response, 5, []);
      else {
        watch = response;
        response.write(lineOf('ADDED', podOf('a', 6)));
      }
    });
    const recording = record(server);
    await recording.until(changeOf('6'));
    isBroken = true;
    watch?.write(lineOf('DELETED', podOf('a', 7)));
    // Wait until the event has arrived, but not until the reflector reads again.
    await pause(10);
    watch?.destroy();
    await recording.until(({ type }) => type === 'deleted', 3_000);
  });

  it('a Kubernetes reflector delivers each event once and in order, wherever the connection breaks', async () => {
    const lines = [lineOf('ADDED', podOf('ä', 6)), bookmark(7), lineOf('DELETED', podOf('ä', 8))];
    const versions = [6, 7, 8];
    const whole = Buffer.byteLength(lines.join(''));
    const random = new Random(seedOf(24));
    for (let cut = random.below(5); cut <= whole; cut += random.between(2, 6)) {
      let isCut = false;
      const server = await ScriptedServer.start(({ query }, response) => {
        // The request with limit 1, by which the reflector compares versions, gets the version 9.
        if (!query.has('watch')) return sendList(response, query.get('limit') === '1' ? 9 : 5, []);
        const from = Number(query.get('resourceVersion'));
        const rest = Buffer.from(lines.filter((_, index) => (versions[index] ?? 0) > from).join(''));
        if (isCut) response.write(rest);
        else response.write(rest.subarray(0, cut), () => response.socket?.destroy());
        isCut = true;
      });
      const recording = record(server);
      await recording.until(({ type }) => type === 'deleted');
      await eventually(() => expect(server.watches.length).toBe(2));
      expect(
        recording.messages.filter(({ type }) => type !== 'phase'),
        `cut after ${cut} bytes`,
      ).toEqual([
        { type: 'listed', objects: [], version: 5 },
        { type: 'changed', object: { uid: 'ä', version: '6' } },
        { type: 'deleted', uid: 'ä', version: 8 },
      ]);
      recording.end();
      await server.close();
    }
  });

  const expired = 'too old resource version: 5 (9)';
  const brokenWatches: readonly (readonly [string, ScriptedServer['answer'], RegExp])[] = [
    [
      '410 as a status',
      (_, response) => sendStatus(response, 410, expired),
      /^410: too old resource version: 5 \(9\)$/,
    ],
    [
      '410 as an event',
      (_, response) => response.write(lineOf('ERROR', { kind: 'Status', code: 410, message: expired })),
      /^410: too old/,
    ],
    [
      'another error as an event',
      (_, response) => response.write(lineOf('ERROR', { kind: 'Status', code: 500, message: 'no leader' })),
      /^500: no leader$/,
    ],
    ['a line that is no JSON', (_, response) => response.write('{"type":\n'), /not a watch event: {"type":/],
    ['an unknown event', (_, response) => response.write(lineOf('RENAMED', podOf('a', 6))), /not a watch event/],
    [
      'an object without uid',
      (_, response) => response.write(lineOf('ADDED', { metadata: { resourceVersion: '6' } })),
      /not a watch event/,
    ],
    [
      'a version that is no number',
      (_, response) => response.write(lineOf('ADDED', { metadata: { uid: 'a', resourceVersion: 'x' } })),
      /not a watch event/,
    ],
    [
      'a bookmark that goes back',
      (_, response) => response.write(bookmark(7) + bookmark(6)),
      /^the version of a bookmark fell from 7 to 6$/,
    ],
    ['a line of more than 16 MiB', (_, response) => response.write('x'.repeat(17 * 2 ** 20)), /16 MiB/],
  ];
  it.each(brokenWatches)(
    'a Kubernetes reflector lists again after a watch that cannot continue (%s), and keeps the objects until then',
    async (_name, broken, reason) => {
      let lists = 0;
      const server = await ScriptedServer.start((asked, response) => {
        if (!isWatch(asked)) {
          lists += 1;
          if (lists === 1) sendList(response, 5, [podOf('a', 3)]);
          else if (lists === 2) sendStatus(response, 500, 'not yet');
          else sendList(response, 9, [podOf('b', 8)]);
        } else if (lists === 1) broken(asked, response);
        else response.write(bookmark(10));
      });
      const recording = record(server);
      await recording.until((message) => message.type === 'listed' && message.version === 9);
      const messages = recording.messages.filter(({ type }) => type !== 'phase');
      expect(messages.map(({ type }) => type)).toEqual(['listed', 'listed']);
      expect((await recording.untilPhase('backing_off')).reason).toMatch(reason);
      await eventually(() => expect(server.watches.length).toBe(2));
      expect(server.watches[1]?.query.get('resourceVersion')).toBe('9');
    },
  );

  it('a Kubernetes reflector begins a list again if the continue token has expired, and delivers nothing of the first attempt', async () => {
    let isExpired = true;
    const server = await ScriptedServer.start(({ query }, response) => {
      if (query.has('watch')) response.write(bookmark(10));
      else if (!query.has('continue')) sendList(response, isExpired ? 5 : 9, [podOf('a', 3)], 'next');
      else if (isExpired) {
        isExpired = false;
        sendStatus(response, 410, 'The provided continue parameter is too old');
      } else sendList(response, 9, []);
    });
    const recording = record(server);
    await recording.untilPhase('watching');
    expect(recording.messages.filter(({ type }) => type === 'listed')).toEqual([
      { type: 'listed', objects: [{ uid: 'a', version: '3' }], version: 9 },
    ]);
  });

  it('a Kubernetes reflector watches again from the last bookmark after silence, without a new list, and stays in the phase `watching`', async () => {
    const server = await ScriptedServer.start((asked, response) => {
      if (isWatch(asked)) response.write(bookmark(7));
      else sendList(response, asked.query.get('limit') === '1' ? 7 : 5, []);
    });
    const recording = record(server, { silenceMs: 100 });
    await eventually(() => expect(server.watches.length).toBe(3));
    expect(server.watches.map(({ query }) => query.get('resourceVersion'))).toEqual(['5', '7', '7']);
    expect(recording.lists).toBe(1);
    expect(recording.phases).toEqual(['connecting', 'listing', 'watching']);
  });

  it('a Kubernetes reflector whose watch is silent while the server progresses lists again, and stays in the phase `watching` if it missed no change', async () => {
    let version = 5;
    const server = await ScriptedServer.start((asked, response) => {
      if (isWatch(asked)) response.flushHeaders();
      else sendList(response, version++, [podOf('a', 3)]);
    });
    const recording = record(server, { silenceMs: 50 });
    await eventually(() => expect(recording.lists).toBe(4));
    expect(recording.phases).toEqual(['connecting', 'listing', 'watching']);
  });

  const missing = [
    ['changes an object', [podOf('a', 8, { quarantine: 'true' }), podOf('b', 4)]],
    ['deletes an object', [podOf('a', 3)]],
  ] as const;
  const endings: readonly (readonly [string, (response: ServerResponse) => void])[] = [
    ['is silent', (response) => response.flushHeaders()],
    ['ends without an event', (response) => void setTimeout(() => response.end(), 20)],
    ['holds back the end of a line', (response) => sendSlowly(response, lineOf('MODIFIED', podOf('a', 8)))],
  ];
  it.each(endings.flatMap(([end, answer]) => missing.map(([change, after]) => [end, change, answer, after] as const)))(
    'a Kubernetes reflector takes a change from a new list, and reports silence, if its watch delivers nothing (it %s) although the server %s',
    async (_end, _change, answer, after) => {
      let isChanged = false;
      let isMended = false;
      const server = await ScriptedServer.start((asked, response) => {
        const objects = isChanged ? after : [podOf('a', 3), podOf('b', 4)];
        if (!isWatch(asked)) sendList(response, isChanged ? 9 : 5, objects);
        else if (isMended) response.write(bookmark(9));
        else answer(response);
        if (isWatch(asked)) isChanged = true;
      });
      const recording = record(server, { silenceMs: 60 });
      expect((await recording.untilPhase('silent')).reason).toBe('the watch does not send the changes that lists show');
      expect([...recording.objects.values()].map(({ version }) => version)).toEqual(
        after.map(({ metadata }) => metadata.resourceVersion),
      );
      isMended = true;
      await eventually(() => expect(recording.phases.at(-1)).toBe('watching'));
    },
  );

  it('a Kubernetes reflector lists without pages after two lists whose continue token has expired', async () => {
    const server = await ScriptedServer.start(({ query }, response) => {
      if (query.has('watch')) response.write(bookmark(10));
      else if (query.has('continue')) sendStatus(response, 410, 'The provided continue parameter is too old');
      else if (query.has('limit')) sendList(response, 5, [podOf('a', 3)], 'next');
      else sendList(response, 9, [podOf('a', 3), podOf('b', 4)]);
    });
    const recording = record(server);
    await recording.untilPhase('watching');
    expect([...recording.objects.keys()]).toEqual(['a', 'b']);
    expect(server.lists.map(({ query }) => query.get('limit'))).toEqual(['100', '100', '100', '100', null]);
  });

  it('a Kubernetes reflector tries pages again if a list without pages is too large', async () => {
    let expired = 0;
    const server = await ScriptedServer.start(({ query }, response) => {
      if (query.has('watch')) response.write(bookmark(10));
      else if (!query.has('limit')) sendSpaces(response, 257);
      else if (!query.has('continue')) sendList(response, 5, [podOf('a', 3)], 'next');
      else if (++expired <= 2) sendStatus(response, 410, 'The provided continue parameter is too old');
      else sendList(response, 5, []);
    });
    const recording = record(server);
    await recording.untilPhase('watching', 30_000);
    expect(server.lists.map(({ query }) => query.get('limit'))).toEqual([...Array(4).fill('100'), null, '100', '100']);
  });

  it('a Kubernetes reflector reports a plain reason if the server closes a connection within or before a response', async () => {
    let isBefore = false;
    const server = await ScriptedServer.start((_, response) => {
      if (isBefore) response.destroy();
      else response.write('{"kind":', () => response.destroy());
      isBefore = !isBefore;
    });
    const recording = record(server);
    const reasons = () => new Set(recording.messages.map((each) => (each.type === 'phase' ? each.reason : null)));
    await eventually(() => expect(reasons().size).toBe(3));
    expect([...reasons()].sort()).toEqual(
      [
        null,
        'the server closed the connection within a response',
        'the server closed the connection without a response',
      ].sort(),
    );
  });

  it('a Kubernetes reflector reports a server as silent if the server does not respond after a silent watch', async () => {
    const server = await ScriptedServer.start((asked, response) => {
      if (isWatch(asked)) response.write(bookmark(7));
      else if (asked.query.get('limit') !== '1') sendList(response, 5, []);
    });
    const recording = record(server, { silenceMs: 100, headersMs: 150 });
    expect((await recording.untilPhase('silent')).reason).toBe('the server did not respond in 0.15 s');
    expect(recording.phases).toEqual(['connecting', 'listing', 'watching', 'silent']);
  });

  it('a Kubernetes reflector keeps a watch that receives bookmarks often enough, even beyond the other time limits', async () => {
    const server = await ScriptedServer.start((asked, response) => {
      if (!isWatch(asked)) return sendList(response, 5, []);
      let version = 5;
      const beat = setInterval(() => response.write(bookmark(++version)), 40);
      response.on('close', () => clearInterval(beat));
    });
    const recording = record(server, { silenceMs: 400, headersMs: 300, bodyMs: 300 });
    await recording.untilPhase('watching');
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    expect(server.watches.length).toBe(1);
    expect(recording.phases).toEqual(['connecting', 'listing', 'watching']);
  });

  it.each([
    ['no headers', { headersMs: 100 }, () => {}, /^the server did not respond in 0.1 s$/],
    [
      'half a body',
      { bodyMs: 100 },
      (response: { write: (text: string) => void }) => response.write('{"kind":'),
      /^the server sent no complete response in 0.1 s$/,
    ],
  ] as const)(
    'a Kubernetes reflector reports a server that sends no complete response (%s) as silent',
    async (_name, times, send, reason) => {
      const server = await ScriptedServer.start((_, response) => void send(response));
      expect((await record(server, times).untilPhase('silent')).reason).toMatch(reason);
    },
  );

  it('a Kubernetes reflector lists again if the server is at an older version after a watch, because etcd was restored', async () => {
    let version = 100;
    const server = await ScriptedServer.start((asked, response) => {
      if (!isWatch(asked)) return sendList(response, version, [podOf(`at ${version}`, 1)]);
      response.end(bookmark(version));
      version = 60;
    });
    const recording = record(server);
    await recording.until((message) => message.type === 'listed' && message.version === 60);
    expect((await recording.untilPhase('backing_off')).reason).toBe('the version of the server fell from 100 to 60');
    expect([...recording.objects.keys()]).toEqual(['at 60']);
  });

  it('a Kubernetes reflector lists again at the end of a watch if the last list is too old', async () => {
    const server = await ScriptedServer.start((asked, response) => {
      if (isWatch(asked)) setTimeout(() => response.end(), 60);
      else sendList(response, 5, []);
    });
    const recording = record(server, { relistMs: 500 });
    await eventually(() => expect(recording.lists).toBe(3));
    expect(server.watches.length).toBeGreaterThanOrEqual(4);
    expect(recording.phases).not.toContain('backing_off');
  });

  it('a Kubernetes reflector doubles a random back-off up to its limit, and resets the back-off after a successful watch', async () => {
    vi.spyOn(Math, 'random').mockReturnValue(1);
    const server = await ScriptedServer.start((asked, response) => {
      const count = server.asked.length;
      if (isWatch(asked)) {
        response.flushHeaders();
        setTimeout(() => response.socket?.destroy(), 150);
      } else if (count <= 4) sendStatus(response, 500, 'etcd is not ready');
      else sendList(response, 5, []);
    });
    const times = { firstBackoffMs: 100, mostBackoffMs: 600, livedMs: 100 };
    const recording = record(server, times);
    expect((await recording.untilPhase('backing_off')).reason).toBe('500: etcd is not ready');
    await eventually(() => expect(server.watches.length).toBe(2));
    const gaps = server.times.slice(1).map((time, index) => time - (server.times[index] ?? 0));
    // The requests are four that fail, a list, a watch, and a comparison of versions.
    for (const [index, least] of [100, 200, 400, 600].entries())
      expect(gaps[index], `gaps ${gaps.join()}`).toBeGreaterThanOrEqual(least - 2);
    expect(gaps[3]).toBeLessThan(790);
    expect(gaps[5]).toBeLessThan(150 + 600 - 10);
  });

  it('a Kubernetes reflector waits for the time in Retry-After', async () => {
    const server = await ScriptedServer.start((asked, response) => {
      if (server.asked.length === 1) sendStatus(response, 429, 'slow down', { 'retry-after': '1' });
      else if (isWatch(asked)) response.write(bookmark(6));
      else sendList(response, 5, []);
    });
    await record(server).untilPhase('watching');
    expect((server.times[1] ?? 0) - (server.times[0] ?? 0)).toBeGreaterThanOrEqual(998);
  });

  it.each([
    [401, 'unauthorized'],
    [403, 'forbidden'],
  ] as const)(
    'a Kubernetes reflector reports a response with the status %i as the state %s, and reads the token again',
    async (code, phase) => {
      const server = await ScriptedServer.start(({ authorization, query }, response) => {
        if (authorization !== 'Bearer token-2') sendStatus(response, code, 'pods is forbidden:\n no');
        else if (query.has('watch')) response.write(bookmark(6));
        else sendList(response, 5, []);
      });
      const recording = record(server);
      expect((await recording.untilPhase(phase)).reason).toBe(`${code}: pods is forbidden: no`);
      server.token = 'token-2';
      await recording.untilPhase('watching');
    },
  );

  it('a Kubernetes reflector sends nothing to a server whose certificate another CA signed, regardless of environment variables', async () => {
    vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0');
    const server = await ScriptedServer.start((_, response) => sendList(response, 5, []));
    const { makeCertificate } = await import('#test/kubernetes/server-certificate.js');
    const { temporaryFolder } = await import('#test/store/temporary-folder.js');
    const { ca } = makeCertificate(temporaryFolder());
    const credentials = async () => ({ caPem: ca, token: 'secret' });
    const recording = record({ api: { url: server.url, credentials } });
    expect((await recording.untilPhase('backing_off')).reason).toMatch(/certificate/);
    expect(server.asked).toEqual([]);
  });

  it('a Kubernetes reflector uses no proxy from environment variables', async () => {
    vi.stubEnv('HTTPS_PROXY', 'http://127.0.0.1:1');
    vi.stubEnv('NODE_USE_ENV_PROXY', '1');
    const server = await ScriptedServer.start((asked, response) => {
      if (isWatch(asked)) response.write(bookmark(6));
      else sendList(response, 5, []);
    });
    await record(server).untilPhase('watching');
  });

  it('a Kubernetes reflector follows no redirect', async () => {
    const target = await ScriptedServer.start((_, response) => sendList(response, 5, []));
    const server = await ScriptedServer.start((_, response) => response.writeHead(302, { location: target.url }).end());
    const recording = record(server);
    expect((await recording.untilPhase('backing_off')).reason).toMatch(/^302: the server redirects/);
    expect(target.asked).toEqual([]);
  });

  it('a Kubernetes reflector asks for smaller pages if a response exceeds 64 MiB', async () => {
    const large = Buffer.alloc(65 * 2 ** 20, ' ');
    const server = await ScriptedServer.start((asked, response) => {
      if (isWatch(asked)) response.write(bookmark(6));
      else if (asked.query.get('limit') === '100') response.end(large);
      else sendList(response, 5, []);
    });
    const recording = record(server);
    await recording.untilPhase('watching');
    expect((await recording.untilPhase('backing_off')).reason).toMatch(/^the response has more than \d+ bytes$/);
    expect(server.lists.map(({ query }) => query.get('limit'))).toEqual(['100', '25']);
  });

  it('a Kubernetes reflector reports a response that is not a list, and a token file that cannot be read', async () => {
    const server = await ScriptedServer.start((_, response) => response.end('<html>'));
    expect((await record(server).untilPhase('backing_off')).reason).toBe('the response is not JSON');
    server.answer = (_, response) => response.end('{"kind":"Status"}');
    expect((await record(server).untilPhase('backing_off')).reason).toBe(
      'the response is not a list of Kubernetes objects',
    );
    const credentials = async () => {
      throw new Error('/run/token: no such file or directory');
    };
    const recording = record({ api: { url: server.url, credentials } });
    expect((await recording.untilPhase('backing_off')).reason).toBe('/run/token: no such file or directory');
  });

  it('a Kubernetes reflector closes its connection when it ends', async () => {
    const server = await ScriptedServer.start((asked, response) => {
      if (isWatch(asked)) response.write(bookmark(6));
      else sendList(response, 5, []);
    });
    const recording = record(server);
    await recording.untilPhase('watching');
    expect(await server.connections).toBe(1);
    recording.end();
    await eventually(async () => expect(await server.connections).toBe(0));
  });
});
