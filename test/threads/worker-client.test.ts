import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { WorkerClient } from '#threads/worker-client.js';
import type { EchoAsks, FromEcho, ToEcho } from './echo-worker.js';
import type { NativeAsks } from './native-worker.js';

let heard: string[];
let thread: WorkerClient<EchoAsks, ToEcho, FromEcho>;
beforeEach(() => {
  heard = [];
  thread = new WorkerClient(
    { entry: 'test/threads/echo-worker.js', name: 'the echo' },
    {
      received: ({ text }) => heard.push(`said ${text}`),
      failed: (reason) => heard.push(`failed: ${reason}`),
      exited: () => heard.push('gone'),
    },
  );
});
afterEach(() => thread.end('the test is over'));

test('`WorkerClient` resolves each request with the reply to this request, after the thread has handled earlier messages', async () => {
  thread.send({ kind: 'note', text: 'one' });
  const asked = ['a', 'b', 'c'].map((what) => thread.request('echo', [what]));
  expect(await Promise.all(asked)).toEqual(['one a', 'one b', 'one c']);
  expect(heard).toEqual(['said one']);
});

test('`WorkerClient` transfers an ArrayBuffer to the thread and back instead of copying it', async () => {
  const bytes = Uint8Array.from([1, 2]);
  expect(await thread.request('double', [bytes], [bytes.buffer])).toEqual(Uint8Array.from([2, 4]));
  expect(bytes.byteLength).toBe(0);
});

test('`WorkerClient` resolves the next request after a request has failed', async () => {
  await expect(thread.request('fail', ['no'])).rejects.toThrow(/^no$/);
  expect(await thread.request('echo', ['yes'])).toBe('yes');
});

test('`WorkerClient` rejects a failed request with the error code from the thread, or without a code if the thread sets none', async () => {
  const bind = 'listen on 192.0.2.1:53: EADDRNOTAVAIL';
  await expect(thread.request('fail', [bind, 'EADDRNOTAVAIL'])).rejects.toStrictEqual(
    Object.assign(new Error(bind), { code: 'EADDRNOTAVAIL' }),
  );
  await expect(thread.request('fail', ['no'])).rejects.not.toHaveProperty('code');
});

test('`WorkerClient` rejects requests that are pending when the thread dies, and all later requests', async () => {
  const asked = thread.request('hang', []);
  thread.send({ kind: 'die', text: 'what kills it' });
  await expect(asked).rejects.toThrow(/^the echo died: what kills it$/);
  expect(heard).toEqual(['gone', 'failed: the echo died: what kills it']);
  expect(thread.isOver).toBe(true);
  await expect(thread.request('echo', ['late'])).rejects.toThrow(/^the echo has ended$/);
});

test('`WorkerClient` does not call `failed` for a thread that `end` has terminated', async () => {
  const asked = thread.request('hang', []);
  const failed = expect(asked).rejects.toThrow(/^that is all$/);
  await thread.end('that is all');
  await failed;
  expect(heard).toEqual(['gone']);
});

const native = { entry: 'test/threads/native-worker.js', name: 'native' };
const failOnEnd = { failed: (reason: string) => expect.fail(reason) };

test('`WorkerClient` terminates a thread only after the work inside `guarded` in that thread is complete', async () => {
  const one = new WorkerClient<NativeAsks>(native, failOnEnd);
  const both = new Int32Array(new SharedArrayBuffer(8));
  const asked = one.request('whole', [both]).catch(() => {});
  await expect.poll(() => both[0]).toBe(1);
  expect(both[1]).toBe(0);
  await one.end('enough');
  expect(both[1]).toBe(1);
  await asked;
});

test('`WorkerClient` does not abort the process if it ends a thread that loads or calls native code', async () => {
  for (let round = 0; round < 60; round++) {
    const threads = [0, 1].map(() => new WorkerClient<NativeAsks>(native, failOnEnd));
    const asked = threads.map((one) => one.request('work', []).catch(() => {}));
    await delay(round * 2);
    await Promise.all(threads.map((one) => one.end('enough')));
    await Promise.all(asked);
  }
});
