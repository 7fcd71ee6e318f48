import type { ChildProcess } from 'node:child_process';
import { execFileSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { NamespaceCommands } from '#cli/tour/topology.js';

const READY_MS = 20_000;

/** Both servers offer HTTP/3. nginx answers only over TCP; Caddy also answers over HTTP/3. */
type Server = 'nginx' | 'caddy';

/** The address and port of a target, and the name in it. */
export type Place = { readonly address: string | null; readonly port: number | null; readonly name: string | null };

type Site = {
  readonly address: string;
  readonly server: Server;
  /** Only the header `Alt-Svc` offers HTTP/3: the name has no HTTPS record. */
  readonly recordless?: true;
};

/**
 * The web servers of the trials by name, each with an address of its own. The addresses are public, so that
 * the rebind protection of the DNS proxy keeps them.
 */
export const SITES: Readonly<Record<string, Site>> = {
  'login.example.com': { address: '93.184.216.1', server: 'nginx' },
  'login.example.net': { address: '93.184.216.2', server: 'caddy', recordless: true },
  'www.example.com': { address: '93.184.216.3', server: 'caddy' },
  'api.example.com': { address: '93.184.216.4', server: 'nginx' },
  'video.example': { address: '93.184.216.5', server: 'caddy' },
  'cdn.video.example': { address: '93.184.216.6', server: 'nginx' },
  'ads.tracker.example': { address: '93.184.216.7', server: 'nginx' },
  'malware.example': { address: '93.184.216.8', server: 'caddy' },
  'pool7.coins.example': { address: '93.184.216.9', server: 'nginx' },
  'deb.debian.org': { address: '93.184.216.10', server: 'nginx' },
};
const RESOLVERS = ['192.0.2.53', '192.0.2.54', '10.0.0.53'] as const;
/** The public name of the keys for Encrypted Client Hello, in the certificate of each server. */
const OUTER_NAME = 'outer.example';
/** The text of every page. */
export const PAGE = 'The page of the trial';
/** The response body for requests that write, such as POST. */
export const WRITTEN = 'written';
/** The version that the fake API server of Kubernetes reports. */
export const KUBERNETES_VERSION = 'v1.36.0';
/**
 * The packages of the npm registry, and the version of each. `npm` asks for the package with a scope by the
 * path `/npm/@types%2fnode`.
 */
export const PACKAGES = ['weir-trial', '@types/node'] as const;
export const PACKAGE_VERSION = '3.1.4';

const addressesOf = (server: Server): string[] =>
  Object.values(SITES).flatMap((site) => (site.server === server ? [site.address] : []));
const namesOf = (server: Server): string[] => Object.keys(SITES).filter((name) => SITES[name]?.server === server);

/** `rootPem`: the root CA certificate, which signed the certificates of all servers. */
export type Internet = { readonly rootPem: string };

/**
 * Starts the servers of the trials in the namespace `server`, which gets the addresses of the sites, of the
 * resolvers, and of `places`. Resolves when each server listens.
 * - A web server at each of the places, on the ports 80 and 443, and on 6443 as an API server of Kubernetes.
 * - An SSH server, and etcd, at every address.
 * - An echo server at each other port of a place, over TCP and UDP.
 */
export async function startInternet(
  server: NamespaceCommands,
  folder: string,
  places: readonly Place[],
): Promise<Internet> {
  const unnamed = places.filter(({ name }) => name === null);
  const addresses = [...new Set(unnamed.flatMap(({ address }) => address ?? []))];
  const echoes = unnamed.filter(({ port }) => port !== null && !SERVED.includes(port));
  const echoed = [...new Set(echoes.map(({ address, port }) => `${address}:${port}`))];
  const own = new Set([...Object.values(SITES).map(({ address }) => address), ...RESOLVERS, ...addresses]);
  for (const address of own) await server.must('ip', 'addr', 'add', `${address}/32`, 'dev', 'lo');
  const rootPem = makeCertificate(folder, [
    ...[...Object.keys(SITES), OUTER_NAME].map((name) => `DNS:${name}`),
    ...addresses.map((address) => `IP:${address}`),
  ]);
  const root = join(folder, 'www');
  makeDocuments(root);
  const serve = (command: string, args: readonly string[]): ChildProcess =>
    server.start('unshare', ['--mount', '--pid', '--fork', '--kill-child', '--mount-proc', command, ...args], {
      ...process.env,
      HOME: folder,
    });
  const nginx = write(folder, 'nginx.conf', nginxConfiguration(folder, root, addresses));
  const children = [
    serve('nginx', ['-p', folder, '-e', 'stderr', '-c', nginx]),
    serve('caddy', ['run', '--adapter', 'caddyfile', '--config', write(folder, 'Caddyfile', caddyfile(folder, root))]),
    serve('dnsmasq', resolverWords(RESOLVERS)),
    serve('sh', ['-c', SSH_SERVER, 'sh', folder]),
    serve('etcd', etcdWords(folder)),
    serve('/usr/bin/python3', ['-c', ECHO_SERVER, ...echoed]),
  ];
  let said = '';
  for (const stream of children.flatMap(({ stdout, stderr }) => [stdout, stderr])) {
    stream?.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(-4_000);
    });
  }
  const deadline = performance.now() + READY_MS;
  const until = async (doing: string, isDone: () => Promise<boolean>): Promise<void> => {
    while (!(await isDone())) {
      if (performance.now() > deadline) throw new Error(`${doing} does not listen: ${said}`);
      await pause(100);
    }
  };
  for (const name of ['login.example.com', 'login.example.net']) {
    const { address } = SITES[name] ?? { address: '' };
    const words = ['-sk', '--max-time', '2', '--resolve', `${name}:443:${address}`, `https://${name}/`];
    await until(`the server of ${name}`, async () => (await server.run('curl', ...words)).stdout.includes(PAGE));
  }
  for (const port of [22, 2379]) {
    const words = ['-Hltn', `sport = :${port}`];
    await until(`the server of port ${port}`, async () => (await server.run('ss', ...words)).stdout !== '');
  }
  return { rootPem };
}

