import { expect, test } from 'vitest';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { createHttp1Rig, heard } from './http1-rig.js';

const GET = `GET / HTTP/1.1\r\nHost: ${SERVER_NAME}\r\n\r\n`;
const UPGRADE = `GET / HTTP/1.1\r\nHost: ${SERVER_NAME}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`;
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';

test('a link that broke while the client’s handshake went on is made again', async () => {
  const rig = await createHttp1Rig(async ({ socket }) => {
    socket.destroy();
    await new Promise((resolve) => socket.once('close', resolve));
  });
  const answer = heard(rig.client);
  rig.client.write(GET);
  const alive = () => rig.servers.filter(({ destroyed }) => !destroyed);
  await expect.poll(() => alive().length).toBe(1);
  alive()[0]?.write(OK);
  await expect.poll(() => answer.text).toBe(OK);
  await rig.close();
});

test('a client that says its end leaves the link to its next connection', async () => {
  const rig = await createHttp1Rig();
  const answer = heard(rig.client);
  rig.client.write(GET);
  rig.servers[0]?.write(OK);
  await expect.poll(() => answer.text).toBe(OK);
  rig.client.end();
  await new Promise((resolve) => rig.client.once('close', resolve));
  expect(rig.given).toEqual([rig.link]);
  await rig.close();
});

test('what a client says in a tunnel after the server’s end goes nowhere', async () => {
  const rig = await createHttp1Rig();
  const answer = heard(rig.client);
  rig.client.write(UPGRADE);
  await new Promise((resolve) => rig.servers[0]?.once('data', resolve));
  rig.servers[0]?.write(
    'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nhello',
  );
  await expect.poll(() => answer.text.endsWith('hello')).toBe(true);
  const ended = new Promise((resolve) => rig.client.once('end', resolve));
  rig.servers[0]?.destroy();
  await ended;
  rig.client.write('late');
  rig.client.end('later');
  await new Promise((resolve) => rig.client.once('close', resolve));
  expect(rig.refused).toEqual([]);
  await rig.close();
});

test('four thousand requests on one connection are answered, pipelined by a hundred', async () => {
  const rig = await createHttp1Rig();
  let answers = 0;
  rig.client.on('data', (chunk: Buffer) => {
    answers += chunk.toString('latin1').split('HTTP/1.1 200').length - 1;
  });
  rig.servers[0]?.on('data', () => rig.servers[0]?.write(OK));
  for (let count = 1; count <= 40; count++) {
    rig.client.write(GET.repeat(100));
    await expect.poll(() => answers, { timeout: 10_000, interval: 1 }).toBeGreaterThanOrEqual(count * 100 - 1);
  }
  await expect.poll(() => answers).toBe(4_000);
  await rig.close();
});

const POST = `POST /form HTTP/1.1\r\nHost: ${SERVER_NAME}\r\nContent-Length: 4\r\n\r\nform`;

/** A rig whose link has served a request. */
async function served() {
  const rig = await createHttp1Rig();
  const answer = heard(rig.client);
  const [first] = rig.servers;
  if (first === undefined) throw new Error('there is no link');
  first.once('data', () => first.write(OK));
  rig.client.write(GET);
  await expect.poll(() => answer.text).toBe(OK);
  return { rig, answer, first };
}

test('a request that may not be repeated is not sent to a server that has closed its link', async () => {
  const { rig, answer, first } = await served();
  // The request is there before the end is, and both before either is read.
  rig.client.write(POST);
  first.destroy();
  await expect.poll(() => rig.servers.length).toBe(2);
  const [, second] = rig.servers;
  if (second === undefined) throw new Error('there is no second link');
  const said = heard(second);
  second.once('data', () => second.write(OK));
  await expect.poll(() => answer.text).toBe(OK + OK);
  expect([said.text, rig.refused]).toEqual([POST, []]);
  await rig.close();
});

test('nor is it sent again where the server may have acted on it', async () => {
  const { rig, answer, first } = await served();
  const said = heard(first);
  first.once('data', () => first.destroy());
  rig.client.write(POST);
  await expect.poll(() => answer.text).toContain('HTTP/1.1 502');
  expect([said.text, rig.servers.length, rig.refused]).toEqual([POST, 1, ['server_closed']]);
  await rig.close();
});

test('what is sent after a rest goes to a kept link as it is: a head is not taken for a body, nor a body for a request', async () => {
  const rig = await createHttp1Rig();
  try {
    const got = heard(rig.client);
    rig.servers[0]?.on('data', () => rig.servers[0]?.write(OK));
    rig.client.write(`GET / HTTP/1.1\r\nHost: ${SERVER_NAME}\r\n\r\n`);
    await expect.poll(() => got.text).toContain('ok');
    await rig.keep();
    await expect.poll(() => rig.servers.length).toBe(2);
    rig.rest(3);
    expect(rig.given).toHaveLength(1);
    const [, second] = rig.servers;
    if (second === undefined) throw new Error('there is no second link');
    const said = heard(second);
    second.on('data', () => second.write(OK));
    const body = `GET /hidden HTTP/1.1\r\nHost: ${SERVER_NAME}\r\n\r\n`;
    const head = `POST /form HTTP/1.1\r\nHost: ${SERVER_NAME}\r\nContent-Length: ${body.length}\r\n\r\n`;
    rig.client.write(head + body);
    await expect.poll(() => got.text.match(/ok/gi)?.length).toBe(4);
    expect(said.text).toBe(head + body);
  } finally {
    await rig.close();
  }
});
