import { execFileSync } from 'node:child_process';
import { generateKeyPairSync, type KeyObject, X509Certificate } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { generateCa } from '#service-plane/ca/generate-ca.js';
import { type CaReading, readCa } from '#service-plane/ca/read-ca.js';
import { temporaryFolder } from '../../store/temporary-folder.js';
import { type Certificates, makeCertificates } from '../certificates.js';

type Pair = { readonly cert: string; readonly key: string };

const SIGNS = ['basicConstraints=critical,CA:true', 'keyUsage=critical,keyCertSign'];
const P256 = ['ec', '-pkeyopt', 'ec_paramgen_curve:P-256'];

/** Creates a root CA with the openssl command. Returns the certificate and the key of the CA as PEM. */
function root({ key = P256, extensions = SIGNS, more = [] as string[] } = {}): Pair {
  const cwd = temporaryFolder();
  writeFileSync(join(cwd, 'c.cnf'), '[req]\ndistinguished_name = nobody\n[nobody]\n');
  const about = [
    '-config',
    'c.cnf',
    '-subj',
    '/CN=root',
    '-days',
    '30',
    ...extensions.flatMap((one) => ['-addext', one]),
  ];
  const words = ['req', '-x509', '-nodes', '-newkey', ...key, '-keyout', 'k.pem', '-out', 'c.pem', ...about, ...more];
  execFileSync('openssl', words, { cwd, stdio: 'ignore' });
  return { cert: readFileSync(join(cwd, 'c.pem'), 'utf8'), key: readFileSync(join(cwd, 'k.pem'), 'utf8') };
}

/**
 * Returns the subject and the warnings of an accepted CA, or the faults of a rejected CA. The private key is
 * left out.
 */
function told(reading: CaReading) {
  return reading.kind === 'ca' ? { subject: reading.ca.subject, warnings: reading.warnings } : reading.faults;
}
const read = async ({ cert, key }: Pair, now?: Date) => told(await readCa(cert, key, now));

const generated = generateCa({ commonName: 'generated', days: 30 });
const own: Pair = {
  cert: generated.certPem,
  key: generated.key.export({ type: 'pkcs8', format: 'pem' }) as string,
};
const pemOf = ({ privateKey }: { readonly privateKey: KeyObject }): string =>
  privateKey.export({ type: 'pkcs8', format: 'pem' }) as string;

describe('readCa accepts a CA', () => {
  it('`readCa` accepts a CA that `generateCa` has created, and returns its fields unchanged', async () => {
    const reading = await readCa(own.cert, own.key);
    expect(reading.kind === 'ca' && { ...reading.ca, key: reading.ca.key.equals(generated.key) }).toEqual({
      ...generated,
      key: true,
    });
  });

  it.each([
    ['RSA 2048', ['rsa:2048']],
    ['P-384', ['ec', '-pkeyopt', 'ec_paramgen_curve:P-384']],
    ['P-521', ['ec', '-pkeyopt', 'ec_paramgen_curve:P-521']],
  ])('`readCa` accepts a CA with a key of type %s', async (_name, key) => {
    expect(await read(root({ key }))).toEqual({ subject: 'CN=root', warnings: [] });
  });

  it('`readCa` accepts a CA whose key is in the old PEM format of `openssl ecparam`', async () => {
    const key = `-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n${generated.key.export({ type: 'sec1', format: 'pem' }) as string}`;
    expect(await read({ cert: own.cert, key })).toEqual({ subject: 'CN=generated', warnings: [] });
  });

  it('`readCa` accepts a CA that is not valid yet, and returns the warning ca_not_valid_yet', async () => {
    expect(await read(own, new Date(generated.notBefore.getTime() - 1))).toEqual({
      subject: 'CN=generated',
      warnings: ['ca_not_valid_yet'],
    });
  });

  it('`readCa` accepts a CA whose name constraints permit only some DNS names, and returns the warning ca_bound_to_names', async () => {
    const extensions = [...SIGNS, 'nameConstraints=critical,permitted;DNS:corp.test'];
    expect(await read(root({ extensions }))).toEqual({
      subject: 'CN=root',
      warnings: ['ca_bound_to_names'],
    });
  });
});

