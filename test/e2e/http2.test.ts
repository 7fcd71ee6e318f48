import type { ChildProcess } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { createInspectedRig, type InspectedRig } from './inspected.js';
import { policyOf } from './rig.js';

const CA = '/api/v1/settings/tls-intercept-ca';
const PORTS = { nginx: 443, node: 444, old: 445, cutting: 446 } as const;
const BIG = 1_000_000_000;

/**
 * A Node.js server that answers like gRPC: it echoes the request body, with a status in the trailers. The
 * response to `/big` has 1 GB.
 */
const SERVER = `
const { createSecureServer } = require('node:http2');
const { readFileSync } = require('node:fs');
const [port, ...files] = process.argv.slice(1);
const [cert, key] = files.map((path) => readFileSync(path));
const server = createSecureServer({ cert, key });
const piece = Buffer.alloc(65536);
server.on('stream', (stream, headers) => {
  stream.on('error', () => {});
  stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
  stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
  if (headers[':path'] !== '/big') return stream.pipe(stream);
  let left = ${BIG};
  const more = () => {
    while (left > 0 && !stream.destroyed) {
      left -= piece.length;
      console.log(left);
      if (!stream.write(piece)) return stream.once('drain', more);
    }
    stream.end();
  };
  more();
});
server.listen(Number(port), () => console.log('up'));`;

/**
 * A Node.js server of HTTP/1.1 that ends a body without a length by close_notify, or with `/cut` by a FIN
 * only.
 */
const CUTTING_SERVER = `
const { createServer } = require('node:tls');
const { readFileSync } = require('node:fs');
const [port, ...files] = process.argv.slice(1);
const [cert, key] = files.map((path) => readFileSync(path));
createServer({ cert, key, ALPNProtocols: ['http/1.1'] }, (socket) => {
  socket.on('error', () => {});
  socket.once('data', (request) => {
    const isCut = request.includes('GET /cut');
    socket.write('HTTP/1.1 200 OK\\r\\n\\r\\nhalf', () => (isCut ? socket.destroy() : socket.end(' whole')));
  });
}).listen(Number(port), () => console.log('up'));`;

let rig: InspectedRig;
let caFile: string;
let origin: ChildProcess;
let nginx: () => ChildProcess;
let running: ChildProcess;
/** Number of bytes of the response to `/big` that the server has not sent yet. */
let left = BIG;
beforeAll(async () => {
  rig = await createInspectedRig('http2');
  const { good } = rig.certificates;
  const cert = await rig.file('http2.pem', good.certPem);
  const key = await rig.file('http2.key', good.keyPem);
  const { server } = rig.topology;
  origin = server.start(process.execPath, ['-e', SERVER, String(PORTS.node), cert, key]);
  await new Promise((resolve) => origin.stdout?.once('data', resolve));
  const cutting = server.start(process.execPath, ['-e', CUTTING_SERVER, String(PORTS.cutting), cert, key]);
  await new Promise((resolve) => cutting.stdout?.once('data', resolve));
  origin.stdout?.on('data', (chunk: Buffer) => {
    left = Number(chunk.toString().trim().split('\n').at(-1));
  });
  const conf = await rig.file(
    'nginx.conf',
    `daemon off; master_process off; error_log stderr; pid ${cert}.pid;
events { worker_connections 1024; }
http {
  access_log off;
  server {
    listen ${PORTS.nginx} ssl http2; listen ${PORTS.old} ssl;
    ssl_certificate ${cert}; ssl_certificate_key ${key};
    location = /slow { limit_rate 1000; return 200 "${'x'.repeat(4_000)}"; }
    location / { return 200 "$server_protocol $host $http_x_own"; }
  }
}`,
  );
  nginx = () => {
    const child = server.start('nginx', ['-c', conf]);
    child.stderr?.resume();
    return child;
  };
  running = nginx();
  const made = await rig.node.request('POST', `${CA}/generate`);
  if (made.status !== 201) throw new Error(made.text);
  caFile = await rig.file('ca.pem', (await rig.node.request('GET', `${CA}/cert`)).text);
  await allow({ request: { path: { prefix: ['/'] } } });
});
afterAll(() => rig?.remove());

const allow = async (http: Readonly<Record<string, unknown>>) => {
  const match = { proto: 'tcp', dst_ports: Object.values(PORTS), tls: { mode: 'intercept', http } };
  await rig.put(policyOf([{ match }], { default_action: 'deny' }));
  await rig.node.ready();
};
const trust = (port: number) => ['--cacert', caFile, '--resolve', `${SERVER_NAME}:${port}:${ADDRESSES.server}`];
const fetch = (port: number, path: string, ...options: string[]) =>
  rig.curl(...trust(port), '-w', '\n%{http_version} %{http_code}', ...options, `https://${SERVER_NAME}:${port}${path}`);

test("the node uses the HTTP version that the server selects from the client's ALPN offer, towards the client and towards the server", async () => {
  // nginx prints nothing when it listens, so the test repeats a request until it succeeds.
  await expect.poll(async () => (await fetch(PORTS.old, '/')).code).toBe(0);
  const said = async (port: number, ...options: string[]) => (await fetch(port, '/', ...options)).stdout;
  expect(await said(PORTS.nginx, '--http2', '-H', 'X-Own: 1')).toBe(`HTTP/2.0 ${SERVER_NAME} 1\n2 200`);
  expect(await said(PORTS.nginx, '--http1.1')).toBe(`HTTP/1.1 ${SERVER_NAME} \n1.1 200`);
  expect(await said(PORTS.nginx, '--no-alpn')).toBe(`HTTP/1.1 ${SERVER_NAME} \n1.1 200`);
  expect(await said(PORTS.old, '--http2')).toBe(`HTTP/1.1 ${SERVER_NAME} \n1.1 200`);
});

