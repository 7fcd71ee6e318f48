import type { TLSSocket } from 'node:tls';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { watchTlsEnd } from '#service-plane/intercept/stream-end.js';
import { destroyWithReset } from '#sockets/socket-options.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { AT_ONCE, END, ENDS, type End } from './connection-end.js';
import { createHttp1Rig, type Http1Rig, heard } from './http1-rig.js';

const UNCLEAN: readonly End[] = ['FIN', 'RST'];

/**
 * The end of a connection as one side sees it: `open`, ended by close_notify, ended by a FIN only, or reset.
 */
type Seen = 'open' | 'closed' | 'cut' | 'reset';
function watched(socket: TLSSocket): () => Seen {
  const end = watchTlsEnd(socket);
  let isReset = false;
  socket.on('error', () => {
    isReset = true;
  });
  return () => (isReset ? 'reset' : (end() ?? 'open'));
}

let rig: Http1Rig;
let answer: { readonly text: string };
let clientSaw: () => Seen;
beforeEach(async () => {
  rig = await createHttp1Rig();
  clientSaw = watched(rig.client);
  answer = heard(rig.client);
});
afterEach(() => rig.close());

const head = (...lines: string[]): string => [...lines, `Host: ${SERVER_NAME}`, '', ''].join('\r\n');
const GET = head('GET / HTTP/1.1');
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';

/** Sends a request. Returns the server's socket, after the server has received `last`. */
async function asked(request = GET, last = request): Promise<{ server: TLSSocket; serverSaw: () => Seen }> {
  const [server] = rig.servers;
  if (server === undefined) throw new Error('there is no server');
  const serverSaw = watched(server);
  const got = heard(server);
  rig.client.write(request);
  await expect.poll(() => got.text.endsWith(last), AT_ONCE).toBe(true);
  return { server, serverSaw };
}

/** Ends the client connection, and expects that the session resets the server connection and ends. */
async function resetsServer(end: End, serverSaw: () => Seen): Promise<void> {
  END[end](rig.client);
  await expect.poll(serverSaw, AT_ONCE).toBe('reset');
  await expect.poll(rig.isOver, AT_ONCE).toBe(true);
}

const BODIES = {
  'with Content-Length': 'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\npart',
  'in chunks': 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n',
  'that ends with the connection': 'HTTP/1.1 200 OK\r\n\r\npart',
  'that ends with the connection, of HTTP/1.0': 'HTTP/1.0 200 OK\r\n\r\npart',
} as const;
const UPGRADE = head(
  'GET / HTTP/1.1',
  'Connection: Upgrade',
  'Upgrade: websocket',
  'Sec-WebSocket-Version: 13',
  'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
);
const SWITCHED =
  'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n';
async function tunnelled() {
  const { server, serverSaw } = await asked(UPGRADE, '\r\n\r\n');
  server.write(`${SWITCHED}hello`);
  await expect.poll(() => answer.text.endsWith('hello'), AT_ONCE).toBe(true);
  return { server, serverSaw };
}

