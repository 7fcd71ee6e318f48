import type { ChildProcess } from 'node:child_process';
import { ADDRESSES } from '#cli/tour/topology.js';
import type { InspectedRig } from '#test/e2e/inspected.js';

/**
 * TLS servers that accept only the group P-384, and therefore send HelloRetryRequest to nearly every client.
 */
export const SERVERS = ['openssl', 'nginx', 'node', 'python', 'gnutls', 'nss'] as const;
export type ServerName = (typeof SERVERS)[number];
/** The TCP port of each TLS server on the server host. */
export const PORT: Readonly<Record<ServerName, number>> = {
  openssl: 4501,
  nginx: 4502,
  node: 4503,
  python: 4504,
  gnutls: 4505,
  nss: 4506,
};

const NODE_SERVER = `
const { createServer } = require('node:https');
const { readFileSync } = require('node:fs');
const [port, cert, key] = process.argv.slice(1);
createServer({ cert: readFileSync(cert), key: readFileSync(key), ecdhCurve: 'P-384' }, (_, response) => {
  response.end('page');
}).listen(Number(port));`;

const PYTHON_SERVER = `
import http.server, ssl, sys
port, cert, key = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(cert, key)
context.set_ecdh_curve('secp384r1')
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header('Content-Length', '4'); self.end_headers(); self.wfile.write(b'page')
    def log_message(self, *_): pass
class Server(http.server.ThreadingHTTPServer):
    def finish_request(self, request, address):
        self.RequestHandlerClass(context.wrap_socket(request, server_side=True), address, self)
    def handle_error(self, *_): pass
Server(('0.0.0.0', int(port)), Page).serve_forever()`;

const nginxConf = (folder: string, cert: string, key: string): string => `
daemon off; master_process off; pid ${folder}/nginx.pid; events {}
http {
  access_log off; client_body_temp_path ${folder}/body; proxy_temp_path ${folder}/proxy; fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi; scgi_temp_path ${folder}/scgi;
  server {
    listen ${PORT.nginx} ssl; ssl_certificate ${cert}; ssl_certificate_key ${key};
    ssl_protocols TLSv1.2 TLSv1.3; ssl_ecdh_curve secp384r1;
    location / { return 200 "page"; }
  }
}`;

/** Starts all TLS servers of `SERVERS`. Resolves when every server listens. */
export async function startServers(rig: InspectedRig): Promise<void> {
  const { server } = rig.topology;
  const { folder } = rig.node;
  const cert = await rig.file('trial.pem', rig.certificates.good.certPem);
  const key = await rig.file('trial.key', rig.certificates.good.keyPem);
  const conf = await rig.file('nginx.conf', nginxConf(folder, cert, key));
  const database = `sql:${folder}/nss`;
  await server.must('mkdir', `${folder}/nss`);
  await server.must('certutil', '-N', '-d', database, '--empty-password');
  const bundle = `${folder}/trial.p12`;
  const made = ['pkcs12', '-export', '-in', cert, '-inkey', key, '-out', bundle, '-passout', 'pass:', '-name', 'trial'];
  await server.must('openssl', ...made);
  await server.must('pk12util', '-i', bundle, '-d', database, '-W', '');

  const files = [cert, key];
  const own = ['-cert', cert, '-cert_chain', cert, '-key', key];
  const second = ['-servername', 'denied.test', '-cert2', cert, '-key2', key];
  const only = 'NORMAL:-GROUP-ALL:+GROUP-SECP384R1';
  const commands: Readonly<Record<ServerName, readonly [string, ...string[]]>> = {
    openssl: ['openssl', 's_server', '-accept', String(PORT.openssl), ...own, ...second, '-groups', 'P-384', '-www'],
    nginx: ['nginx', '-c', conf, '-e', 'stderr'],
    node: [process.execPath, '-e', NODE_SERVER, String(PORT.node), ...files],
    python: ['/usr/bin/python3', '-c', PYTHON_SERVER, String(PORT.python), ...files],
    gnutls: [
      ...(['gnutls-serv', '--http', '--quiet', '--port', String(PORT.gnutls), '--priority', only] as const),
      ...['--x509certfile', cert, '--x509keyfile', key],
    ],
    nss: ['selfserv', '-d', database, '-n', 'trial', '-p', String(PORT.nss), '-I', 'P384', '-V', 'tls1.2:tls1.3'],
  };
  for (const name of SERVERS) {
    const [command, ...words] = commands[name];
    await listening(rig, server.start(command, words), PORT[name]);
  }
}

/**
 * Resolves when a process listens on `port` of the server host. Rejects if `child` ends before, or after
 * about ten seconds.
 */
export async function listening(rig: InspectedRig, child: ChildProcess, port: number): Promise<void> {
  for (let tries = 0; tries < 100; tries++) {
    const { stdout } = await rig.topology.server.run('ss', '-Hltn', `sport = :${port}`);
    if (stdout !== '') return;
    if (child.exitCode !== null) break;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`nothing listens at ${port}`);
}

