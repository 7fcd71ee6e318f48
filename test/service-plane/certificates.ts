import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { built } from '#threads/built-file.js';

/** The certificate chain that a server sends, and the private key of the leaf certificate. */
export type ServerCertificate = { readonly certPem: string; readonly keyPem: string };

export const SERVER_NAME = 'server.test';
export const SERVER_ADDRESS = '192.0.2.10';

/**
 * Test certificates: valid certificates, and in `broken` one certificate for each fault. The openssl command
 * creates all certificates, so that the tested code does not influence them.
 */
export type Certificates = {
  readonly rootPem: string;
  readonly intermediatePem: string;
  readonly intermediateKeyPem: string;
  /**
   * A CA certificate whose issuer permits no CA below itself (path length 0), followed by the issuer
   * certificate.
   */
  readonly beyondPem: string;
  /** A valid leaf certificate for `SERVER_NAME` and `SERVER_ADDRESS`, followed by its issuer certificate. */
  readonly good: ServerCertificate;
  readonly reversedChain: ServerCertificate;
  readonly broken: Readonly<Record<Fault, ServerCertificate>>;
};
export type Fault =
  | 'expired'
  | 'not yet valid'
  | 'wrong host'
  | 'self-signed'
  | 'unknown issuer'
  | 'unknown issuer that is sent'
  | 'incomplete chain'
  | 'SHA-1'
  | 'RSA 1024'
  | 'clientAuth only'
  | 'no SAN'
  | 'issuer that is no CA'
  | 'path too long'
  | 'name not permitted';

const CA_CONFIG = `
[ca]
default_ca = it
[it]
database = index.txt
new_certs_dir = .
rand_serial = yes
policy = any
default_md = sha256
unique_subject = no
[any]
commonName = optional
[req]
distinguished_name = nobody
[nobody]
`;
const SAN = `subjectAltName=DNS:${SERVER_NAME},IP:${SERVER_ADDRESS}`;
const AUTHORITY = 'basicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign,cRLSign';

/** The certificates of a day, by the hash of this file. To create them takes 41 processes. */
const CACHE = built('test-certificates');