function write(folder: string, name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

/** Makes `server.pem` and `server.key` for the names. Returns the certificate of the root. */
function makeCertificate(folder: string, names: readonly string[]): string {
  const openssl = (...words: string[]) =>
    execFileSync('openssl', words, { cwd: folder, encoding: 'utf8', stdio: 'pipe' });
  const key = (name: string) => [
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:P-256',
    '-nodes',
    '-keyout',
    `${name}.key`,
  ];
  const authority = ['-addext', 'basicConstraints=critical,CA:true', '-addext', 'keyUsage=critical,keyCertSign'];
  write(folder, 'empty.cnf', '[req]\ndistinguished_name = none\n[none]\n');
  const request = ['req', '-new', '-config', 'empty.cnf'];
  openssl(
    ...request,
    '-x509',
    ...key('root'),
    '-subj',
    '/CN=Root of the trials',
    '-days',
    '30',
    ...authority,
    '-out',
    'root.pem',
  );
  openssl(...request, ...key('server'), '-subj', '/CN=Server of the trials', '-out', 'server.csr');
  write(folder, 'server.ext', `subjectAltName=${names.join(',')}\nextendedKeyUsage=serverAuth\n`);
  const signer = ['-CA', 'root.pem', '-CAkey', 'root.key', '-CAcreateserial', '-days', '30', '-extfile', 'server.ext'];
  openssl('x509', '-req', '-in', 'server.csr', ...signer, '-out', 'server.pem');
  return openssl('x509', '-in', 'root.pem');
}

/** Makes a page, a Git repository and packages below `/`, `/v2/public/` and `/v2/private/`. */
function makeDocuments(root: string): void {
  for (const below of ['', 'v2/public', 'v2/private']) {
    const at = join(root, below);
    for (const folder of ['npm/@types', 'debian']) mkdirSync(join(at, folder), { recursive: true });
    write(at, 'index.html', `<!doctype html><title>${PAGE}</title><p>${PAGE}</p>`);
    const git = (...words: string[]) => execFileSync('git', ['-C', at, ...words], { stdio: 'pipe' });
    const author = ['-c', 'user.name=trial', '-c', 'user.email=trial@example.com'];
    git('init', '-q', '-b', 'main', 'work');
    git('-C', 'work', ...author, 'commit', '-q', '--allow-empty', '-m', 'The commit of the trial');
    git('clone', '-q', '--bare', 'work', 'repo.git');
    git('-C', 'repo.git', 'update-server-info');
    for (const name of PACKAGES) {
      const version = { name, version: PACKAGE_VERSION, dist: { tarball: `https://registry.invalid/${name}.tgz` } };
      const about = { name, 'dist-tags': { latest: PACKAGE_VERSION }, versions: { [PACKAGE_VERSION]: version } };
      write(join(at, 'npm'), name, JSON.stringify(about));
    }
    write(
      join(at, 'debian'),
      'Packages',
      'Package: weir-trial\nVersion: 1\nArchitecture: all\nMaintainer: trial\nFilename: x.deb\nSize: 1\nSHA256: 0\nDescription: trial\n',
    );
  }
  execFileSync('chmod', ['-R', 'a+rX', root]);
}

function nginxConfiguration(folder: string, root: string, addresses: readonly string[]): string {
  // Nothing listens on UDP port 443 of these addresses: a browser that tries HTTP/3 must return to TCP.
  const site = (name: string): string => `
  server {
    listen ${SITES[name]?.address}:443 ssl http2; listen ${SITES[name]?.address}:80; server_name ${name};
    ssl_certificate server.pem; ssl_certificate_key server.key;
    add_header Alt-Svc 'h3=":443"; ma=86400' always; add_header Access-Control-Allow-Origin '*' always;
    location / { if ($request_method !~ ^(GET|HEAD)$) { return 200 "${WRITTEN}\\n"; } }
  }`;
  const plain = addresses.map((address) => {
    const listen = `listen ${address}:80; listen ${address}:443 ssl http2; listen ${address}:6443 ssl;`;
    return `
  server {
    ${listen} ssl_certificate server.pem; ssl_certificate_key server.key;
    location = /version { return 200 '{"major":"1","minor":"36","gitVersion":"${KUBERNETES_VERSION}"}'; }
  }`;
  });
  chmodSync(folder, 0o755);
  return `
daemon off; worker_processes 1; user root; pid ${folder}/nginx.pid;
events { worker_connections 512; }
http {
  types { text/html html; application/json json; } default_type application/json;
  root ${root}; access_log off;
  client_body_temp_path ${folder}/body; proxy_temp_path ${folder}/proxy; fastcgi_temp_path ${folder}/fcgi;
  uwsgi_temp_path ${folder}/uwsgi; scgi_temp_path ${folder}/scgi;
  ${[...namesOf('nginx').map(site), ...plain].join('')}
}
`;
}

function caddyfile(folder: string, root: string): string {
  const names = namesOf('caddy');
  return `
{
  admin off
  auto_https off
  servers {
    protocols h1 h2 h3
  }
}
(documents) {
  bind ${addressesOf('caddy').join(' ')}
  root * ${root}
  header Access-Control-Allow-Origin *
  file_server
}
${names.map((name) => `http://${name}`).join(', ')} {
  import documents
}
${names.map((name) => `https://${name}`).join(', ')} {
  import documents
  tls ${folder}/server.pem ${folder}/server.key
}
`;
}

/** `sshd` needs /run/sshd. A client with the key `ssh.key` may log in as root, and can only run `true`. */
const SSH_SERVER = `
mount -t tmpfs tmpfs /run && mkdir /run/sshd && cd "$1"
ssh-keygen -q -t ed25519 -N '' -f host.key && ssh-keygen -q -t ed25519 -N '' -f ssh.key
printf 'command="true",restrict %s\\n' "$(cat ssh.key.pub)" > authorized_keys
exec /usr/sbin/sshd -D -e -f /dev/null -h "$1/host.key" -o PidFile=none -o UsePAM=no -o StrictModes=no \
  -o PermitRootLogin=yes -o AuthorizedKeysFile="$1/authorized_keys"`;

/** The ports at which servers other than the echo servers listen. */
const SERVED = [22, 53, 80, 443, 2379, 6443];
/** Echoes over TCP and UDP from the address to which a client sent. */
const ECHO_SERVER = `
import socket, sys, threading
def serve(listener):
    while True: threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
def echo(peer):
    try:
        while data := peer.recv(4096): peer.sendall(data)
    except OSError: pass
    peer.close()
def answer(datagrams):
    while True: datagrams.sendto(*datagrams.recvfrom(4096))
for word in sys.argv[1:]:
    address, port = word.split(':')
    listener = socket.create_server((address, int(port)))
    datagrams = socket.socket(type=socket.SOCK_DGRAM); datagrams.bind((address, int(port)))
    for target, own in ((serve, listener), (answer, datagrams)): threading.Thread(target=target, args=(own,)).start()
threading.Event().wait()`;

const etcdWords = (folder: string): string[] => [
  ...['--name', 'trial', '--data-dir', join(folder, 'etcd'), '--log-level', 'error'],
  ...['--listen-client-urls', 'https://0.0.0.0:2379', '--advertise-client-urls', 'https://127.0.0.1:2379'],
  ...['--cert-file', join(folder, 'server.pem'), '--key-file', join(folder, 'server.key')],
  ...['--listen-peer-urls', 'http://127.0.0.1:2380'],
];

/** The arguments of a `dnsmasq` that knows the sites and no other name. */
export function resolverWords(listen: readonly string[]): string[] {
  const records = Object.entries(SITES).flatMap(([name, { address, recordless }]) => [
    `--host-record=${name},${address}`,
    ...(recordless === true ? [] : [`--dns-rr=${name},65,${httpsRecord(address).toString('hex')}`]),
  ]);
  const fixed =
    '--no-daemon --conf-file=/dev/null --no-resolv --no-hosts --bind-interfaces --user=root --group=root --pid-file=';
  return [
    ...fixed.split(' '),
    '--local=//',
    '--max-ttl=300',
    '--local-ttl=300',
    ...listen.map((at) => `--listen-address=${at}`),
    ...records,
  ];
}

/** An HTTPS record (RFC 9460) that offers HTTP/3, an address hint, and a key for Encrypted Client Hello. */
function httpsRecord(address: string): Buffer {
  const parameter = (key: number, value: Buffer): Buffer => Buffer.concat([uint16(key), uint16(value.length), value]);
  const hint = Buffer.from(address.split('.').map(Number));
  return Buffer.concat([
    uint16(1),
    Buffer.from([0]),
    parameter(1, Buffer.from('\x02h3\x02h2')),
    parameter(4, hint),
    parameter(5, echConfigList(OUTER_NAME)),
  ]);
}

const uint16 = (value: number): Buffer => Buffer.from([value >> 8, value & 0xff]);
const sized = (value: Buffer): Buffer => Buffer.concat([uint16(value.length), value]);

/** A list with one ECHConfig (RFC 9849, 4): X25519, HKDF-SHA256, AES-128-GCM. No server has its key. */
function echConfigList(publicName: string): Buffer {
  const { publicKey } = generateKeyPairSync('x25519');
  const raw = publicKey.export({ type: 'spki', format: 'der' }).subarray(-32);
  const suites = sized(Buffer.concat([uint16(1), uint16(1)]));
  const keyConfig = Buffer.concat([Buffer.from([7]), uint16(0x20), sized(raw), suites]);
  const name = Buffer.concat([Buffer.from([0, publicName.length]), Buffer.from(publicName)]);
  return sized(Buffer.concat([uint16(0xfe0d), sized(Buffer.concat([keyConfig, name, uint16(0)]))]));
}