const REQUEST = 'GET / HTTP/1.0\\r\\n\\r\\n';
const PYTHON_CLIENT = `
import socket, ssl, sys
host, port, name = sys.argv[1:]
context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
with context.wrap_socket(socket.create_connection((host, int(port)), 4), server_hostname=name) as s:
    s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); print(s.recv(4096))`;
const NODE_CLIENT = `
const [host, port, servername] = process.argv.slice(1);
const s = require('node:tls').connect({ host, port, servername, rejectUnauthorized: false }, () => s.write('GET / HTTP/1.0\\r\\n\\r\\n'));
s.on('data', (chunk) => console.log(chunk.toString())); s.on('error', () => {}); setTimeout(() => process.exit(), 4000).unref();`;

/**
 * For each client, a function that returns a shell command. The command fetches a page from the server port
 * `port` with the server name `name`.
 */
const CLIENT_COMMANDS = {
  openssl: (port: number, name: string) =>
    `printf '${REQUEST}' | timeout 4 openssl s_client -connect ${ADDRESSES.server}:${port} -servername ${name} -ign_eof`,
  curl: (port: number, name: string) =>
    `curl -sSik --http1.1 --max-time 4 --resolve ${name}:${port}:${ADDRESSES.server} https://${name}:${port}/`,
  node: (port: number, name: string) =>
    `timeout 5 ${process.execPath} -e "$NODE_CLIENT" ${ADDRESSES.server} ${port} ${name}`,
  python: (port: number, name: string) =>
    `timeout 5 /usr/bin/python3 -c "$PYTHON_CLIENT" ${ADDRESSES.server} ${port} ${name}`,
  gnutls: (port: number, name: string) =>
    `(printf '${REQUEST}'; sleep 0.4) | timeout 4 gnutls-cli --insecure --sni-hostname ${name} -p ${port} ${ADDRESSES.server}`,
  nss: (port: number, name: string) =>
    `printf '${REQUEST}' >"$REQUEST_FILE"; timeout 4 tstclnt -h ${ADDRESSES.server} -p ${port} -a ${name} -D -o -V tls1.2:tls1.3 -A "$REQUEST_FILE"`,
} as const;
export type ClientName = keyof typeof CLIENT_COMMANDS;
export const CLIENTS = Object.keys(CLIENT_COMMANDS) as readonly ClientName[];

/** Returns whether the client got a page. `options` are appended to the command of the client. */
export async function getsPage(
  rig: InspectedRig,
  client: ClientName,
  port: number,
  name: string,
  options = '',
): Promise<boolean> {
  const { stdout } = await rig.topology.client.run(
    'env',
    `NODE_CLIENT=${NODE_CLIENT}`,
    `PYTHON_CLIENT=${PYTHON_CLIENT}`,
    `REQUEST_FILE=${rig.node.folder}/request`,
    'sh',
    '-c',
    `${CLIENT_COMMANDS[client](port, name)} ${options} 2>&1`,
  );
  return /HTTP\/1\.[01] 200/.test(stdout);
}

/**
 * A python3 program that accepts one connection. It prints the offered groups and the groups with a key share
 * in the first ClientHello.
 */
const RECORDER = `
import json, socket, sys
listener = socket.socket(); listener.setsockopt(1, 2, 1); listener.bind(('0.0.0.0', int(sys.argv[1]))); listener.listen(5); print('up', flush=True)
peer, _ = listener.accept(); peer.settimeout(4); data = b''
while len(data) < 5 or len(data) < 5 + int.from_bytes(data[3:5], 'big'): data += peer.recv(65536)
at = 5 + 4 + 2 + 32; at += 1 + data[at]; at += 2 + int.from_bytes(data[at:at+2], 'big'); at += 1 + data[at] + 2
groups, shares = [], []
while at < len(data):
    kind, size = int.from_bytes(data[at:at+2], 'big'), int.from_bytes(data[at+2:at+4], 'big'); body = data[at+4:at+4+size]; at += 4 + size
    if kind == 10: groups = [int.from_bytes(body[i:i+2], 'big') for i in range(2, size, 2)]
    if kind == 51:
        i = 2
        while i < size: shares.append(int.from_bytes(body[i:i+2], 'big')); i += 4 + int.from_bytes(body[i+2:i+4], 'big')
print(json.dumps({'groups': groups, 'shares': shares}), flush=True)`;

export type Offer = { readonly groups: readonly number[]; readonly shares: readonly number[] };
/**
 * Returns the groups and key shares that a client offers in its first ClientHello. The policy must allow port
 * 4599.
 */
export async function offerOf(rig: InspectedRig, client: ClientName): Promise<Offer> {
  const port = 4599;
  const child = rig.topology.server.start('/usr/bin/python3', ['-c', RECORDER, String(port)]);
  let said = '';
  child.stdout?.on('data', (chunk: Buffer) => {
    said += chunk.toString();
  });
  const over = new Promise((resolve) => child.once('close', resolve));
  await listening(rig, child, port);
  await getsPage(rig, client, port, 'server.test');
  child.kill('SIGKILL');
  await over;
  return JSON.parse(said.split('\n')[1] ?? '') as Offer;
}
