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
      said: ({ text }) => heard.push(`said ${text}`),
      died: (reason) => heard.push(`died: ${reason}`),
      gone: () => heard.push('gone'),
    },
  );
});
afterEach(() => thread.end('the test is over'));

test('answers each question with its own answer, and hears what is said before them', async () => {
  thread.tell({ kind: 'note', text: 'one' });
  const asked = ['a', 'b', 'c'].map((what) => thread.ask('echo', [what]));
  expect(await Promise.all(asked)).toEqual(['one a', 'one b', 'one c']);
  expect(heard).toEqual(['said one']);
});

test('hands over what is transferred', async () => {
  const bytes = Uint8Array.from([1, 2]);
  expect(await thread.ask('double', [bytes], [bytes.buffer])).toEqual(Uint8Array.from([2, 4]));
  expect(bytes.byteLength).toBe(0);
});

test('fails one question, and answers the next', async () => {
  await expect(thread.ask('fail', ['no'])).rejects.toThrow(/^no$/);
  expect(await thread.ask('echo', ['yes'])).toBe('yes');
});

test('a failure has the code that it has in the thread, and none where it has none there', async () => {
  const bind = 'listen on 192.0.2.1:53: EADDRNOTAVAIL';
  await expect(thread.ask('fail', [bind, 'EADDRNOTAVAIL'])).rejects.toStrictEqual(
    Object.assign(new Error(bind), { code: 'EADDRNOTAVAIL' }),
  );
  await expect(thread.ask('fail', ['no'])).rejects.not.toHaveProperty('code');
});

test('what it was asked when it dies fails, as does what it is asked after it', async () => {
  const asked = thread.ask('hang', []);
  thread.tell({ kind: 'die', text: 'what kills it' });
  await expect(asked).rejects.toThrow(/^the echo died: what kills it$/);
  expect(heard).toEqual(['gone', 'died: the echo died: what kills it']);
  expect(thread.isOver).toBe(true);
  await expect(thread.ask('echo', ['late'])).rejects.toThrow(/^the echo has ended$/);
});

test('one that is ended did not die', async () => {
  const asked = thread.ask('hang', []);
  const failed = expect(asked).rejects.toThrow(/^that is all$/);
  await thread.end('that is all');
  await failed;
  expect(heard).toEqual(['gone']);
});

const native = { entry: 'test/threads/native-worker.js', name: 'native' };
const nobody = { died: (reason: string) => expect.fail(reason) };

test('what is to be done as a whole is, by one that is ended meanwhile', async () => {
  const one = new WorkerClient<NativeAsks>(native, nobody);
  const both = new Int32Array(new SharedArrayBuffer(8));
  const asked = one.ask('whole', [both]).catch(() => {});
  await expect.poll(() => both[0]).toBe(1);
  expect(both[1]).toBe(0);
  await one.end('enough');
  expect(both[1]).toBe(1);
  await asked;
});

test('one that is ended while it loads, or calls native code, does not take the process along', async () => {
  for (let round = 0; round < 60; round++) {
    const threads = [0, 1].map(() => new WorkerClient<NativeAsks>(native, nobody));
    const asked = threads.map((one) => one.ask('work', []).catch(() => {}));
    await delay(round * 2);
    await Promise.all(threads.map((one) => one.end('enough')));
    await Promise.all(asked);
  }
});