/** Returns the test certificates. The first call of a day creates them, and deletes its temporary files. */
export function makeCertificates(): Certificates {
  const hash = createHash('sha256').update(readFileSync(fileURLToPath(import.meta.url)));
  const cached = join(CACHE, `${new Date().toISOString().slice(0, 10)}-${hash.digest('hex')}.json`);
  if (existsSync(cached)) return JSON.parse(readFileSync(cached, 'utf8')) as Certificates;
  const folder = mkdtempSync(join(tmpdir(), 'weir-certificates-'));
  try {
    const certificates = certificatesIn(folder);
    mkdirSync(CACHE, { recursive: true });
    // Another test file that needs certificates at this moment does not read a part of them.
    writeFileSync(`${cached}.${process.pid}`, JSON.stringify(certificates));
    renameSync(`${cached}.${process.pid}`, cached);
    return certificates;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function certificatesIn(folder: string): Certificates {
  const openssl = (...words: string[]): void => {
    execFileSync('openssl', words, { cwd: folder, stdio: ['ignore', 'ignore', 'pipe'] });
  };
  const text = (name: string) => readFileSync(join(folder, name), 'utf8');
  const put = (name: string, content: string) => writeFileSync(join(folder, name), content);
  put('ca.cnf', CA_CONFIG);
  put('index.txt', '');

  const key = (name: string, ...algorithm: string[]) => openssl('genpkey', ...algorithm, '-out', `${name}.key`);
  const P256 = ['-algorithm', 'EC', '-pkeyopt', 'ec_paramgen_curve:P-256'];
  key('root', ...P256);
  key('intermediate', ...P256);
  key('server', ...P256);
  key('weak', '-algorithm', 'RSA', '-pkeyopt', 'rsa_keygen_bits:1024');
  const self = (name: string, keyName: string, extensions: string, subject = name) => {
    put(`${name}.cnf`, `${CA_CONFIG}[own]\n${extensions}\n`);
    const about = ['-config', `${name}.cnf`, '-extensions', 'own', '-subj', `/CN=${subject}`, '-days', '30'];
    openssl('req', '-x509', '-new', '-key', `${keyName}.key`, '-out', `${name}.pem`, ...about);
  };
  const sign = (name: string, made: Made) => {
    const { by = 'intermediate', of = 'server', subject = SERVER_NAME, extensions = SAN, digest = 'sha256' } = made;
    put(`${name}.ext`, extensions);
    openssl('req', '-new', '-config', 'ca.cnf', '-key', `${of}.key`, '-subj', `/CN=${subject}`, '-out', `${name}.csr`);
    const dates = made.dates ?? ['20200101000000Z', '21000101000000Z'];
    openssl(
      ...['ca', '-batch', '-notext', '-config', 'ca.cnf', '-in', `${name}.csr`, '-out', `${name}.pem`],
      ...['-cert', `${by}.pem`, '-keyfile', `${made.byKey ?? by}.key`, '-extfile', `${name}.ext`, '-md', digest],
      ...['-startdate', dates[0], '-enddate', dates[1]],
    );
    return text(`${name}.pem`);
  };

  self('root', 'root', AUTHORITY);
  self('stranger', 'root', AUTHORITY, 'a root that nobody knows');
  self('self', 'server', SAN, SERVER_NAME);
  const intermediate = sign('intermediate', {
    by: 'root',
    of: 'intermediate',
    subject: 'between',
    extensions: AUTHORITY,
  });
  const below = (name: string, extensions: string) =>
    sign(name, { by: 'root', of: 'intermediate', subject: name, extensions });
  const last = below('last', `basicConstraints=critical,CA:true,pathlen:0\nkeyUsage=keyCertSign`);
  const beyond = sign('beyond', { by: 'last', byKey: 'intermediate', of: 'intermediate', extensions: AUTHORITY });
  const noCa = below('no-ca', 'basicConstraints=critical,CA:false');
  const bound = below('bound', `${AUTHORITY}\nnameConstraints=critical,permitted;DNS:elsewhere.test`);

  const shown = (certPem: string, ...chain: string[]): ServerCertificate => ({
    certPem: [certPem, ...chain].join(''),
    keyPem: text('server.key'),
  });
  const leaf = (name: string, made: Made = {}) => shown(sign(name, made), intermediate);
  const under = (issuer: string, chain: string[]) =>
    shown(sign(`under-${issuer}`, { by: issuer, byKey: 'intermediate' }), ...chain);
  const good = sign('good', {});
  const unknown = sign('unknown', { by: 'stranger', byKey: 'root' });
  return {
    rootPem: text('root.pem'),
    intermediatePem: intermediate,
    intermediateKeyPem: text('intermediate.key'),
    beyondPem: beyond + last,
    good: shown(good, intermediate),
    reversedChain: shown(good, text('root.pem'), intermediate),
    broken: {
      expired: leaf('expired', { dates: ['20200101000000Z', '20210101000000Z'] }),
      'not yet valid': leaf('early', { dates: ['20980101000000Z', '21000101000000Z'] }),
      'wrong host': leaf('other', { extensions: 'subjectAltName=DNS:other.test,IP:192.0.2.11' }),
      'self-signed': shown(text('self.pem')),
      'unknown issuer': shown(unknown),
      'unknown issuer that is sent': shown(unknown, text('stranger.pem')),
      'incomplete chain': shown(good),
      'SHA-1': leaf('sha1', { digest: 'sha1' }),
      'RSA 1024': { ...leaf('short', { of: 'weak' }), keyPem: text('weak.key') },
      'clientAuth only': leaf('client', { extensions: `${SAN}\nextendedKeyUsage=clientAuth` }),
      'no SAN': leaf('bare', { extensions: 'basicConstraints=CA:false' }),
      'issuer that is no CA': under('no-ca', [noCa]),
      'path too long': under('beyond', [beyond, last]),
      'name not permitted': under('bound', [bound]),
    },
  };
}

type Made = {
  readonly by?: string;
  readonly byKey?: string;
  /** The name of the key pair whose public key is in the certificate. */
  readonly of?: string;
  readonly subject?: string;
  readonly extensions?: string;
  readonly digest?: string;
  readonly dates?: readonly [from: string, to: string];
};
