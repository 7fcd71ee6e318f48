import { once } from 'node:events';
import { createSecureContext, type TLSSocket } from 'node:tls';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { TrustAnchors } from '#service-plane/certificate/trust-anchors.js';
import { ServerLink } from '#service-plane/intercept/server-link.js';
import { ServerPool } from '#service-plane/intercept/server-pool.js';
import { makeCertificates, SERVER_NAME } from '#test/service-plane/certificates.js';
import { handshake } from '../handshake.js';

const { good, rootPem } = makeCertificates();
const shown = createSecureContext({ cert: good.certPem, key: good.keyPem });
const clock = { tick: 0 };
let pool: ServerPool;
const closes: (() => void)[] = [];
beforeEach(() => {
  clock.tick = 0;
  pool = new ServerPool(clock);
});
afterEach(() => {
  for (const close of closes.splice(0)) close();
});

async function linkOf(key: string): Promise<{ readonly link: ServerLink; readonly server: TLSSocket }> {
  const { client, server, close } = await handshake(shown, { servername: SERVER_NAME, ca: rootPem });
  closes.push(close);
  return { link: new ServerLink(client, key, null, () => new TrustAnchors([])), server };
}

test('`ServerPool` returns each idle server connection once, only for the key with which it was added, and the most recently received connection first', async () => {
  const [first, second, other] = [await linkOf('a'), await linkOf('a'), await linkOf('b')].map(({ link }) => link);
  for (const link of [first, second, other]) pool.give(link as ServerLink);
  expect(['a', 'a', 'a', 'c', 'b'].map((key) => pool.take(key))).toEqual([second, first, null, null, other]);
});

test('`ServerPool` closes an unused server connection after ten to fifteen seconds', async () => {
  const { link } = await linkOf('a');
  pool.give(link);
  clock.tick = 2;
  pool.checkTimeouts();
  expect(link.socket.destroyed).toBe(false);
  clock.tick = 3;
  pool.checkTimeouts();
  expect([link.socket.destroyed, pool.take('a')]).toEqual([true, null]);
});

test.each(['sends data', 'ends the connection'])(
  '`ServerPool` does not return a server connection if the server %s while the connection is idle',
  async (what) => {
    const { link, server } = await linkOf('a');
    pool.give(link);
    if (what === 'ends the connection') server.end();
    else server.write('HTTP/1.1 408 Request Timeout\r\n\r\n');
    await once(link.socket, 'close');
    expect(pool.take('a')).toBeNull();
  },
);

test('`ServerPool` does not return a server connection whose socket is destroyed, even before the socket emits its close event', async () => {
  const [{ link: sound }, { link: broken }] = [await linkOf('a'), await linkOf('a')];
  for (const link of [sound, broken]) pool.give(link);
  broken.socket.destroy(new Error('it broke'));
  expect([pool.take('a'), pool.take('a')]).toEqual([sound, null]);
});

test('a server connection is closed if the server sends data after the pool has returned the connection and before a session uses it', async () => {
  const { link, server } = await linkOf('a');
  pool.give(link);
  expect(pool.take('a')).toBe(link);
  server.write('HTTP/1.1 408 Request Timeout\r\n\r\n');
  await once(link.socket, 'close');
});

test('a closed server connection still returns the names in the server certificate', async () => {
  const { link } = await linkOf('a');
  link.socket.destroy();
  await once(link.socket, 'close');
  expect(link.certificate).toMatchObject({ kind: 'seen', dnsNames: expect.arrayContaining([SERVER_NAME]) });
});
