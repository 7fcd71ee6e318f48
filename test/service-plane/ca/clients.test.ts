import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { TLSSocket } from 'node:tls';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { generateCa } from '#service-plane/ca/generate-ca.js';
import { LeafContexts } from '#service-plane/ca/leaf-contexts.js';
import { temporaryFolder } from '../../store/temporary-folder.js';

const run = promisify(execFile);
const LONG = `${'a'.repeat(63)}.${'b'.repeat(63)}.${'c'.repeat(63)}.${'d'.repeat(56)}.test`;
const ca = generateCa({ commonName: 'Weir intercept CA', days: 30 });
const other = generateCa({ commonName: 'Weir intercept CA', days: 30 });
const contexts = new LeafContexts({ ticketKeys: randomBytes(48) });

/**
 * A TLS server that presents the leaf certificate for the name in `shown`, and sends an HTTP response on each
 * connection.
 */
let server: Server;
let port: number;
let shown = '';
beforeAll(async () => {
  contexts.use(ca);
  server = createServer((socket) => {
    const secureContext = contexts.of(shown);
    if (secureContext === null) throw new Error('there is no context');
    const tls = new TLSSocket(socket, { isServer: true, secureContext });
    tls.on('error', () => {});
    tls.once('data', () => tls.end('HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello'));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  ({ port } = server.address() as AddressInfo);
});
afterAll(() => server.close());

function fileOf(pem: string): string {
  const path = join(temporaryFolder(), 'ca.pem');
  writeFileSync(path, pem);
  return path;
}

async function curl(name: string, caFile: string): Promise<string> {
  const words = ['-sS', '--noproxy', '*', '--max-time', '10', '--cacert', caFile];
  try {
    const { stdout } = await run('curl', [...words, '--connect-to', `::127.0.0.1:${port}`, `https://${name}/`]);
    return stdout;
  } catch (failure) {
    return String((failure as { code?: unknown }).code);
  }
}

it.each(['www.example.com', 'xn--bcher-kva.example', '192.0.2.7', LONG])(
  'curl accepts the leaf certificate for the host name or address %s',
  async (name) => {
    shown = name;
    expect(await curl(name, fileOf(ca.certPem))).toBe('hello');
  },
);

it('curl rejects a leaf certificate for another host name, and a leaf certificate of another CA with the same CA name', async () => {
  const PEER_FAILED_VERIFICATION = '60';
  shown = 'example.com';
  expect(await curl('www.example.com', fileOf(ca.certPem))).toBe(PEER_FAILED_VERIFICATION);
  expect(await curl('example.com', fileOf(other.certPem))).toBe(PEER_FAILED_VERIFICATION);
});

it.each(['-tls1_2', '-tls1_3'])(
  'openssl s_client with the option %s verifies the leaf certificate',
  async (version) => {
    shown = 'a.test';
    const words = ['s_client', '-connect', `127.0.0.1:${port}`, '-servername', 'a.test', '-CAfile', fileOf(ca.certPem)];
    const asked = run('openssl', [...words, '-verify_hostname', 'a.test', '-verify_return_error', '-brief', version]);
    asked.child.stdin?.end('x\n');
    const { stderr } = await asked;
    expect(stderr).toContain('Verification: OK\nVerified peername: a.test\n');
  },
);

it.each(['-tls1', '-tls1_1'])('the TLS server refuses openssl s_client with %s (TLS 1.0 or 1.1)', async (version) => {
  const asked = run('openssl', ['s_client', '-connect', `127.0.0.1:${port}`, version, '-cipher', 'ALL:@SECLEVEL=0']);
  asked.child.stdin?.end();
  await expect(asked).rejects.toThrow('protocol version');
});
