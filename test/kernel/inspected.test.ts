import { createServer, type Server, Socket } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ADDRESSES, createTopology, type Topology } from '#cli/topology.js';
import type { Datapath } from '#contracts/datapath.js';
import { openDatapath } from '#dataplane/thread/datapath-thread.js';
import { compile } from '#policy/compile/compile.js';
import { openConnector, openListener } from '#sockets/socket-options.js';
import { address, group, policy, rule } from '#test/policy/sample.js';
import { datapathOptions } from './datapath-options.js';
import { enterNamespace } from './namespace.js';

const LISTEN = { address: address('127.0.0.1'), port: 15_001 };
const MARK = 0x40_0000;
const SERVER = `
import socket
s=socket.socket(); s.setsockopt(1,2,1); s.bind(('0.0.0.0',443)); s.listen(50); print('up',flush=True)
while True:
  c,a=s.accept(); d=c.recv(100); c.sendall(b'%s:%d ' % (a[0].encode(),a[1])+d); c.close()
`;
const client = (port: number): string => `
import socket
s=socket.socket(); s.setsockopt(1,2,1); s.bind(('${ADDRESSES.client}',${port})); s.settimeout(3); s.connect(('${ADDRESSES.server}',443)); s.sendall(b'hello')
d=b''
while True:
  n=s.recv(100)
  if not n: break
  d+=n
print(d.decode())
`;

let topology: Topology;
let leave: () => void;
let datapath: Datapath;
let server: Server;

beforeAll(async () => {
  topology = await createTopology('inspect');
  leave = enterNamespace(topology.node.name);
  datapath = openDatapath(datapathOptions(topology.pinPath, { servicePlane: LISTEN }));
  await datapath.open();
  await datapath.attach();
  const listening = topology.server.start('/usr/bin/python3', ['-u', '-c', SERVER]);
  await new Promise((resolve) => listening.stdout?.once('data', resolve));
  server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, carry);
  await new Promise<void>((resolve) => {
    server.listen({ fd: openListener(LISTEN, { mark: MARK, isTransparent: true, isShared: true }) }, resolve);
  });
  await put('enforce');
}, 60_000);
afterAll(async () => {
  server?.close();
  leave();
  await datapath?.close();
  await topology?.remove();
});

async function put(mode: 'enforce' | 'audit'): Promise<void> {
  const tls = rule({ protocol: 6, mode, tls: { mode: 'metadata' } });
  await datapath.stage(compile(policy([group(['0.0.0.0/0'], [tls])])), 1);
  await datapath.flip();
}

/**
 * Forwards a connection as the service plane does: connects to the server with the client's address, and
 * copies the data.
 */
function carry(socket: Socket): void {
  const { remoteAddress = '', remotePort = 0, localAddress = '', localPort = 0 } = socket;
  const fd = openConnector({ address: address(remoteAddress), port: remotePort }, MARK);
  // Assign the options to a constant first: the type of the constructor's parameter lacks `pauseOnCreate`, so
  // TypeScript rejects this option in an object literal.
  const options = { fd, allowHalfOpen: true, pauseOnCreate: true };
  const upstream = new Socket(options);
  socket.on('error', () => upstream.destroy());
  upstream.on('error', () => socket.destroy());
  upstream.connect({ host: localAddress, port: localPort }, () => {
    socket.pipe(upstream);
    upstream.pipe(socket);
  });
}

const dial = async (port: number): Promise<string> =>
  (await topology.client.run('/usr/bin/python3', '-c', client(port))).stdout.trim();

test("an inspected connection passes through sockets of the node, and both peers see each other's address and port", async () => {
  expect(await dial(41_000)).toBe(`${ADDRESSES.client}:41000 hello`);
  expect((await datapath.stats()).activeFlows).toBe(0);
});

test('a client can connect again from the same port within 900 ms after the node closed the inspected connection first', async () => {
  for (let round = 0; round < 5; round++) {
    const started = performance.now();
    expect(await dial(41_001)).toMatch(new RegExp(`^${ADDRESSES.client}:\\d+ hello$`));
    expect(performance.now() - started).toBeLessThan(900);
    const { stdout } = await topology.node.run('ss', '-tan', 'state', 'time-wait');
    expect(stdout).toContain(`${ADDRESSES.client}:41001`);
  }
});

test('with SYN cookies, the ACK of an inspected connection reaches the listener of the service plane', async () => {
  const cookies = (value: number): Promise<string> =>
    topology.node.must('sysctl', '-q', '-w', `net.ipv4.tcp_syncookies=${value}`);
  await cookies(2);
  try {
    expect(await dial(41_010)).toMatch(/ hello$/);
    const { stdout } = await topology.node.run('nstat', '-asz', 'TcpExtSyncookiesRecv');
    expect(stdout).toMatch(/TcpExtSyncookiesRecv +[1-9]/);
  } finally {
    await cookies(1);
  }
});

test('without a listener of the service plane, an inspected connection is dropped, or passes uninspected if the rule is audited', async () => {
  await new Promise<void>((resolve) => server.close(() => resolve()));
  expect(await dial(41_003)).toBe('');
  expect((await datapath.stats()).drops.service_plane_absent?.packets).toBeGreaterThan(0n);
  await put('audit');
  expect(await dial(41_004)).toBe(`${ADDRESSES.client}:41004 hello`);
});
