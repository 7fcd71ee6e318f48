import { generateKeyPairSync } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import forge from 'node-forge';
import { firstLine, type NodeProcess, program } from './node-process.js';
import { print, put, result, step, TourFailure } from './steps.js';
import { ADDRESSES, type Topology, temporaryFolder } from './topology.js';

const LIFETIME_MS = 86_400_000;

export const NAME = 'www.example.com';
export const OTHER = 'shop.example.com';
/** Files in the folder of `GatewayFiles`: the certificate of the web server, and the CA that intercepts. */
export const WEB_CERTIFICATE = 'web.pem';
export const INTERCEPT_CA = 'intercept.pem';
const CA = '/api/v1/settings/tls-intercept-ca';
const TABLE = 'tour';
const WAIT_MS = 10_000;

export const POLICY = {
  default_policy: 'deny',
  source_groups: [
    {
      id: 'office',
      mode: 'enforce',
      sources: { cidrs: ['10.77.1.0/24'] },
      rules: [{ id: 'web', action: 'allow', match: webMatch({ sni: [NAME] }) }],
    },
    {
      id: 'lab',
      mode: 'enforce',
      sources: { cidrs: ['10.77.3.0/24'] },
      rules: [
        {
          id: 'public',
          action: 'allow',
          match: webMatch({
            mode: 'intercept',
            http: { request: { methods: ['GET'], path: { prefix: ['/public/'] } } },
          }),
        },
      ],
    },
  ],
};

export function webMatch(tls: Readonly<Record<string, unknown>>) {
  return { dns_hostname: NAME, proto: 'tcp', dst_ports: [443], tls };
}

/**
 * The files of the second part of the quick start (a gateway), and the sections of the node's configuration
 * that this part needs.
 */
export type GatewayFiles = {
  readonly folder: string;
  readonly sections: Readonly<Record<string, unknown>>;
  remove(): Promise<void>;
};