describe('the end of a server connection', () => {
  test.each(ENDS)(
    'the end of a server connection before the response head is answered with 502 (end by %s)',
    async (end) => {
      const { server } = await asked();
      END[end](server);
      await expect.poll(clientSaw, AT_ONCE).toBe('closed');
      expect(answer.text).toMatch(/^HTTP\/1\.1 502 .*"status":502/s);
      expect(rig.refused).toEqual(['server_closed']);
      rig.client.end();
      await expect.poll(rig.isOver, AT_ONCE).toBe(true);
    },
  );

  const cut = Object.keys(BODIES).flatMap((body) =>
    (body.startsWith('that ends') ? UNCLEAN : ENDS).map((end) => [body, end] as const),
  );
  test.each(cut)(
    'the end of a server connection within a response body (%s) resets the client (end by %s)',
    async (body, end) => {
      const { server } = await asked();
      server.write(BODIES[body as keyof typeof BODIES]);
      await expect.poll(() => answer.text.includes('part'), AT_ONCE).toBe(true);
      END[end](server);
      await expect.poll(clientSaw, AT_ONCE).toBe('reset');
      expect([rig.refused, rig.isOver()]).toEqual([['response_cut_short'], true]);
    },
  );

  test.each(ENDS)(
    'the end of a server connection within a chunked response body resets a client of HTTP/1.0 (end by %s)',
    async (end) => {
      const { server } = await asked(head('GET / HTTP/1.0'), '\r\n\r\n');
      server.write(BODIES['in chunks']);
      await expect.poll(() => answer.text.endsWith('part'), AT_ONCE).toBe(true);
      END[end](server);
      await expect.poll(clientSaw, AT_ONCE).toBe('reset');
    },
  );

  test.each(Object.keys(BODIES).filter((body) => body.startsWith('that ends')) as (keyof typeof BODIES)[])(
    'a close_notify of the server completes a response body without a length (a body %s)',
    async (body) => {
      const { server } = await asked();
      server.end(BODIES[body]);
      await expect.poll(clientSaw, AT_ONCE).toBe('closed');
      expect([answer.text.endsWith('part'), rig.refused]).toEqual([true, []]);
    },
  );

  test('a close_notify of the server completes a response body of 8 MB that a slow client reads', async () => {
    const { server } = await asked();
    rig.client.pause();
    const body = 'x'.repeat(8 << 20);
    server.end(`HTTP/1.1 200 OK\r\n\r\n${body}`);
    await new Promise((resolve) => setImmediate(resolve));
    rig.client.resume();
    await expect.poll(clientSaw).toBe('closed');
    expect(answer.text.length).toBe(body.length + 'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n'.length);
  });

  test.each(ENDS)(
    'the end of a server connection between two requests is followed by a new server connection (end by %s)',
    async (end) => {
      const { server } = await asked();
      server.write(OK);
      await expect.poll(() => answer.text, AT_ONCE).toBe(OK);
      END[end](server);
      rig.client.write(GET);
      await expect.poll(() => rig.servers.length, AT_ONCE).toBe(2);
      rig.servers[1]?.write(OK);
      await expect.poll(() => answer.text, AT_ONCE).toBe(OK + OK);
      expect([clientSaw(), rig.refused]).toEqual(['open', []]);
    },
  );

  test.each(UNCLEAN)('the end of the server connection of a WebSocket resets the client (end by %s)', async (end) => {
    const { server } = await tunnelled();
    END[end](server);
    await expect.poll(clientSaw, AT_ONCE).toBe('reset');
    expect(rig.isOver()).toBe(true);
  });

  test('a close_notify of the server of a WebSocket reaches the client as close_notify', async () => {
    const { server } = await tunnelled();
    server.end('bye');
    await expect.poll(clientSaw, AT_ONCE).toBe('closed');
    expect(answer.text.endsWith('hellobye')).toBe(true);
    rig.client.end();
    await expect.poll(rig.isOver, AT_ONCE).toBe(true);
  });
});