test('an HTTP/2 request that no rule allows gets status 403, and other requests of the same connection get status 200', async () => {
  await allow({ request: { path: { prefix: ['/v1/'] } } });
  const { stdout } = await rig.curl(
    ...[...trust(PORTS.nginx), '--http2', '-w', '%{http_version} %{http_code} %{num_connects}\n', '-o', '/dev/null'],
    ...[`https://${SERVER_NAME}/v1/a`, '-o', '/dev/null', `https://${SERVER_NAME}/other`],
    ...['-o', '/dev/null', `https://${SERVER_NAME}/v1/b`],
  );
  expect(stdout).toBe('2 200 1\n2 403 0\n2 200 0\n');
  const seen = await rig.node.request('GET', '/api/v1/stats');
  expect(seen.text).toContain('service_plane');
  await allow({ request: { path: { prefix: ['/'] } } });
});

test('an HTTP/2 request with a body of 3 MB gets status 200 and the trailers of the response', async () => {
  const file = await rig.file('body', 'x'.repeat(3_000_000));
  const { stdout, stderr } = await fetch(PORTS.node, '/echo', '--http2', '-T', file, '-D', '-', '-o', '/dev/null');
  expect(stderr).toBe('');
  expect(stdout).toContain('grpc-status: 0');
  expect(stdout.endsWith('2 200')).toBe(true);
});

const open = async (): Promise<number> =>
  ((await rig.node.request('GET', '/api/v1/stats')).body as { tls: { connections: number } }).tls.connections;
/** The time in which the node must tell the end of one side to the other side, on a loaded machine. */
const AT_ONCE = { timeout: 3_000, interval: 50 };

test('the node no longer counts the connection of a client that has ended or was killed', async () => {
  for (const options of [['--http2'], ['--http1.1']]) {
    expect((await fetch(PORTS.nginx, '/', ...options)).code).toBe(0);
    await expect.poll(open, AT_ONCE).toBe(0);
    const words = [...trust(PORTS.nginx), '-sS', ...options, '-o', '/dev/null'];
    const slow = rig.topology.client.start('curl', [...words, `https://${SERVER_NAME}:${PORTS.nginx}/slow`]);
    await expect.poll(open, AT_ONCE).toBe(1);
    slow.kill('SIGKILL');
    await expect.poll(open, AT_ONCE).toBe(0);
  }
});

test('a response body that the server cuts is an error for curl, and a body that the server ends by close_notify is not', async () => {
  const whole = await fetch(PORTS.cutting, '/whole');
  expect([whole.code, whole.stdout]).toEqual([0, 'half whole\n1.1 200']);
  const cut = await fetch(PORTS.cutting, '/cut');
  expect([cut.code, cut.stdout]).toEqual([56, 'half\n1.1 200']);
  expect(cut.stderr).toContain('reset by peer');
});

test('HTTP requests to a killed server end with an error, and later requests reach the restarted server', async () => {
  for (const options of [['--http2'], ['--http1.1']]) {
    const slow = fetch(PORTS.nginx, '/slow', ...options);
    await expect.poll(open, AT_ONCE).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 500));
    const killed = performance.now();
    running.kill('SIGKILL');
    expect((await slow).code).not.toBe(0);
    expect(performance.now() - killed).toBeLessThan(AT_ONCE.timeout);
    running = nginx();
    await expect.poll(async () => (await fetch(PORTS.nginx, '/', ...options)).code).toBe(0);
    await expect.poll(open, AT_ONCE).toBe(0);
  }
});

test('8,000 requests on eight inspected HTTP/2 connections all succeed', async () => {
  const hosts = await rig.file('hosts', `${ADDRESSES.server} ${SERVER_NAME}\n`);
  const load = `h2load -n 8000 -c 8 -m 20 https://${SERVER_NAME}:${PORTS.nginx}/`;
  const { stdout } = await rig.topology.client.run(
    'unshare',
    '-m',
    'sh',
    '-c',
    `mount --bind ${hosts} /etc/hosts; ${load}`,
  );
  expect(stdout).toContain('8000 succeeded, 0 failed, 0 errored, 0 timeout');
});

test('a slow HTTP/2 client stops the transfer from the server, and the node buffers less than 48 MiB', async () => {
  const { client } = rig.topology;
  const before = await residentMiB(rig.node.pid);
  const slow = client.start('curl', [
    ...[...trust(PORTS.node), '-s', '--http2', '--limit-rate', '1k', '-o', '/dev/null'],
    `https://${SERVER_NAME}:${PORTS.node}/big`,
  ]);
  try {
    await expect.poll(() => left).toBeLessThan(BIG);
    let last = BIG;
    // The transfer has stopped if `left` is equal in two polls, two seconds apart.
    await expect
      .poll(
        () => {
          const stood = left === last;
          last = left;
          return stood;
        },
        { timeout: 30_000, interval: 2_000 },
      )
      .toBe(true);
    expect(BIG - left).toBeLessThan(32 * 1024 * 1024);
    expect((await residentMiB(rig.node.pid)) - before).toBeLessThan(48);
  } finally {
    slow.kill('SIGKILL');
  }
});

async function residentMiB(pid: number | undefined): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1_024;
}
