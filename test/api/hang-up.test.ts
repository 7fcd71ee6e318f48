import { once } from 'node:events';
import { request } from 'node:http';
import type { AddressInfo } from 'node:net';
import Fastify from 'fastify';
import { expect, onTestFinished, test } from 'vitest';
import { hangUpOf } from '#api/requests/hang-up.js';

/** Starts a server whose route waits for `answer`. Returns its port, and the signal of each request. */
async function served(answer: Promise<string>) {
  const server = Fastify();
  onTestFinished(() => server.close());
  const signals: AbortSignal[] = [];
  server.get('/', async (_request, reply) => {
    signals.push(hangUpOf(reply));
    return answer;
  });
  await server.listen({ host: '127.0.0.1', port: 0 });
  return { port: (server.server.address() as AddressInfo).port, signals };
}

test('`hangUpOf` aborts its signal if the client closes the connection before it has the response', async () => {
  const { port, signals } = await served(new Promise(() => {}));
  const asked = request({ host: '127.0.0.1', port }).on('error', () => {});
  asked.end();
  await expect.poll(() => signals.length).toBe(1);
  expect(signals[0]?.aborted).toBe(false);
  asked.destroy();
  await expect.poll(() => signals[0]?.aborted).toBe(true);
});

test('`hangUpOf` does not abort its signal if the client closes the connection after the response', async () => {
  const { port, signals } = await served(Promise.resolve('done'));
  const asked = request({ host: '127.0.0.1', port, agent: false });
  asked.end();
  const [response] = (await once(asked, 'response')) as [NodeJS.ReadableStream];
  response.resume();
  await once(response, 'close');
  expect(signals.map(({ aborted }) => aborted)).toEqual([false]);
});
