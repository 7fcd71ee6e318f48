import type { ServerResponse } from 'node:http';
import { setTimeout as pause, setImmediate as turn } from 'node:timers/promises';
import { TLSSocket } from 'node:tls';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { ApiFault } from '#kubernetes/api-server/api-fault.js';
import { type ApiServer, ApiSession } from '#kubernetes/api-server/api-session.js';
import { CutProxy } from '#test/kubernetes/cut-proxy.js';
import { ScriptedServer } from '#test/kubernetes/scripted-server.js';
import { ProgressClock } from '#test/progress-clock.js';

const DEADLINES = { headersMs: 5_000, bodyMs: 5_000, silenceMs: 10_000 };

afterEach(() => {
  vi.restoreAllMocks();
});

const portOf = ({ url }: { readonly url: string }): number => Number(new URL(url).port);

/** Opens a watch whose first line has been read, so that the next read is 34 ms later. */
async function watching(server: ScriptedServer, api: ApiServer = server.api) {
  let response: ServerResponse | undefined;
  server.answer = (_, answer) => {
    response = answer;
    answer.write('first\n');
  };
  const abort = new AbortController();
  const session = await ApiSession.open(api, DEADLINES, abort.signal);
  onTestFinished(() => session.close());
  const batches = await session.watch('/');
  onTestFinished(() => abort.abort());
  expect(await batches.next()).toEqual({ done: false, value: ['first'] });
  if (response === undefined) throw new Error('the server has no watch');
  return { abort, response, batches };
}

/** Reads the rest of a watch. */
async function restOf(batches: AsyncGenerator<readonly string[], void>) {
  const lines: string[] = [];
  const from = performance.now();
  const clock = new ProgressClock();
  let failure: unknown;
  try {
    for await (const batch of batches) lines.push(...batch);
  } catch (thrown) {
    failure = thrown;
  }
  return { lines, failure, ms: performance.now() - from, progressMs: clock.ms() };
}

/** Calls a function with each client socket of a server that gets bytes, or that is paused. */
function onClientSocket(server: ScriptedServer, method: 'push' | 'pause', seen: (socket: TLSSocket) => void): void {
  const port = portOf(server);
  const original = Reflect.get(TLSSocket.prototype, method) as (...args: unknown[]) => unknown;
  vi.spyOn(TLSSocket.prototype, method).mockImplementation(function (this: TLSSocket, ...args: unknown[]) {
    if (this.remotePort === port) seen(this);
    return original.apply(this, args) as never;
  });
}

describe('reads of a watch', () => {
  it('a Kubernetes watch leaves the events between two reads in the kernel, so that the thread wakes up once for all of them', async () => {
    const server = await ScriptedServer.start(() => {});
    let [wakeups, isCounted] = [0, false];
    onClientSocket(server, 'push', () => {
      if (isCounted) return;
      wakeups += 1;
      isCounted = true;
      setImmediate(() => {
        isCounted = false;
      });
    });
    const { response, batches } = await watching(server);
    wakeups = 0;
    const all = restOf(batches);
    const sent = Array.from({ length: 80 }, (_, index) => `event ${index}`);
    for (const line of sent) {
      response.write(`${line}\n`);
      await pause(3);
    }
    response.end();
    const { lines, ms } = await all;
    expect(lines).toEqual(sent);
    // One wake-up for every 30 ms, and two more for the first read and for the end of the watch.
    expect(wakeups).toBeLessThanOrEqual(ms / 30 + 2);
  });

  it('a Kubernetes watch delivers the events that arrived between two reads before the connection was reset, and then the error', async () => {
    const server = await ScriptedServer.start(() => {});
    const proxy = await CutProxy.start(portOf(server));
    onTestFinished(() => proxy.close());
    const { response, batches } = await watching(server, { ...server.api, url: proxy.url });
    const all = restOf(batches);
    const { forwarded } = proxy;
    response.write('second\nthird\n');
    // Both events are in one TLS record. Break the connection after it has arrived, before the next read.
    while (proxy.forwarded === forwarded) await turn();
    proxy.cut();
    const { lines, failure, progressMs } = await all;
    expect(lines).toEqual(['second', 'third']);
    expect(failure).toBeInstanceOf(ApiFault);
    expect(failure).toMatchObject({ kind: 'failed' });
    expect(progressMs).toBeLessThan(1_000);
  });

  it('a Kubernetes watch detects with its next read that the server has ended the watch', async () => {
    const { response, batches } = await watching(await ScriptedServer.start(() => {}));
    const all = restOf(batches);
    response.end('last\n');
    const { lines, failure, progressMs } = await all;
    expect([lines, failure]).toEqual([['last'], undefined]);
    expect(progressMs).toBeLessThan(1_000);
  });

  it('a Kubernetes watch reads a line of 15 MiB without a wait after each part', async () => {
    const { response, batches } = await watching(await ScriptedServer.start(() => {}));
    const line = 'ä'.repeat(7.5 * 2 ** 20);
    const all = restOf(batches);
    response.end(`${line}\n`);
    const { lines, progressMs } = await all;
    expect(lines.map((each) => each === line)).toEqual([true]);
    // If the watch paused after each 64 kB, it would take 7 s.
    expect(progressMs).toBeLessThan(4_000);
  });

  it('a Kubernetes watch continues to read without pauses while the events arrive in large parts', async () => {
    const server = await ScriptedServer.start(() => {});
    let pauses = 0;
    onClientSocket(server, 'pause', () => {
      pauses += 1;
    });
    const { response, batches } = await watching(server);
    const [parts, lines] = [20, 6];
    const part = `${'x'.repeat(7_000)}\n`.repeat(lines);
    let received = 0;
    pauses = 0;
    for (let index = 1; index <= parts; index++) {
      response.write(part);
      while (received < index * lines) received += (await batches.next()).value?.length ?? 0;
    }
    // A watch that paused after each part would have as many pauses as parts.
    expect(pauses).toBeLessThanOrEqual(parts / 2);
  });

  it('a Kubernetes watch reads 42 MB of events whole and in order', async () => {
    const { response, batches } = await watching(await ScriptedServer.start(() => {}));
    const sent = Array.from({ length: 6_000 }, (_, index) => `${index} ${'x'.repeat(7_000)}`);
    const all = restOf(batches);
    for (const line of sent)
      if (!response.write(`${line}\n`)) await new Promise<void>((resolve) => response.once('drain', resolve));
    response.end();
    const { lines, progressMs } = await all;
    expect(lines.length).toBe(sent.length);
    expect(lines.every((line, index) => line === sent[index])).toBe(true);
    // If the watch paused after each 128 kB, it would take 10 s.
    expect(progressMs).toBeLessThan(5_000);
  });

  it('a Kubernetes watch closes the connection at once when it is aborted between two reads', async () => {
    const server = await ScriptedServer.start(() => {});
    const paused = new Promise<TLSSocket>((resolve) => onClientSocket(server, 'pause', resolve));
    const { abort, batches } = await watching(server);
    const all = restOf(batches);
    const socket = await paused;
    expect(socket.destroyed).toBe(false);
    abort.abort();
    await turn();
    expect(socket.destroyed).toBe(true);
    expect((await all).failure).toBeInstanceOf(ApiFault);
  });
});
