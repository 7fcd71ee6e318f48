import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { MessageChannel, Worker } from 'node:worker_threads';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Splices } from '#service-plane/connection/splices.js';
import { Handover } from '#sockets/listening/handover.js';

const built = new URL('../../dist/node/splice.worker.cjs', import.meta.url);
const server = createServer({ allowHalfOpen: true, pauseOnConnect: true });
const handover = new Handover();
let worker: Worker;
let splices: Splices;
beforeAll(async () => {
  const { port1, port2 } = new MessageChannel();
  worker = new Worker(built, {
    workerData: { port: port2, handover: handover.shared, thread: { number: 0, count: 1 } },
    transferList: [port2],
    execArgv: [],
  });
  splices = new Splices(port1, handover);
  await once(server.listen(0, '127.0.0.1'), 'listening');
});
afterAll(async () => {
  const stopped = worker.terminate();
  handover.signal();
  await stopped;
  handover.close();
  server.close();
});

/**
 * Connects to the test server. `end` is the test's socket, and `socket` is the accepted socket that the
 * service plane splices.
 */
async function dialled(): Promise<{ readonly end: Socket; readonly socket: Socket }> {
  const { port } = server.address() as AddressInfo;
  const end = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  const [socket] = (await once(server, 'connection')) as [Socket];
  return { end, socket };
}
async function said(end: Socket): Promise<string> {
  const chunks: Buffer[] = [];
  end.on('data', (chunk: Buffer) => chunks.push(chunk));
  await once(end, 'end');
  return Buffer.concat(chunks).toString();
}

test('`splice` (hands two sockets over to the splicing thread) first sends the data that Node has already read or has not yet written, and then the data that arrives later', async () => {
  const [one, other] = [await dialled(), await dialled()];
  one.end.write('first ');
  await once(one.socket.resume(), 'data').then(([chunk]) => one.socket.pause().unshift(chunk as Buffer));
  const much = 'x'.repeat(8 << 20);
  other.socket.write(much);
  const over = new Promise<void>((resolve) => splices.splice(one.socket, other.socket, resolve));
  one.end.end('second');
  other.end.end('back');
  expect(await said(other.end)).toBe(`${much}first second`);
  expect(await said(one.end)).toBe('back');
  await over;
});

test('`splice` (hands two sockets over to the splicing thread) forwards a FIN that Node has read before, after all data of the same direction', async () => {
  const [one, other] = [await dialled(), await dialled()];
  one.end.end('all');
  one.socket.resume();
  const kept: Buffer[] = [];
  one.socket.on('data', (chunk: Buffer) => kept.push(chunk));
  await once(one.socket, 'end');
  other.socket.write(Buffer.concat(kept));
  const over = new Promise<void>((resolve) => splices.splice(one.socket, other.socket, resolve));
  expect(await said(other.end)).toBe('all');
  other.end.end('answer');
  expect(await said(one.end)).toBe('answer');
  await over;
});

const codeOf = async (end: Socket): Promise<unknown> => ((await once(end, 'error')) as [{ code: string }])[0].code;

test('`cut` of a spliced connection resets both sockets', async () => {
  const [one, other] = [await dialled(), await dialled()];
  const spliced = splices.splice(one.socket, other.socket, () => {});
  one.end.write('x');
  await once(other.end, 'data');
  const codes = [one.end, other.end].map(codeOf);
  spliced.cut();
  one.end.resume();
  expect(await Promise.all(codes)).toEqual(['ECONNRESET', 'ECONNRESET']);
});

test('`cut` of a spliced connection prevents the handover of the sockets to the splicing thread if Node has not yet written all data', async () => {
  const [one, other] = [await dialled(), await dialled()];
  other.socket.write(Buffer.alloc(64 << 20));
  const spliced = splices.splice(one.socket, other.socket, () => {});
  spliced.cut();
  expect([one.socket, other.socket].map(({ destroyed }) => destroyed)).toEqual([false, false]);
  for (const { socket, end } of [one, other]) {
    socket.destroy();
    end.destroy();
  }
});

test('a suspended spliced connection transfers no byte in either direction, and after it is resumed all bytes that were sent meanwhile', async () => {
  const [one, other] = [await dialled(), await dialled()];
  const over = new Promise<void>((resolve) => {
    const spliced = splices.splice(one.socket, other.socket, resolve);
    one.end.once('data', () => spliced.setSuspended(true));
    setTimeout(() => spliced.setSuspended(false), 600);
  });
  other.end.write('begin ');
  await once(one.end, 'data');
  await pause(100);
  const got: string[] = [];
  for (const { end } of [one, other]) end.on('data', (chunk: Buffer) => got.push(chunk.toString()));
  one.end.write('there');
  other.end.write('back');
  await pause(300);
  expect(got).toEqual([]);
  await expect.poll(() => got.toSorted()).toEqual(['back', 'there']);
  for (const { end } of [one, other]) end.end();
  await over;
});

test('a suspended spliced connection ends if a peer resets it, and the other peer gets a reset', async () => {
  const [one, other] = [await dialled(), await dialled()];
  const over = new Promise<void>((resolve) => {
    const spliced = splices.splice(one.socket, other.socket, resolve);
    spliced.setSuspended(true);
  });
  const reset = codeOf(other.end.resume());
  one.end.resetAndDestroy();
  expect(await reset).toBe('ECONNRESET');
  await over;
});

test('`Handover.close` resets a socket that was handed over to the splicing thread but that no thread serves', async () => {
  const { end, socket } = await dialled();
  const other = new Handover();
  other.take((socket as Socket & { readonly _handle: { readonly fd: number } })._handle.fd);
  socket.destroy();
  const reset = once(end.resume(), 'error');
  other.close();
  expect((await reset)[0]).toMatchObject({ code: 'ECONNRESET' });
});