describe('readCa rejects a CA', () => {
  const cert = (message: string) => ({ pointer: '/cert_pem', message });
  const key = (message: string) => ({ pointer: '/key_pem', message });
  const NO_CERTIFICATE = cert(
    'Must be a certificate in PEM, followed by the certificates of its issuers, and nothing else.',
  );
  const NO_CA =
    'Must be the certificate of a CA: basic constraints with CA:TRUE, and keyCertSign if it has a key usage.';
  const NO_KEY = key('Must be one private key in PEM, and nothing else.');

  it.each([
    ['without PEM', { cert: 'x', key: 'y' }, [NO_KEY, NO_CERTIFICATE]],
    ['with text around its certificate', { cert: `hello\n${own.cert}`, key: own.key }, [NO_CERTIFICATE]],
    [
      'with an invalid certificate block',
      { cert: '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----', key: own.key },
      [cert('Contains a certificate that cannot be read.')],
    ],
    ['with its key among the certificates', { cert: own.cert + own.key, key: own.key }, [NO_CERTIFICATE]],
    ['with two keys', { cert: own.cert, key: own.key + own.key }, [NO_KEY]],
    [
      'with an invalid key block',
      { cert: own.cert, key: '-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----' },
      [key('Is not a private key that OpenSSL can read.')],
    ],
    [
      'with an encrypted key',
      {
        cert: own.cert,
        key: generated.key.export({ type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'x' }) as string,
      },
      [key('Must not be encrypted: decrypt the key with its passphrase first.')],
    ],
    [
      'with the key of another certificate',
      { cert: own.cert, key: pemOf(generateKeyPairSync('ec', { namedCurve: 'P-256' })) },
      [key('Must be the key of the first certificate of `cert_pem`.')],
    ],
    [
      'with a short RSA key',
      { cert: own.cert, key: pemOf(generateKeyPairSync('rsa', { modulusLength: 1024 })) },
      [key('Must have at least 2048 bits; this RSA key has 1024.')],
    ],
    [
      'with an Ed25519 key',
      { cert: own.cert, key: pemOf(generateKeyPairSync('ed25519')) },
      [key('Must be RSA or EC: browsers accept no CA with a key of the type ed25519.')],
    ],
    [
      'with a key on an unsupported curve',
      { cert: own.cert, key: pemOf(generateKeyPairSync('ec', { namedCurve: 'secp256k1' })) },
      [key('Must be on P-256, P-384 or P-521; this key is on secp256k1.')],
    ],
  ])(
    '`readCa` rejects an unusable CA certificate or key (a CA %s), and returns each fault with its position in the request',
    async (_name, pair, faults) => {
      expect(await read(pair)).toEqual(faults);
    },
  );

  it('`readCa` rejects a CA that has expired', async () => {
    expect(await read(own, generated.notAfter)).toEqual([cert(`Has expired on ${generated.notAfter.toISOString()}.`)]);
  });

  it.each([
    [['basicConstraints=critical,CA:false'], NO_CA],
    [['basicConstraints=critical,CA:true', 'keyUsage=critical,digitalSignature'], NO_CA],
    [
      [...SIGNS, 'extendedKeyUsage=clientAuth'],
      'The CA may not sign server certificates: its extended key usage, or a certificate of its chain, forbids this.',
    ],
  ])('`readCa` rejects a CA with the extensions %j', async (extensions, message) => {
    expect(await read(root({ extensions }))).toEqual([cert(message)]);
  });
});

describe('readCa and the issuer certificates of a CA', () => {
  let certificates: Certificates;
  beforeAll(() => {
    certificates = makeCertificates();
  });

  it('`readCa` returns the CA certificate in `certPem` and the issuer certificates of the CA in `chainPem`', async () => {
    const { rootPem, intermediatePem, intermediateKeyPem } = certificates;
    const reading = await readCa(intermediatePem + rootPem, intermediateKeyPem);
    expect(reading.kind === 'ca' && [reading.ca.certPem, reading.ca.chainPem]).toEqual([intermediatePem, rootPem]);
  });

  it('`readCa` accepts an intermediate CA without its issuer certificates', async () => {
    const { intermediatePem, intermediateKeyPem } = certificates;
    expect(await read({ cert: intermediatePem, key: intermediateKeyPem })).toEqual({
      subject: 'CN=between',
      warnings: [],
    });
  });

  it('`readCa` rejects a certificate that is not the issuer of the CA, and an issuer whose path length permits no CA below it', async () => {
    const { rootPem, intermediatePem, intermediateKeyPem, beyondPem } = certificates;
    expect(await read({ cert: intermediatePem + own.cert, key: intermediateKeyPem })).toEqual([
      { pointer: '/cert_pem', message: 'Must begin with the CA; each certificate must be followed by its issuer.' },
    ]);
    expect(await read({ cert: beyondPem + rootPem, key: intermediateKeyPem })).toEqual([
      {
        pointer: '/cert_pem',
        message: 'A certificate above the CA has a path length that permits no further CA below it.',
      },
    ]);
    expect(new X509Certificate(beyondPem).ca).toBe(true);
  });
});