describe('the end of a client connection', () => {
  test('a client that sends close_notify after a whole request still gets the response, and then the connection ends', async () => {
    const { server, serverSaw } = await asked();
    rig.client.end();
    // Wait until the session has the end of the client, so that the response comes after it.
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(serverSaw()).toBe('open');
    server.write(OK);
    await expect.poll(clientSaw, AT_ONCE).toBe('closed');
    await expect.poll(rig.isOver, AT_ONCE).toBe(true);
    expect(answer.text).toBe('HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok');
  });

  test('a client that sends close_notify after two whole requests still gets both responses', async () => {
    const [server] = rig.servers;
    server?.on('data', () => server.write(OK));
    rig.client.end(GET + GET);
    await expect.poll(clientSaw, AT_ONCE).toBe('closed');
    expect(answer.text.split('HTTP/1.1 200 OK').length - 1).toBe(2);
    await expect.poll(rig.isOver, AT_ONCE).toBe(true);
  });

  test.each(UNCLEAN)(
    'the end of a client connection while the server has not answered resets the server (end by %s)',
    async (end) => {
      const { serverSaw } = await asked();
      await resetsServer(end, serverSaw);
    },
  );

  test.each(UNCLEAN)(
    'the end of a client connection while a second request waits resets the server (end by %s)',
    async (end) => {
      const { serverSaw } = await asked(GET + GET, '\r\n\r\n');
      await resetsServer(end, serverSaw);
    },
  );

  test.each(UNCLEAN)(
    'the end of a client connection within a response body resets the server (end by %s)',
    async (end) => {
      const { server, serverSaw } = await asked();
      server.write(BODIES['that ends with the connection']);
      await expect.poll(() => answer.text.endsWith('part'), AT_ONCE).toBe(true);
      await resetsServer(end, serverSaw);
    },
  );

  test.each(ENDS)('the end of a client connection within a request body resets the server (end by %s)', async (end) => {
    const { serverSaw } = await asked(`${head('POST / HTTP/1.1', 'Content-Length: 10')}part`, 'part');
    await resetsServer(end, serverSaw);
  });

  test.each(ENDS)(
    'the end of a client connection between two requests keeps the server connection for another client (end by %s)',
    async (end) => {
      const { server, serverSaw } = await asked();
      server.write(OK);
      await expect.poll(() => answer.text, AT_ONCE).toBe(OK);
      END[end](rig.client);
      await expect.poll(rig.isOver, AT_ONCE).toBe(true);
      expect([rig.given, serverSaw()]).toEqual([[rig.link], 'open']);
    },
  );

  test.each(ENDS)(
    'the end of a client connection in the middle of a refused request body frees the connection (end by %s)',
    async (end) => {
      rig.client.write(`${head('POST / HTTP/1.1', 'Content-Length: 9', 'Content-Length: 10')}part`);
      await expect.poll(() => answer.text, AT_ONCE).toContain('HTTP/1.1 400');
      rig.client.write('more');
      await new Promise((resolve) => setImmediate(resolve));
      END[end](rig.client);
      await expect.poll(rig.isOver, AT_ONCE).toBe(true);
    },
  );

  test.each(UNCLEAN)('the end of the client connection of a WebSocket resets the server (end by %s)', async (end) => {
    const { serverSaw } = await tunnelled();
    await resetsServer(end, serverSaw);
  });

  test('a close_notify of the client of a WebSocket reaches the server as close_notify', async () => {
    const { serverSaw } = await tunnelled();
    rig.client.end();
    await expect.poll(serverSaw, AT_ONCE).toBe('closed');
    await expect.poll(rig.isOver, AT_ONCE).toBe(true);
  });
});

describe('a time-out', () => {
  test('a request gets 504 at the time-out if the server does not answer', async () => {
    const { serverSaw } = await asked();
    rig.rest(61);
    await expect.poll(clientSaw, AT_ONCE).toBe('closed');
    expect([answer.text.slice(0, 12), rig.refused]).toEqual(['HTTP/1.1 504', ['idle']]);
    await expect.poll(serverSaw, AT_ONCE).toBe('reset');
  });

  test('the time-out of a server that does not answer is one minute if the client has sent close_notify', async () => {
    await asked();
    rig.client.end();
    await new Promise((resolve) => setTimeout(resolve, 50));
    rig.rest(12);
    expect(clientSaw()).toBe('open');
    rig.rest(1);
    await expect.poll(rig.isOver, AT_ONCE).toBe(true);
  });

  test('a time-out within a response body resets the client', async () => {
    const { server } = await asked();
    server.write(BODIES['with Content-Length']);
    await expect.poll(() => answer.text.endsWith('part'), AT_ONCE).toBe(true);
    rig.rest(61);
    await expect.poll(clientSaw, AT_ONCE).toBe('reset');
  });

  test('a time-out between two requests ends the connection by close_notify', async () => {
    const { server } = await asked();
    server.write(OK);
    await expect.poll(() => answer.text, AT_ONCE).toBe(OK);
    rig.rest(61);
    await expect.poll(clientSaw, AT_ONCE).toBe('closed');
  });

  test('the service plane ends the connection of a client that does not close the connection after its last response', async () => {
    const { server } = await asked();
    server.end('HTTP/1.1 200 OK\r\n\r\nlast');
    await expect.poll(clientSaw, AT_ONCE).toBe('closed');
    rig.rest(1);
    expect(rig.isOver()).toBe(false);
    rig.rest(2);
    await expect.poll(rig.isOver, AT_ONCE).toBe(true);
  });
});

test('a timer tick ends the session of a client that was reset while the session did not read from the client', async () => {
  const size = 64 << 20;
  const [server] = rig.servers;
  server?.pause();
  rig.client.write(head('POST / HTTP/1.1', `Content-Length: ${size}`));
  rig.client.write(Buffer.alloc(size));
  await expect.poll(() => rig.link.socket.writableNeedDrain).toBe(true);
  destroyWithReset(rig.client);
  await expect
    .poll(() => {
      rig.rest(1);
      return rig.isOver();
    }, AT_ONCE)
    .toBe(true);
});
