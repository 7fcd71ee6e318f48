import { expect, test } from 'vitest';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { createHttp1Rig, heard } from './http1-rig.js';

const GET = `GET / HTTP/1.1\r\nHost: ${SERVER_NAME}\r\n\r\n`;
const UPGRADE = `GET / HTTP/1.1\r\nHost: ${SERVER_NAME}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`;
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';

test('`Http1Session` opens a new server connection if the first one broke during the TLS handshake with the client', async () => {
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

test('`Http1Session` gives its server connection to the pool of idle connections when the client ends its connection', async () => {
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

test('`Http1Session` forwards client data in a WebSocket tunnel after the server has ended its direction by close_notify', async () => {
  const rig = await createHttp1Rig();
  const answer = heard(rig.client);
  rig.client.write(UPGRADE);
  await new Promise((resolve) => rig.servers[0]?.once('data', resolve));
  rig.servers[0]?.write(
    'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nhello',
  );
  await expect.poll(() => answer.text.endsWith('hello')).toBe(true);
  const [server] = rig.servers;
  if (server === undefined) throw new Error('there is no server');
  const said = heard(server);
  const ended = new Promise((resolve) => rig.client.once('end', resolve));
  server.end();
  await ended;
  rig.client.write('late');
  rig.client.end('later');
  await new Promise((resolve) => rig.client.once('close', resolve));
  await expect.poll(() => said.text).toBe('latelater');
  expect(rig.refused).toEqual([]);
  await rig.close();
});

test('`Http1Session` answers 4,000 requests on one connection that sends 100 requests at a time', async () => {
  const rig = await createHttp1Rig();
  let answers = 0;
  rig.client.on('data', (chunk: Buffer) => {
    answers += chunk.toString('latin1').split('HTTP/1.1 200').length - 1;
  });
  rig.servers[0]?.on('data', () => rig.servers[0]?.write(OK));
  for (let count = 1; count <= 40; count++) {
    rig.client.write(GET.repeat(100));
    await expect.poll(() => answers, { interval: 1 }).toBeGreaterThanOrEqual(count * 100 - 1);
  }
  await expect.poll(() => answers).toBe(4_000);
  await rig.close();
});

const POST = `POST /form HTTP/1.1\r\nHost: ${SERVER_NAME}\r\nContent-Length: 4\r\n\r\nform`;

/** Creates a session whose server link has already transferred one request and response. */
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

test('`Http1Session` sends a POST request on a new server connection if the server has closed the connection used before', async () => {
  const { rig, answer, first } = await served();
  // The POST request and the server's close both arrive before the session handles one of them.
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

test('`Http1Session` does not repeat a POST request if the server closes the connection after it has received the request', async () => {
  const { rig, answer, first } = await served();
  const said = heard(first);
  first.once('data', () => first.destroy());
  rig.client.write(POST);
  await expect.poll(() => answer.text).toContain('HTTP/1.1 502');
  expect([said.text, rig.servers.length, rig.refused]).toEqual([POST, 1, ['server_closed']]);
  await rig.close();
});

test('`Http1Session` sends the next request after an idle time on another server connection, with head and body unchanged', async () => {
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
