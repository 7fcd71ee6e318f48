import type { ChildProcess } from 'node:child_process';
import { rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { NodeOptions } from '#cli/tour/node-process.js';
import { ADDRESSES, type NamespaceCommands } from '#cli/tour/topology.js';
import { makeCertificates, SERVER_NAME, type ServerCertificate } from '#test/service-plane/certificates.js';
import { createRig, type NodeRig } from './rig.js';

/**
 * A Node.js HTTPS server that answers each request with JSON: method, URL, headers, body length, client
 * address.
 */
const SERVER = `
const { createServer } = require('node:https');
const { readFileSync } = require('node:fs');
const [port, ...files] = process.argv.slice(1);
const [cert, key] = files.map((path) => readFileSync(path));
createServer({ cert, key }, (request, response) => {
  let bytes = 0;
  request.on('data', (chunk) => { bytes += chunk.length; });
  request.on('end', () => {
    const body = JSON.stringify({ method: request.method, url: request.url, headers: request.rawHeaders, bytes, from: request.socket.remoteAddress });
    response.writeHead(200, { 'content-type': 'application/json', 'x-internal': 'yes' });
    response.end(body);
  });
}).listen(Number(port), () => console.log('up'));`;

/** A rig whose node inspects TLS connections, with functions that start TLS servers and TLS clients. */
export type InspectedRig = NodeRig & {
  readonly certificates: ReturnType<typeof makeCertificates>;
  /**
   * Path of the file with the root certificate that the node trusts (the setting `upstream_ca` of the node).
   */
  readonly rootFile: string;
  /**
   * Runs `openssl s_server` on the server host with additional `options`. Resolves when the process listens.
   */
  serve(port: number, shown: ServerCertificate, ...options: string[]): Promise<ChildProcess>;
  /**
   * Starts an HTTPS server on `host`, by default the server host, that answers with the parsed request.
   * Resolves when it listens.
   */
  web(port: number, shown: ServerCertificate, host?: NamespaceCommands): Promise<ChildProcess>;
  /** Runs `openssl s_client` on the client host, and sends `input` over the TLS connection. */
  dial(port: number, options: readonly string[], input?: string): Promise<Dialled>;
  curl(
    ...options: string[]
  ): Promise<{ readonly code: number | null; readonly stdout: string; readonly stderr: string }>;
  /** Writes a file that processes on client and server can read. Returns the path of the file. */
  file(name: string, content: string): Promise<string>;
};
type Dialled = { readonly code: number | null; readonly text: string };

export async function createInspectedRig(
  tag: string,
  plane: Readonly<Record<string, unknown>> = {},
  options: NodeOptions = {},
): Promise<InspectedRig> {
  const certificates = makeCertificates();
  const rootFile = join(tmpdir(), `weir-${process.pid}-${tag}-root.pem`);
  await writeFile(rootFile, certificates.rootPem);
  const rig = await createRig(tag, [80], {
    ...options,
    sections: { ...options.sections, service_plane: { upstream_ca: rootFile, ...plane } },
  });
  const { client, server } = rig.topology;
  const file = async (name: string, content: string): Promise<string> => {
    const path = join(rig.node.folder, name);
    await writeFile(path, content);
    return path;
  };
  return {
    ...rig,
    certificates,
    rootFile,
    file,
    serve: async (port, { certPem, keyPem }, ...options) => {
      const cert = await file(`server-${port}.pem`, certPem);
      const key = await file(`server-${port}.key`, keyPem);
      const shown = ['-cert', cert, '-cert_chain', cert, '-key', key];
      const child = server.start('stdbuf', [
        '-oL',
        'openssl',
        's_server',
        '-accept',
        String(port),
        ...shown,
        ...options,
      ]);
      await new Promise<void>((resolve, reject) => {
        child.stdout?.on('data', (chunk: Buffer) => {
          if (chunk.includes('ACCEPT')) resolve();
        });
        child.once('exit', (code) => reject(new Error(`openssl s_server ended with ${code}`)));
      });
      return child;
    },
    web: async (port, { certPem, keyPem }, host = server) => {
      const files = [await file(`web-${port}.pem`, certPem), await file(`web-${port}.key`, keyPem)];
      const child = host.start(process.execPath, ['-e', SERVER, String(port), ...files]);
      await new Promise((resolve) => child.stdout?.once('data', resolve));
      return child;
    },
    dial: async (port, options, input = 'GET / HTTP/1.0\r\n\r\n') => {
      // openssl refuses the option `-servername` together with `-noservername`.
      const named = options.includes('-noservername') ? [] : ['-servername', SERVER_NAME];
      const words = ['s_client', '-connect', `${ADDRESSES.server}:${port}`, ...named, ...options];
      const command = `printf '${input.replaceAll('\r', '\\r').replaceAll('\n', '\\n')}' | timeout 4 openssl ${words.join(' ')} -ign_eof 2>&1`;
      const { code, stdout } = await client.run('sh', '-c', command);
      return { code, text: stdout };
    },
    curl: (...options) => client.run('curl', '-sS', '--max-time', '10', ...options),
    remove: async () => {
      await rig.remove();
      await rm(rootFile);
    },
  };
}

/**
 * Whether connections pass: with `SERVER_NAME`, with it by TLS 1.2, with another server name, and without
 * one.
 */
export async function byServerName(passes: (...options: string[]) => Promise<boolean>) {
  return {
    own: await passes(),
    ownByTls12: await passes('-tls1_2'),
    other: await passes('-servername', 'other.test'),
    none: await passes('-noservername'),
  };
}
