import { execFileSync } from 'node:child_process';
import { createPrivateKey, generateKeyPairSync, X509Certificate } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { generateCa } from '#service-plane/ca/generate-ca.js';
import { type InterceptCa, interceptCaOf } from '#service-plane/ca/intercept-ca.js';
import { createLeafMint } from '#service-plane/ca/leaf-mint.js';
import { temporaryFolder } from '../../store/temporary-folder.js';

const leafKey = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
const KEY_USAGE = 'keyUsage=critical,keyCertSign';
const HOUR_MS = 3_600_000;
const LONG = `${'a'.repeat(63)}.${'b'.repeat(63)}.${'c'.repeat(63)}.${'d'.repeat(56)}.test`;

function openssl(words: readonly string[], files: Readonly<Record<string, string>>): string {
  const cwd = temporaryFolder();
  for (const [name, content] of Object.entries(files)) writeFileSync(join(cwd, name), content);
  return execFileSync('openssl', words, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}
const textOf = (pem: string, ...options: string[]) =>
  openssl(['x509', '-in', 'c.pem', '-noout', ...options], { 'c.pem': pem });
const verified = (ca: InterceptCa, leafPem: string, ...options: string[]) =>
  openssl(['verify', '-x509_strict', '-purpose', 'sslserver', '-CAfile', 'ca.pem', ...options, 'leaf.pem'], {
    'ca.pem': ca.certPem,
    'leaf.pem': leafPem,
  });

/** Creates a CA with the openssl command. `algorithm` is the key type: the arguments after `-newkey`. */
function foreignCa(algorithm: readonly string[]): InterceptCa {
  const words = ['req', '-x509', '-nodes', '-newkey', ...algorithm, '-keyout', '-', '-out', '-', '-days', '30'];
  const both = openssl([...words, '-subj', '/C=NL/O=Büro Ltd/CN=Foreign CA', '-utf8', '-addext', KEY_USAGE], {});
  const key = createPrivateKey(both);
  return interceptCaOf(/-----BEGIN CERT[\s\S]+/.exec(both)?.[0] ?? '', '', key);
}

describe('a leaf certificate', () => {
  const ca = generateCa({ commonName: 'Weir intercept CA node-a', days: 365 });

  it.each([
    ['www.example.com', 'www.example.com', ['-verify_hostname', 'www.example.com']],
    ['xn--bcher-kva.example', 'xn--bcher-kva.example', ['-verify_hostname', 'xn--bcher-kva.example']],
    ['a_b.example', 'a_b.example', []],
    ['192.0.2.7', '192.0.2.7', ['-verify_ip', '192.0.2.7']],
    [LONG, null, ['-verify_hostname', LONG]],
  ])(
    'a leaf certificate for the host name or address %s passes openssl verify, and contains the name as subjectAltName',
    (name, commonName, options) => {
      const { certPem } = createLeafMint(ca, leafKey)(name, new Date());
      expect(verified(ca, certPem, ...options)).toBe('leaf.pem: OK\n');
      const subject = commonName === null ? 'subject=' : `subject=CN = ${commonName}`;
      expect(textOf(certPem, '-subject').trim()).toBe(subject);
      const kind = name === '192.0.2.7' ? 'IP Address' : 'DNS';
      const critical = commonName === null ? 'critical' : '';
      expect(textOf(certPem, '-ext', 'subjectAltName,basicConstraints,keyUsage,extendedKeyUsage').split('\n')).toEqual([
        'X509v3 Basic Constraints: critical',
        '    CA:FALSE',
        'X509v3 Key Usage: critical',
        '    Digital Signature',
        'X509v3 Extended Key Usage: ',
        '    TLS Web Server Authentication',
        `X509v3 Subject Alternative Name: ${critical}`,
        `    ${kind}:${name}`,
        '',
      ]);
    },
  );

  it('a leaf certificate is valid only for the host name for which `createLeafMint` has created the certificate', () => {
    const leaf = new X509Certificate(createLeafMint(ca, leafKey)('example.com', new Date()).certPem);
    expect(['example.com', 'www.example.com', 'xexample.com'].map((name) => leaf.checkHost(name))).toEqual([
      'example.com',
      undefined,
      undefined,
    ]);
  });

  it('a leaf certificate is valid from one hour before its creation for seven days, but not outside the validity of its CA', () => {
    const mint = createLeafMint(ca, leafKey);
    const begin = ca.notBefore.getTime();
    const end = ca.notAfter.getTime();
    const lives = [begin + 30 * 60_000, begin + 48 * HOUR_MS, end - HOUR_MS].map((at) => {
      const { certPem, notBefore, notAfter } = mint('a.test', new Date(at));
      const read = new X509Certificate(certPem);
      expect([new Date(read.validFrom), new Date(read.validTo)]).toEqual([notBefore, notAfter]);
      return [notBefore.getTime(), notAfter.getTime()];
    });
    expect(lives).toEqual([
      [begin, begin + 30 * 60_000 + 168 * HOUR_MS],
      [begin + 47 * HOUR_MS, begin + 216 * HOUR_MS],
      [end - 2 * HOUR_MS, end],
    ]);
  });

  it('a leaf certificate that expires after the year 2049 contains the right dates', () => {
    const late = generateCa({ commonName: 'late', days: 3650 }, new Date('2049-12-30T00:00:00Z'));
    const { certPem } = createLeafMint(late, leafKey)('a.test', new Date('2049-12-31T00:00:00Z'));
    expect(textOf(certPem, '-dates')).toBe('notBefore=Dec 30 23:00:00 2049 GMT\nnotAfter=Jan  7 00:00:00 2050 GMT\n');
  });

  it('a leaf certificate has a random, positive serial number of 16 bytes', () => {
    const mint = createLeafMint(ca, leafKey);
    const serials = new Set(
      Array.from({ length: 200 }, () => new X509Certificate(mint('a.test', new Date()).certPem).serialNumber),
    );
    expect([serials.size, [...serials].every((serial) => /^[4-7][0-9A-F]{31}$/.test(serial))]).toEqual([200, true]);
  });

  it.each([
    ['RSA 2048', ['rsa:2048'], 'sha256WithRSAEncryption'],
    ['P-256', ['ec', '-pkeyopt', 'ec_paramgen_curve:P-256'], 'ecdsa-with-SHA256'],
    ['P-384', ['ec', '-pkeyopt', 'ec_paramgen_curve:P-384'], 'ecdsa-with-SHA384'],
    ['P-521', ['ec', '-pkeyopt', 'ec_paramgen_curve:P-521'], 'ecdsa-with-SHA512'],
  ])(
    'a leaf certificate signed by a CA that has a key of type %s passes openssl verify',
    (_key, algorithm, signature) => {
      const foreign = foreignCa(algorithm);
      const { certPem } = createLeafMint(foreign, leafKey)('a.test', new Date());
      expect(verified(foreign, certPem)).toBe('leaf.pem: OK\n');
      expect(textOf(certPem, '-text')).toContain(`Signature Algorithm: ${signature}\n`);
      expect(textOf(certPem, '-issuer')).toBe(textOf(foreign.certPem, '-subject').replace('subject=', 'issuer='));
    },
  );
});

describe('a CA certificate from generateCa', () => {
  it('a CA certificate from `generateCa` is a self-signed root certificate that may sign leaf certificates, but no CA certificates', () => {
    const now = new Date('2026-03-01T12:00:00Z');
    const ca = generateCa({ commonName: 'Weir intercept CA node-a', days: 30 }, now);
    expect({ ...ca, key: ca.key.asymmetricKeyDetails, certPem: '', fingerprint: ca.fingerprint.length }).toEqual({
      certPem: '',
      chainPem: '',
      key: { namedCurve: 'prime256v1' },
      subject: 'CN=Weir intercept CA node-a',
      fingerprint: 64,
      notBefore: new Date('2026-03-01T11:00:00Z'),
      notAfter: new Date('2026-03-31T12:00:00Z'),
    });
    expect(textOf(ca.certPem, '-ext', 'basicConstraints,keyUsage').split('\n')).toEqual([
      'X509v3 Basic Constraints: critical',
      '    CA:TRUE, pathlen:0',
      'X509v3 Key Usage: critical',
      '    Certificate Sign, CRL Sign',
      '',
    ]);
    const certificate = new X509Certificate(ca.certPem);
    expect([certificate.checkPrivateKey(ca.key), certificate.verify(certificate.publicKey)]).toEqual([true, true]);
  });
});