/** Makes the certificate of the web server. The node reads it at its start, to trust it. */
export async function gatewayFiles(): Promise<GatewayFiles> {
  const folder = await temporaryFolder('tour');
  const { cert, key } = tourCertificate(NAME);
  await writeFile(join(folder, WEB_CERTIFICATE), cert);
  await writeFile(join(folder, 'web.key'), key);
  return {
    folder,
    sections: {
      dns: {
        listen: [`${ADDRESSES.nodeLan}:53`],
        upstreams: [`${ADDRESSES.server}:53`],
        rebind_allow: ['*.example.com'],
      },
      service_plane: { upstream_ca: join(folder, WEB_CERTIFICATE) },
    },
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}

/**
 * Runs the second part of the quick start: a gateway that masquerades two client networks, and a policy with
 * hostnames.
 */
export async function gatewayAct(topology: Topology, node: NodeProcess, { folder }: GatewayFiles): Promise<void> {
  print('\nSecond act: the node masquerades two client networks. The policy has names instead of addresses.');
  print(`\n   office ${ADDRESSES.client} ─┬─ lan0 [ node, Weir, NAT ] wan0 ── ${ADDRESSES.server} ${NAME}`);
  print(`   lab    ${ADDRESSES.clientOther} ─┘`);
  const files = [WEB_CERTIFICATE, 'web.key'].map((name) => join(folder, name));
  const words = [program('tour-web'), 'serve', NAME, ADDRESSES.server, ...files];
  await expectFirst(topology.server.start(process.execPath, words), 'ready');

  step(7, 'nftables masquerades what leaves by wan0. The server has no route to the clients any more.');
  await topology.server.must('ip', 'route', 'del', 'default');
  const chain = 'chain post { type nat hook postrouting priority srcnat; oifname "wan0" masquerade; }';
  await topology.node.must('nft', `table ip ${TABLE} { ${chain}; }`);
  await untilFollowed(node);
  result('the node decides by the addresses of the clients, before the translation');

  step(8, `A policy by names: the office may use ${NAME} by TLS, the lab may only GET /public/ there.`);
  await accepted(node, 'POST', `${CA}/generate`);
  const caFile = join(folder, INTERCEPT_CA);
  await writeFile(caFile, await accepted(node, 'GET', `${CA}/cert`));
  await put(node, POLICY);
  await node.ready();

  const client = async (expected: string, ...command: string[]): Promise<void> =>
    expectFirst(topology.client.start(process.execPath, [program('tour-web'), ...command]), expected);
  const look = (name: string, expected: string): Promise<void> =>
    client(expected, 'lookup', name, ADDRESSES.nodeLan, ADDRESSES.client);
  const get = (from: string, ca: string, [name, path]: readonly [string, string], expected: string): Promise<void> =>
    client(expected, 'get', name, path, ADDRESSES.server, ca, from);

  step(9, 'The DNS proxy of the node answers only names of the policy.');
  await look(NAME, `address ${ADDRESSES.server}`);
  result(`office: ${NAME} → ${ADDRESSES.server}; now the kernel admits this address`);
  await look(OTHER, 'refused ENOTFOUND');
  result(`office: ${OTHER} → no such name`);

  step(10, 'The office opens TLS connections to the server. The node reads the server name (SNI) that they ask for.');
  const trusted = join(folder, WEB_CERTIFICATE);
  await get(ADDRESSES.client, trusted, [NAME, '/'], `200 ${ADDRESSES.nodeWan}`);
  result(`${NAME}: 200, end-to-end; the server saw the address ${ADDRESSES.nodeWan} of the node`);
  await get(ADDRESSES.client, trusted, [OTHER, '/'], 'refused ECONNRESET');
  result(`${OTHER}: reset before the server got a byte`);

  step(11, 'The lab sends HTTPS requests. The node ends TLS with a certificate of its own CA, and reads the paths.');
  await get(ADDRESSES.clientOther, caFile, [NAME, '/public/news'], `200 ${ADDRESSES.nodeWan}`);
  result('GET /public/news: 200');
  await get(ADDRESSES.clientOther, caFile, [NAME, '/private/payroll'], '403');
  result('GET /private/payroll: 403');

  step(12, 'What was denied (GET /api/v1/audit/findings), by the addresses of the clients:');
  for (const line of await denied(node)) result(line);
}

async function expectFirst(child: ReturnType<Topology['client']['start']>, expected: string): Promise<void> {
  const line = await firstLine(child);
  if (line !== expected)
    throw new TourFailure(`the first line of the output of the traffic program is "${line}", expected "${expected}"`);
}

async function accepted(node: NodeProcess, method: string, path: string): Promise<string> {
  const { status, text } = await node.request(method, path);
  if (status > 299) throw new TourFailure(`${method} ${path}: ${status} ${text}`);
  return text;
}

/** Waits until the datapath has detected the NAT rule of the tour. */
async function untilFollowed(node: NodeProcess): Promise<void> {
  for (const end = performance.now() + WAIT_MS; performance.now() < end; await pause(50)) {
    const { body } = await node.request('GET', '/api/v1/stats');
    const { forwarding } = (body as { dataplane: { forwarding: { reason: string } } }).dataplane;
    if (['except NAT', `ip ${TABLE}`].some((sign) => forwarding.reason.includes(sign))) return;
  }
  throw new TourFailure('the node did not detect the NAT rule within 10 s');
}

type Finding = {
  readonly finding_type: string;
  readonly src_ip: string;
  readonly hostname: string | null;
  readonly sni: string | null;
  readonly http: { readonly method: string; readonly host: string; readonly path: string } | null;
};

/**
 * Returns one line for each denied lookup, TLS connection and HTTP request. Waits until there is at least one
 * of each kind.
 */
async function denied(node: NodeProcess): Promise<readonly string[]> {
  const kinds = ['dns_deny', 'tls_deny', 'http_deny'];
  const path = `/api/v1/audit/findings?${kinds.map((kind) => `finding_type=${kind}`).join('&')}`;
  for (const end = performance.now() + WAIT_MS; performance.now() < end; await pause(50)) {
    const { items } = (await node.request('GET', path)).body as { items: Finding[] };
    if (kinds.every((kind) => items.some(({ finding_type: type }) => type === kind)))
      return items.map(wordsOf).reverse();
  }
  throw new TourFailure('the node did not report the findings within 10 s');
}

function wordsOf({ finding_type: type, src_ip: source, hostname, sni, http }: Finding): string {
  const asked = http === null ? (sni ?? hostname) : `${http.method} ${http.host}${http.path}`;
  return `${type}: ${source}, ${asked}`;
}

/** Returns a key and a self-signed certificate for a server name, both in PEM. It is valid for a day. */
function tourCertificate(name: string): { readonly cert: string; readonly key: string } {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2_048 });
  const key = privateKey.export({ type: 'pkcs1', format: 'pem' }).toString();
  const signer = forge.pki.privateKeyFromPem(key);
  const certificate = forge.pki.createCertificate();
  certificate.publicKey = forge.pki.setRsaPublicKey(signer.n, signer.e);
  certificate.serialNumber = '01';
  certificate.validity.notBefore = new Date(Date.now() - LIFETIME_MS);
  certificate.validity.notAfter = new Date(Date.now() + LIFETIME_MS);
  const subject = [{ name: 'commonName', value: name }];
  certificate.setSubject(subject);
  certificate.setIssuer(subject);
  certificate.setExtensions([
    { name: 'basicConstraints', cA: true },
    { name: 'subjectAltName', altNames: [{ type: 2, value: name }] },
  ]);
  certificate.sign(signer, forge.md.sha256.create());
  return { cert: forge.pki.certificateToPem(certificate), key };
}
